// Implements hopper_kernels.hpp.
#include <type_traits>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "simt/hopper_kernels.hpp"

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
      name, N, kDepth, std::is_same_v<T, Half> ? 10 : 7,
      [name](const auto& a, const auto& b, const auto& c) {
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

// ---- stmatrix -----------------------------------------------------------------------------------

template <int COUNT, bool TRANSPOSE>
__global__ void stmatrix_kernel(int* out) {
  __shared__ __align__(16) std::uint16_t rows[8 * COUNT][8];
  const int lane = threadIdx.x;
  std::uint32_t r[COUNT];
  FLASH_UNROLL
  for (int i = 0; i < COUNT; ++i) {
    const std::uint32_t first = 100 * lane + 2 * i;
    r[i] = first | (first + 1) << 16;
  }
  stmatrix<COUNT, TRANSPOSE>(rows[lane % (8 * COUNT)], r);
  __syncwarp();
  for (int i = lane; i < 64 * COUNT; i += 32) out[i] = rows[i / 8][i % 8];
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

template <class T, bool kAdd>
__global__ void store_kernel(const __grid_constant__ TensorMap map, Place place, const T* in) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  T* const box = reinterpret_cast<T*>(align_to_1024(shared));
  for (int i = threadIdx.x; i < kBoxRows * kBoxColumns<T>; i += 32) box[i] = in[i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if constexpr (kAdd)
    tma_add(map, box, place.column, place.row, place.head, place.batch);
  else
    tma_store(map, box, place.column, place.row, place.head, place.batch);
  tma_commit();
  tma_wait<0>();
}

// ---- a pipeline ---------------------------------------------------------------------------------

constexpr int kTileRows = 16, kStages = 2;

__global__ void __launch_bounds__(384, 1)
    column_sums_kernel(const __grid_constant__ TensorMap map, int tiles, float* sums) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = reinterpret_cast<Half*>(align_to_1024(shared));
  __shared__ Barrier full[kStages], empty[kStages];
  __shared__ float partial[2][64];
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      init(full[stage], 1);
      init(empty[stage], 2 * 4);  // one a warp
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (warpgroup == 2) {
    give_registers<24>();
    if (thread != 0) return;
    for (int n = 0; n < tiles; ++n) {
      wait(empty[n % kStages], (n / kStages % 2) ^ 1);
      arrive_expecting(full[n % kStages], kTileRows * kBoxBytes);
      tma_load(tile + n % kStages * kTileRows * kSlab, map, full[n % kStages], 0, n * kTileRows, 0,
               0);
    }
    return;
  }
  take_registers<240>();
  float sum = 0;
  for (int n = 0; n < tiles; ++n) {
    wait(full[n % kStages], n / kStages % 2);
    const Half* const rows = tile + n % kStages * kTileRows * kSlab;
    for (int row = thread / 64; row < kTileRows; row += 2)
      sum += to_float(rows[place_in_tile(row, thread % 64, kTileRows)]);
    __syncwarp();
    if (thread % 32 == 0) arrive(empty[n % kStages]);
  }
  if (thread >= 64) partial[warpgroup][thread - 64] = sum;
  // Barrier 1: warpgroup 0 is done with its part; barrier 2 + w: the warpgroup's own.
  const bool negative = any_named(2 + warpgroup, 128, sum < 0);
  if (warpgroup == 0)
    arrive_named(1, 256);
  else
    sync_named(1, 256);
  if (thread < 64) sums[warpgroup * 64 + thread] = negative ? -1 : sum + partial[warpgroup][thread];
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

std::vector<int> stored_matrices(int count, bool transpose) {
  const DeviceTensor<int, 1> out({64 * count});
  void (*const kernel)(int*) =
      count == 4 ? (transpose ? stmatrix_kernel<4, true> : stmatrix_kernel<4, false>)
                 : (transpose ? stmatrix_kernel<2, true> : stmatrix_kernel<2, false>);
  launch("stmatrix", kernel, {.grid = 1, .block = 32}, out.data());
  const auto host = out.to_host();
  return {host.data(), host.data() + host.size()};
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
void stored(const TensorView<T, 4>& x, const Shape<4>& place, const Tensor<T, 2>& box, bool add) {
  const DeviceTensor<T, 2> in(box);
  launch("store", add ? store_kernel<T, true> : store_kernel<T, false>,
         {.grid = 1, .block = 32, .shared_bytes = 1024 + kBoxRows * kBoxBytes},
         tensor_map(x, kBoxRows), place_of(place), static_cast<const T*>(in.data()));
}

template Tensor<Half, 2> loaded(const TensorView<const Half, 4>&, const Shape<4>&);
template Tensor<float, 2> loaded(const TensorView<const float, 4>&, const Shape<4>&);
template void stored(const TensorView<Half, 4>&, const Shape<4>&, const Tensor<Half, 2>&, bool);
template void stored(const TensorView<float, 4>&, const Shape<4>&, const Tensor<float, 2>&, bool);

Tensor<float, 2> column_sums(const TensorView<const Half, 4>& x) {
  const DeviceTensor<float, 2> sums({2, 64});
  launch("column_sums", column_sums_kernel,
         {.grid = 1, .block = 384, .shared_bytes = 1024 + kStages * kTileRows * kBoxBytes},
         tensor_map(x, kTileRows), static_cast<int>((x.extent(2) + kTileRows - 1) / kTileRows),
         sums.data());
  return sums.to_host();
}

}  // namespace flash::hopper_kernels
