#include "harness/cases/far_apart.hpp"

#include <sys/mman.h>

#include "common/error.hpp"

namespace flash::harness {
namespace {

constexpr Index kFar = Index{1} << 31, kNear = Index{1} << 20, kRoom = Index{1} << 22;
constexpr std::size_t kBytes = 2 * sizeof(float) * (kFar + 2 * kRoom);

}  // namespace

FarApart::FarApart(Index apart) : apart_(apart) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = static_cast<float*>(memory);
  // In the middle, so that an offset that has become negative reads zeros, not what lies nowhere.
  next_ = memory_ + kFar + kRoom;
}

FarApart::~FarApart() {
  if (memory_ != nullptr) munmap(memory_, kBytes);
}

Verdict with_far_apart(const std::function<std::string(FarApart&)>& wrong_with, std::size_t bytes) {
  FarApart memory(kFar * static_cast<Index>(bytes) / static_cast<Index>(sizeof(float)));
  if (!memory) return {true, "not tried: no room for addresses"};
  std::string wrong;
  try {
    wrong = wrong_with(memory);
  } catch (const KernelError& error) {  // it crashed between the batches
    wrong = error.what();
  }
  if (wrong.empty()) return {true, ""};
  return {false,
          "The two batches of each tensor lie 2147483648 elements apart, so offsets need 64 bits "
          "(Index).\n" +
              wrong,
          [wrong_with]() -> Diagnosis {
            FarApart near(kNear);
            if (!near || !wrong_with(near).empty()) return {};
            return {"offsets in 32 bits",
                    "The result is right where the batches lie 1048576 elements apart, and wrong "
                    "where it is 2147483648, which 32 bits do not hold: compute offsets in Index.",
                    "offsets"};
          }};
}

}  // namespace flash::harness
