// The memory of timed calls on a GPU (timed.hpp). The runner has it from its first call to its
// last, so that no call meets memory that is new to it; the inputs in it are copies, and so are
// what the judge keeps of the outputs. The arguments of a call are device memory of the judge.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "common/cuda/check.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/evict.hpp"
#include "harness/judge/call.hpp"
#include "harness/judge/differences.hpp"
#include "harness/judge/joint_memory.hpp"
#include "harness/judge/timed.hpp"

namespace flash::grading {
namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  FLASH_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault));
}

class GpuMemory final : public CallMemory {
 public:
  int make(std::size_t bytes) override {
    if (memory_ && bytes <= memory_->bytes()) return -1;
    memory_ = std::make_unique<JointMemory>(bytes);
    nothing_ = DeviceTensor<unsigned char, 1>({static_cast<Index>(memory_->bytes())});
    device::fill_bytes(nothing_.data(), 0xff, nothing_.bytes());  // NaN, whatever the type
    descriptor_ = Descriptor(memory_->descriptor());
    return descriptor_.get();
  }
  std::size_t bytes() const override { return memory_->bytes(); }
  bool is_on_device() const override { return true; }

  // A kernel that an earlier call left behind could begin before the clock does. Then the GPU takes
  // turns between two processes, and the judge waits for its own: 0.9 to 2.5 ms on an H200, and
  // less than 0.04 where nothing else runs.
  double write(const Call& call, const Layout& layout) override {
    const double before = wait();
    copy(memory_->data(), nothing_.data(), memory_->bytes());
    for (std::size_t n = 0; n < call.arguments.size(); ++n)
      if (!call.arguments[n].output)
        copy(place(layout, n), call.arguments[n].data, layout.there[n]);
    evict();
    device::synchronize();
    return std::max(before, wait());
  }

  void keep(const Call& call, const Layout& layout) override {
    for (std::size_t n = 0; n < call.arguments.size(); ++n)
      if (call.arguments[n].output) copy(call.arguments[n].data, place(layout, n), layout.there[n]);
    device::synchronize();
  }

  // What lies between the tensors has to be as nobody wrote it.
  std::string read(const Call& call, const Layout& layout) override {
    std::vector<Pieces> pairs;
    std::size_t behind = 0;
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const std::size_t begin = layout.placed[n].offset, bytes = layout.there[n];
      pairs.push_back({memory_->data() + behind, nothing_.data(), begin - behind});
      if (!call.arguments[n].output)
        pairs.push_back({memory_->data() + begin, call.arguments[n].data, bytes});
      behind = begin + bytes;
    }
    pairs.push_back({memory_->data() + behind, nothing_.data(), memory_->bytes() - behind});
    return differ(pairs) ? "It changes an input, or writes outside of its outputs." : "";
  }

 private:
  char* place(const Layout& layout, std::size_t n) const {
    return memory_->data() + layout.placed[n].offset;
  }

  // How long the least that there is to do on the GPU takes.
  double wait() {
    const auto begin = SteadyClock::now();
    device::fill_bytes(nothing_.data(), 0xff, 1);
    device::synchronize();
    return std::chrono::duration<double, std::milli>(SteadyClock::now() - begin).count();
  }

  // Lines that a kernel asked to persist count as others first.
  void evict() {
#ifndef FLASH_SIMT
    FLASH_CUDA_CHECK(cudaCtxResetPersistingL2Cache());
    if (!evict_l2_) evict_l2_.emplace();  // not before all runners have been started
    (*evict_l2_)();
#endif
  }

  std::unique_ptr<JointMemory> memory_;
  Descriptor descriptor_;
  DeviceTensor<unsigned char, 1> nothing_;
  std::optional<L2Eviction> evict_l2_;
};

}  // namespace

std::unique_ptr<CallMemory> memory_of_gpu() { return std::make_unique<GpuMemory>(); }

}  // namespace flash::grading
