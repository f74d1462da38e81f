#include <type_traits>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "emulator/hopper_kernels.hpp"

namespace flash::hopper_kernels {
namespace {

constexpr int kSlab = 64;  // columns of 16 bits in 128 bytes

// Where element (row, column) of a tile of so many rows lies, counted in elements.
__device__ __forceinline__ int place_in_tile(int row, int column, int rows) {
  const int chunk = column % kSlab / 8 ^ row % 8;
  return column / kSlab * rows * kSlab + row * kSlab + chunk * 8 + column % 8;
}

// ---- wgmma --------------------------------------------------------------------------------------

// a (64, kDepth) and b row by row. With kRegisters, A comes from registers; with kTransposeB, B's
// tile has b's rows (k), else its columns.
template <int N, class T, bool kRegisters, bool kTransposeB, int kDepth>
__global__ void __launch_bounds__(128, 1)
    wgmma_kernel(const T* a, const T* b, const float* c, float* d, bool from_zero) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  T* const A = reinterpret_cast<T*>(align_to_1024(shared));
  T* const B = A + 64 * kDepth;
  constexpr int kRowsOfB = kTransposeB ? kDepth : N;
  const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  for (int i = thread; i < 64 * kDepth; i += 128)
    A[place_in_tile(i / kDepth, i % kDepth, 64)] = a[i];
  for (int i = thread; i < kDepth * N; i += 128) {
    const int k = i / N, n = i % N;
    B[kTransposeB ? place_in_tile(k, n, kRowsOfB) : place_in_tile(n, k, kRowsOfB)] = b[i];
  }
  fence_proxy_async();
  __syncthreads();

  float D[N / 2];
  const auto row = [&](int i) { return 16 * warp + g + 8 * (i / 2 % 2); };
  const auto column = [&](int i) { return 8 * (i / 4) + 2 * t + i % 2; };
  FLASH_UNROLL
  for (int i = 0; i < N / 2; ++i) D[i] = c[row(i) * N + column(i)];
  std::uint32_t A_registers[kDepth / 16][4];
  FLASH_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) {
    const T* const pair = a + (16 * warp + g + 8 * (i % 2)) * kDepth + 16 * k + 2 * t + 8 * (i / 2);
    A_registers[k][i] = pair[0].bits | static_cast<std::uint32_t>(pair[1].bits) << 16;
  }
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) {
    const auto by_rows = [k](const T* tile, int rows) {
      return matrix_descriptor(tile + k / 4 * rows * kSlab + k % 4 * 16, 16, 1024);
    };
    const MatrixDescriptor b_now = kTransposeB
                                       ? matrix_descriptor(B + 16 * k * kSlab, kRowsOfB * 128, 1024)
                                       : by_rows(B, kRowsOfB);
    const bool accumulate = k > 0 || !from_zero;
    if constexpr (kRegisters)
      wgmma<N, T, kTransposeB>(D, A_registers[k], b_now, accumulate);
    else
      wgmma<N, T, kTransposeB>(D, by_rows(A, 64), b_now, accumulate);
  }
  wgmma_commit();
  wgmma_wait<0>();
  FLASH_UNROLL
  for (int i = 0; i < N / 2; ++i) d[row(i) * N + column(i)] = D[i];
}

template <class T>
DeviceTensor<T, 2> on_device(const Tensor<float, 2>& host) {
  Tensor<T, 2> values(host.shape());
  for (Index i = 0; i < host.size(); ++i) values.data()[i] = T(static_cast<double>(host.data()[i]));
  return DeviceTensor<T, 2>(values);
}

template <int N, class T, bool kRegisters, bool kTransposeB, int kDepth>
Way way(const std::string& name) {
  return {
      name, N, kDepth, [name](const auto& a, const auto& b, const auto& c) {
        const auto device_a = on_device<T>(a), device_b = on_device<T>(b);
        const DeviceTensor<float, 2> device_c(c), device_d({64, N});
        constexpr int kPaddedN = kTransposeB ? (N + kSlab - 1) / kSlab * kSlab : N;
        bool all_zero = true;  // then the products start from nothing
        for (Index i = 0; i < c.size(); ++i) all_zero = all_zero && c.data()[i] == 0;
        launch(
            name, wgmma_kernel<N, T, kRegisters, kTransposeB, kDepth>,
            {.grid = 1, .block = 128, .shared_bytes = 1024 + sizeof(T) * (64 + kPaddedN) * kDepth},
            device_a.data(), device_b.data(), device_c.data(), device_d.data(), all_zero);
        return device_d.to_host();
      }};
}

// ---- TMA ----------------------------------------------------------------------------------------

template <class T>
constexpr int kBoxColumns = kBoxBytes / static_cast<int>(sizeof(T));

struct Place {
  int column, row, head, batch;
};
Place place_of(const Shape<4>& place) {
  return {static_cast<int>(place[3]), static_cast<int>(place[2]), static_cast<int>(place[1]),
          static_cast<int>(place[0])};
}

template <class T>
__global__ void load_kernel(const __grid_constant__ TensorMap map, Place place, T* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  T* const box = reinterpret_cast<T*>(align_to_1024(shared));
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_expecting(full, kBoxRows * kBoxBytes);
    tma_load(box, map, full, place.column, place.row, place.head, place.batch);
  }
  wait(full, 0);
  for (int i = threadIdx.x; i < kBoxRows * kBoxColumns<T>; i += 32) out[i] = box[i];
}

template <class T>
__global__ void store_kernel(const __grid_constant__ TensorMap map, Place place, const T* in) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  T* const box = reinterpret_cast<T*>(align_to_1024(shared));
  for (int i = threadIdx.x; i < kBoxRows * kBoxColumns<T>; i += 32) box[i] = in[i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  tma_store(map, box, place.column, place.row, place.head, place.batch);
  tma_commit();
  tma_wait<0>();
}

}  // namespace

std::vector<Way> ways() {
  return {
      way<64, Half, false, false, 128>("SS, half, N 64"),
      way<128, BFloat16, false, false, 128>("SS, bfloat16, N 128"),
      way<16, Half, false, false, 64>("SS, half, N 16"),
      way<256, BFloat16, false, true, 64>("SS, B transposed, bfloat16, N 256"),
      way<48, Half, false, true, 128>("SS, B transposed, half, N 48"),
      way<128, Half, true, false, 64>("RS, half, N 128"),
      way<128, BFloat16, true, true, 128>("RS, B transposed, bfloat16, N 128"),
  };
}

template <class T>
Tensor<T, 2> loaded(const TensorView<const T, 4>& x, const Shape<4>& place) {
  const DeviceTensor<T, 2> out({kBoxRows, kBoxColumns<T>});
  launch("load", load_kernel<T>,
         {.grid = 1, .block = 32, .shared_bytes = 1024 + kBoxRows * kBoxBytes},
         tensor_map(x, kBoxRows), place_of(place), out.data());
  return out.to_host();
}

template <class T>
void stored(const TensorView<T, 4>& x, const Shape<4>& place, const Tensor<T, 2>& box) {
  const DeviceTensor<T, 2> in(box);
  launch("store", store_kernel<T>,
         {.grid = 1, .block = 32, .shared_bytes = 1024 + kBoxRows * kBoxBytes},
         tensor_map(x, kBoxRows), place_of(place), static_cast<const T*>(in.data()));
}

template Tensor<Half, 2> loaded(const TensorView<const Half, 4>&, const Shape<4>&);
template Tensor<float, 2> loaded(const TensorView<const float, 4>&, const Shape<4>&);
template void stored(const TensorView<Half, 4>&, const Shape<4>&, const Tensor<Half, 2>&);
template void stored(const TensorView<float, 4>&, const Shape<4>&, const Tensor<float, 2>&);

}  // namespace flash::hopper_kernels
