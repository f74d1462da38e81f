// Makes the tensor maps of tensor_map.hpp.
#include "common/cuda/tensor_map.hpp"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <string>
#ifndef FLASH_SIMT
#include <cuda.h>
#endif

#include "common/checks.hpp"
#include "common/cuda/check.hpp"

namespace flash::device {
namespace {

constexpr Index kChunk = 16;  // bytes

void check_multiple(const std::string& what, Index bytes) {
  if (bytes % kChunk != 0)
    throw ArgumentError(what + " is " + std::to_string(bytes) +
                        " bytes; for TMA it must be a multiple of 16");
}

#ifndef FLASH_SIMT
// cuTensorMapEncodeTiled, asked for by name, so that nothing has to link libcuda.
auto encoder() {
  static const auto function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    FLASH_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                      cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
      throw Unsupported(
          "the driver has no cuTensorMapEncodeTiled; it must be for CUDA 12 or later");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  return function;
}
#endif

}  // namespace

TensorMap tensor_map(const void* data, BoxElement element, const Shape<4>& shape,
                     const Shape<4>& strides, int box_rows) {
  check_between("box_rows", box_rows, 1, 256);
  if (strides[3] != 1)
    throw ArgumentError("the stride of the columns is " + std::to_string(strides[3]) +
                        "; for TMA it must be 1");
  const Index size = element == BoxElement::kFloat32 ? 4 : 2;
  check_multiple("data's address modulo 16",
                 static_cast<Index>(reinterpret_cast<std::uintptr_t>(data) % kChunk));
  for (const Index extent : shape)
    if (extent == 0) return {};  // nothing is ever read; the driver has no map of it
  // From the innermost dimension out: columns, rows, heads, batch. The stride of an extent of 1 is
  // never used, so it may be anything.
  Index extents[4], bytes[4];
  for (int i = 0; i < 4; ++i) {
    extents[i] = shape[3 - i];
    bytes[i] = extents[i] == 1 && i > 0 ? kChunk : strides[3 - i] * size;
    if (i > 0) check_multiple("stride " + std::to_string(3 - i), bytes[i]);
  }

  TensorMap map{};
#ifdef FLASH_SIMT
  simt::encode_tensor_map(map.bits, data, static_cast<int>(size), extents, bytes, box_rows);
#else
  const CUtensorMapDataType type = element == BoxElement::kFloat32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : element == BoxElement::kHalf
                                       ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t dimensions[] = {cuuint64_t(extents[0]), cuuint64_t(extents[1]),
                                   cuuint64_t(extents[2]), cuuint64_t(extents[3])};
  const cuuint64_t steps[] = {cuuint64_t(bytes[1]), cuuint64_t(bytes[2]), cuuint64_t(bytes[3])};
  const cuuint32_t box[] = {cuuint32_t(kBoxBytes / size), cuuint32_t(box_rows), 1, 1};
  const cuuint32_t every[] = {1, 1, 1, 1};
  static_assert(sizeof(CUtensorMap) == sizeof(TensorMap));
  CUtensorMap encoded;
  const CUresult result =
      encoder()(&encoded, type, 4, const_cast<void*>(data), dimensions, steps, box, every,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw CudaError("cuTensorMapEncodeTiled failed with CUresult " +
                    std::to_string(static_cast<int>(result)));
  std::memcpy(&map, &encoded, sizeof map);
#endif
  return map;
}

}  // namespace flash::device
