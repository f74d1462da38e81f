// Small kernels, each with one planted mistake or with none. A mistake's lines are marked in the source, `// BUG name`: that is
// where the emulator has to point.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "common/simt/simt.hpp"

namespace flash::simt_corpus {

struct Specimen {
  std::string name;                            // of the kernel, as its launch says it
  std::optional<simt::FindingKind> mistake;    // none: a right kernel
  std::function<bool()> run;                   // launches it; whether the result is right (of a right kernel)
};

// The lists of corpus/NAME.cu.
FLASH_EXPORT std::vector<Specimen> races();
FLASH_EXPORT std::vector<Specimen> barriers();
FLASH_EXPORT std::vector<Specimen> warps();
FLASH_EXPORT std::vector<Specimen> memory();
FLASH_EXPORT std::vector<Specimen> async();
FLASH_EXPORT std::vector<Specimen> async_right();
FLASH_EXPORT std::vector<Specimen> right();

// Whether the corpus was built for the checks.
FLASH_EXPORT bool is_checked();

// Device memory of `count` zeros, and the same without a value.
inline DeviceTensor<float, 1> zeros(Index count) { return DeviceTensor<float, 1>(Tensor<float, 1>({count})); }
inline DeviceTensor<float, 1> unwritten(Index count) { return DeviceTensor<float, 1>({count}); }
inline DeviceTensor<int, 1> integer_zeros(Index count) { return DeviceTensor<int, 1>(Tensor<int, 1>({count})); }
// 0, 1, 2, ...
inline DeviceTensor<float, 1> counting(Index count) {
  Tensor<float, 1> host({count});
  for (Index i = 0; i < count; ++i) host(i) = static_cast<float>(i);
  return DeviceTensor<float, 1>(host);
}

}  // namespace flash::simt_corpus
