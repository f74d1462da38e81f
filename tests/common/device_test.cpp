// common/cuda on a GPU, and on the emulator: memory and its cap, copies, launches, events, and what
// errors say.
#include "common/cuda/device.hpp"

#include <cmath>

#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

namespace flash::device_test {
void add(float* data, int count, float value, unsigned threads, Stream stream);
void reverse(float* data, unsigned blocks, unsigned threads, std::size_t shared_bytes);
void bad_call();
void* new_stream();
}  // namespace flash::device_test

using namespace flash;
using flash::harness::ContainsSubstring;
using flash::harness::skipped_without_gpu;

TEST_CASE("a tensor goes to the device and back") {
  if (skipped_without_gpu()) return;
  const auto host = make_input<2>({33, 7}, Pattern::kNormal, 1);
  const DeviceTensor<float, 2> on_device(host);
  const auto back = on_device.to_host();
  for (Index k = 0; k < host.size(); ++k) CHECK(back.data()[k] == host.data()[k]);
  CHECK_FALSE(device::name().empty());
  CHECK(device::l2_cache_bytes() > 0);
  DeviceTensor<float, 2> other({7, 33});
  CHECK_THROWS_AS(other.copy_from(host), ShapeError);
}

TEST_CASE("device memory is metered and can be capped") {
  if (skipped_without_gpu()) return;
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  {
    const DeviceTensor<float, 1> a({1000});
    { const DeviceTensor<float, 1> b({500}); }
    CHECK(device::memory_in_use() - before == 4000);
    CHECK(device::peak_memory() - before == 6000);
    device::set_memory_limit(before + 5000);
    CHECK_THROWS_WITH((DeviceTensor<float, 1>({500})),
                      ContainsSubstring("the device memory limit is") &&
                          ContainsSubstring("2000 more do not fit"));
    CHECK_NOTHROW((DeviceTensor<float, 1>({250})));
    device::set_memory_limit(std::nullopt);
  }
  CHECK(device::memory_in_use() == before);
  CHECK_THROWS_AS((DeviceTensor<float, 1>({Index{1} << 50})), OutOfMemory);  // a petabyte
  CHECK(device::memory_in_use() == before);
  CHECK_NOTHROW(device::release_cached_memory());
  CHECK(device::memory_info().total_bytes >= device::memory_info().free_bytes);
}

TEST_CASE("device memory holds NaN where that is asked for") {
  if (skipped_without_gpu()) return;
  {
    const DeviceTensor<float, 1> zeros(Tensor<float, 1>({1000}));
  }  // freed memory is handed out again
  device::set_poison(true);
  const DeviceTensor<float, 1> poisoned({1000});
  device::set_poison(false);
  const auto values = poisoned.to_host();
  for (Index i = 0; i < values.size(); ++i) REQUIRE(std::isnan(values.data()[i]));
}

TEST_CASE("kernels launch on a stream, with more shared memory than the default 48 KiB") {
  if (skipped_without_gpu()) return;
  const Stream stream{device_test::new_stream()};
  DeviceTensor<float, 1> data(Tensor<float, 1>({1000}));
  device_test::add(data.data(), 1000, 2.5f, 128, stream);
  device::synchronize();
  const auto added = data.to_host();
  for (Index k = 0; k < 1000; ++k) CHECK(added(k) == 2.5f);

  Tensor<float, 1> counting({64});
  for (Index k = 0; k < 64; ++k) counting(k) = static_cast<float>(k);
  DeviceTensor<float, 1> pairs(counting);
  device_test::reverse(pairs.data(), 2, 32, 64 * 1024);
  const auto reversed = pairs.to_host();
  CHECK(reversed(0) == 31);
  CHECK(reversed(32) == 63);
}

TEST_CASE("a launch that cannot be says why") {
  if (skipped_without_gpu()) return;
  DeviceTensor<float, 1> data(Tensor<float, 1>({1000}));
  CHECK_THROWS_WITH(device_test::add(data.data(), 1000, 1, 2048, {}),
                    ContainsSubstring("launch of add") && ContainsSubstring("block (2048, 1, 1)") &&
                        ContainsSubstring("a block 1 to 1024 threads"));
  CHECK_THROWS_WITH(device_test::add(data.data(), 0, 1, 128, {}),
                    ContainsSubstring("a grid holds 1 to 2147483647"));
  CHECK_THROWS_AS(device_test::reverse(data.data(), 1, 32, 10 * 1024 * 1024), Unsupported);
  CHECK_THROWS_WITH(device_test::bad_call(), ContainsSubstring("cudaSetDevice(12345)") &&
                                                 ContainsSubstring("device_test_kernels.cu:"));
  CHECK_NOTHROW(device::synchronize());  // none of these leaves an error behind
}

TEST_CASE("events measure what lies between them") {
  if (skipped_without_gpu()) return;
  device::Event start, end;
  const DeviceTensor<float, 1> data({1 << 22});
  start.record();
  for (int i = 0; i < 20; ++i) device::fill_bytes(data.data(), 0, data.bytes());
  end.record();
  end.synchronize();
  CHECK(end.milliseconds_since(start) > 0);
}
