// What CUDA's language allows beside the plain forms: declaration specifiers, variables of the
// device, warp operations on several lines, a heap. Right kernels, and mistakes with the same.
#include <mma.h>  // first, since it has to bring half and bfloat16 by itself

#include <cstdio>
#include <type_traits>

#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

RIGHT(static_shared, ({1, 32}, IS(31 - i), counting(32), result(32)), const float* x, float* out) {
  static __shared__ float tile[32];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[31 - threadIdx.x];
}

struct Pair {
  float first, second;
  __device__ Pair() {}
};
RIGHT(shared_type_with_a_constructor, ({1, 32}, IS(32 - i), counting(32), result(32)),
      const float* x, float* out) {
  __shared__ Pair pairs[32];
  pairs[threadIdx.x].first = x[threadIdx.x];
  pairs[threadIdx.x].second = 1;
  __syncthreads();
  out[threadIdx.x] = pairs[31 - threadIdx.x].first + pairs[threadIdx.x].second;
}

RIGHT(specifiers_in_any_order,
      ({1, 32}, IS(i + (31 - i / 4 * 4) + 31 - i), counting(32), result(32)), const float* x,
      float* out) {
  __shared__ alignas(16) float first[32];
  alignas(float4) static __shared__ float second[32];
  float volatile __shared__ third[32];
  __device__ __shared__ __align__(8) float fourth[32];
  const unsigned i = threadIdx.x;
  first[i] = x[i];
  second[31 - i] = x[i];
  third[i] = x[i];
  fourth[i] = third[i];
  __syncthreads();
  const float4 quad = reinterpret_cast<const float4*>(first)[i / 4];
  const float of_four = i % 4 == 0 ? quad.x : i % 4 == 1 ? quad.y : i % 4 == 2 ? quad.z : quad.w;
  out[i] = of_four + reinterpret_cast<const float4*>(second)[i / 4].x + fourth[31 - i];
}
__shared__ float of_the_file[32];
__launch_bounds__(32)
    RIGHT(shared_outside_of_a_function, ({1, 32}, IS(31 - i), counting(32), result(32)),
          const float* x, float* out) {
  of_the_file[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = of_the_file[31 - threadIdx.x];
}

// A constructor that writes: nvcc refuses it, and here it does not run.
MISTAKE(kUninitialized, reads_what_no_constructor_wrote, ({1, 32}, zeros(32)), float* out) {
  __shared__ Pair pairs[32];
  pairs[threadIdx.x].first = 1;
  out[threadIdx.x] = pairs[threadIdx.x].first + pairs[threadIdx.x].second;  // BUG
}

__device__ unsigned tickets;
static __device__ float sums_of_blocks[64];
__device__ __managed__ int calls_of_a_kernel = 3;
__constant__ float weights[4] = {1, 2, 3, 4};

// The last block adds up what all have written.
template <bool FENCED>
__device__ void last_block_adds_up(float* out) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    sums_of_blocks[blockIdx.x] = static_cast<float>(blockIdx.x) * weights[1];
    if (FENCED) __threadfence();
    const unsigned ticket = atomicInc(&tickets, gridDim.x);
    is_last = ticket == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  float sum = 0;
  for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) sum += sums_of_blocks[b];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  if (threadIdx.x == 0) {
    *out = sum;
    tickets = 0;
  }
}
RIGHT(ticket_of_the_device, ({40, 32}, IS(2 * 39 * 40 / 2), result(1)), float* out) {
  last_block_adds_up<true>(out);
}

template <class T>
__device__ T doubled(T x);
__maxnreg__(64) RIGHT(variables_keep_their_values, ({1, 32}, IS(2 * i), counting(32), result(32)),
                      const float* x, float* out) {
  __shared__ int before;
  if (threadIdx.x == 0) before = atomicAdd(&calls_of_a_kernel, 1);
  __syncthreads();
  out[threadIdx.x] = doubled(x[threadIdx.x]) * weights[before - before] + 0 * sums_of_blocks[0];
}
template <class T>
__device__ __forceinline__ T doubled(T x) {
  return 2 * x;
}

__device__ float of_all[32];
MISTAKE(kRace, writes_a_device_variable, ({1, 32}, zeros(32)), float* out) {
  of_all[threadIdx.x / 2] = 1;             // BUG
  out[threadIdx.x] = of_all[threadIdx.x];  // BUG
}

__device__ int not_atomic;
MISTAKE(kRace, counts_without_an_atomic, ({1, 64}, zeros(64)), int* out) {
  if (threadIdx.x % 32 == 0) not_atomic += 1;  // BUG
  __syncthreads();
  out[threadIdx.x] = not_atomic;  // BUG
}

__device__ float partials[64];
__device__ unsigned unfenced_tickets;
MISTAKE(kRace, device_ticket_without_a_fence, ({4, 1}, zeros(1)), float* out) {
  partials[blockIdx.x] = 1;  // BUG
  if (atomicAdd(&unfenced_tickets, 1u) % gridDim.x != gridDim.x - 1) return;
  float sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += partials[b];  // BUG
  *out = sum;
}

MISTAKE(kOutOfBounds, past_a_device_array, ({1, 32}, zeros(32)), float* out) {
  partials[threadIdx.x + 33] = out[threadIdx.x];  // BUG
}

// PTX asks for the same operation and the same mask, not for the same line.
RIGHT(votes_on_two_lines, ({1, 32}, IS(7), result(32)), unsigned* out) {
  unsigned odd, sum, of_zero;
  if (threadIdx.x % 2 == 0)
    odd = __ballot_sync(kAllLanes, 0);
  else
    odd = __ballot_sync(kAllLanes, 1);
  if (threadIdx.x < 16) {
    sum = __reduce_add_sync(kAllLanes, threadIdx.x);
    of_zero = __shfl_sync(kAllLanes, threadIdx.x + 7, 0);
  } else {
    sum = __reduce_add_sync(kAllLanes, 1u);
    of_zero = __shfl_sync(kAllLanes, 0u, 0);
  }
  out[threadIdx.x] = (odd == 0xaaaaaaaau) + 2 * (sum == 120 + 16) + 4 * (of_zero == 7);
}

RIGHT(syncwarp_on_two_lines, ({1, 32}, IS(31 - i), result(32)), int* out) {
  __shared__ int from_low[16], from_high[16];
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < 16) {
    from_low[lane] = lane;
    __syncwarp();
    out[lane] = from_high[15 - lane];
  } else {
    from_high[lane - 16] = lane;
    __syncwarp();
    out[lane] = from_low[31 - lane];
  }
}

RIGHT(crossed_shuffles, ({1, 32}, IS(i < 16 ? 2 : 1), result(32)), float* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1.0f, 16);
  else
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 2.0f, 16);
}

MISTAKE(kWarpMismatch, up_meets_down, ({1, 32}, zeros(32)), int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (value < 16)
    value = __shfl_up_sync(kAllLanes, value, 1);  // BUG
  else
    value = __shfl_down_sync(kAllLanes, value, 1);  // BUG
  out[threadIdx.x] = value;
}

MISTAKE(kWarpMismatch, any_meets_all, ({1, 32}, zeros(32)), int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __any_sync(kAllLanes, 1);  // BUG
  else
    out[threadIdx.x] = __all_sync(kAllLanes, 1);  // BUG
}

RIGHT(heap_of_a_kernel, ({1, 32}, IS(31 - i), counting(32), result(32)), const float* x,
      float* out) {
  __shared__ float* of_block;
  if (threadIdx.x == 0) of_block = static_cast<float*>(malloc(32 * sizeof(float)));
  __syncthreads();
  float* const mine = new float[2];
  mine[0] = x[threadIdx.x];
  of_block[threadIdx.x] = mine[0];
  delete[] mine;
  __syncthreads();
  out[threadIdx.x] = of_block[31 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) free(of_block);
}

MISTAKE(kOutOfBounds, past_the_heap, ({1, 32}, zeros(32)), float* out) {
  float* const mine = static_cast<float*>(malloc(8 * sizeof(float)));
  mine[8] = 1;  // BUG
  out[threadIdx.x] = mine[8];
  free(mine);
}

MISTAKE(kUninitialized, reads_new_memory, ({1, 32}, zeros(32)), float* out) {
  float* const mine = new float[2];
  mine[1] = 1;
  out[threadIdx.x] = mine[0];  // BUG
  delete[] mine;
}

MISTAKE(kRace, races_on_the_heap, ({1, 32}, zeros(32)), float* out) {
  __shared__ float* of_block;
  if (threadIdx.x == 0) of_block = new float[32];
  __syncthreads();
  of_block[threadIdx.x] = 1;                      // BUG
  out[threadIdx.x] = of_block[31 - threadIdx.x];  // BUG
}

// Nobody uses the fourth number, and nobody wrote it.
MISTAKE(kUninitialized, reads_padding, ({1, 32}, zeros(32)), float* out) {
  __shared__ float4 quads[32];
  quads[threadIdx.x].x = quads[threadIdx.x].y = quads[threadIdx.x].z = 1;
  __syncthreads();
  const float4 quad = quads[31 - threadIdx.x];  // BUG
  out[threadIdx.x] = quad.x + quad.y + quad.z;
}

// d = a b + c; c is added element by element, wherever the fragments have it.
template <class Element, class Value, int M, int N, int K, class OfA, class OfB>
__global__ void product(const Value* a, const Value* b, const float* c, float* d) {
  namespace wmma = nvcuda::wmma;
  wmma::fragment<wmma::matrix_a, M, N, K, Element, OfA> A;
  wmma::fragment<wmma::matrix_b, M, N, K, Element, OfB> B;
  wmma::fragment<wmma::accumulator, M, N, K, float> C, D;
  wmma::load_matrix_sync(A, a, std::is_same_v<OfA, wmma::row_major> ? K : M);
  wmma::load_matrix_sync(B, b, std::is_same_v<OfB, wmma::row_major> ? N : K);
  wmma::load_matrix_sync(C, c, N, wmma::mem_row_major);
  wmma::fill_fragment(D, 0.0f);
  wmma::mma_sync(D, A, B, D);
  for (int i = 0; i < D.num_elements; ++i) D.x[i] += C.x[i];
  wmma::store_matrix_sync(d, D, N, wmma::mem_row_major);
}
template <class Element, class Value, int M, int N, int K, class OfA, class OfB>
bool multiplies() {
  const auto expected = [](Index n) {
    Index sum = n;
    for (Index k = 0, i = n / N, j = n % N; k < K; ++k)
      sum += (std::is_same_v<OfA, nvcuda::wmma::row_major> ? i * K + k : k * M + i) *
             (std::is_same_v<OfB, nvcuda::wmma::row_major> ? k * N + j : j * K + k);
    return sum;
  };
  return gives("product", product<Element, Value, M, N, K, OfA, OfB>, {1, 32}, expected,
               counting(M * K), counting(K * N), counting(M * N), result(M * N))();
}
const Listed product_listed(Group::kRight, "product", __FILE__, std::nullopt, [] {
  using Rows = nvcuda::wmma::row_major;
  using Columns = nvcuda::wmma::col_major;
  return multiplies<half, half, 16, 16, 16, Rows, Rows>() &&
         multiplies<half, half, 16, 16, 16, Columns, Rows>() &&
         multiplies<half, half, 32, 8, 16, Rows, Columns>() &&
         multiplies<half, half, 8, 32, 16, Rows, Rows>() &&
         multiplies<__nv_bfloat16, __nv_bfloat16, 16, 16, 16, Rows, Columns>() &&
         multiplies<nvcuda::wmma::precision::tf32, float, 16, 16, 8, Rows, Columns>();
});

// Numbers of 16 bits add atomically, are exchanged by lanes, and lie in shared memory.
template <class Number, class Pair>
__device__ bool meet(int lane) {
  __shared__ Number sum, stored[32];
  __shared__ Pair sums;
  stored[lane] = lane;
  if (lane == 0) sum = 0, sums = Pair(0, 0);
  __syncthreads();
  atomicAdd(&sum, Number(1));
  atomicAdd(&sums, Pair(1, 2));
  Number step = lane;
  const Number before = step--;
  const Pair crossed = __shfl_xor_sync(kAllLanes, Pair(lane, -lane), 1);
  __syncthreads();
  return sum == Number(32) && sums == Pair(32, 64) && crossed == Pair(lane ^ 1, -(lane ^ 1)) &&
         stored[31 - lane] == Number(31 - lane) && ++step == before && before == Number(lane);
}
RIGHT(numbers_of_16_bits, ({1, 32}, IS(7), result(32)), int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const float constants[] = {CUDART_MAX_NORMAL_FP16,
                             CUDART_INF_FP16,
                             CUDART_MAX_NORMAL_BF16,
                             static_cast<half>(__nv_bfloat16(1e6f)),
                             static_cast<__nv_bfloat16>(half(0x1.ffcp0f)),
                             __half22float2(__floats2half2_rn(1, 3)).y,
                             __high2bfloat16(__bfloat162bfloat162(5))};
  out[lane] =
      meet<half, half2>(lane) + 2 * meet<__nv_bfloat16, __nv_bfloat162>(lane) +
      4 * (constants[0] == 65504 && constants[1] == INFINITY && constants[2] == 0x1.fep127f &&
           constants[3] == INFINITY && constants[4] == 2 && constants[5] == 3 && constants[6] == 5);
}

RIGHT(printf_counts_its_values, ({1, 32}, IS(2), result(32)), float* out) {
  out[threadIdx.x] = static_cast<float>(printf("%s%.0s", "", "x"));
}

const Listed managed_listed(Group::kRight, "managed", __FILE__, std::nullopt, [] {
  const int before = calls_of_a_kernel;
  const bool is_right = gives("variables_keep_their_values", variables_keep_their_values, {1, 32},
                              IS(2 * i), counting(32), result(32))();
  return is_right && calls_of_a_kernel == before + 1;
});

}  // namespace
}  // namespace flash::simt_corpus
