// The solution and the ladder's first rung as they are, but that each of their barriers, and their atomic additions, ask first
// whether they are wanted: see left_out.hpp. What both include comes before, and stays as it is.
#include "bonus/left_out.hpp"

#include "bonus_backward/given/backward_launch.hpp"
#include "bonus_backward/given/backward_tile.hpp"
#include "bonus_backward/ladder/ladder.hpp"
#include "common/cuda/device_tensor.hpp"

namespace flash::left_out {
namespace {

int barrier_left_out = -1;
bool plain_additions = false;

template <int kNumber, class Barrier>
__device__ __forceinline__ void unless_left_out(Barrier barrier) {
  if (kNumber != barrier_left_out) barrier();
}

// Under their own names, before these become macros.
__device__ __forceinline__ void block_barrier() { __syncthreads(); }
__device__ __forceinline__ void warp_barrier() { __syncwarp(); }
__device__ __forceinline__ void add(float* to, float x) {
  if (plain_additions)
    *to += x;
  else
    atomicAdd(to, x);
}

constexpr int kFirst = __COUNTER__ + 1;

}  // namespace

void leave_out(int barrier) { barrier_left_out = barrier; }
void make_additions_plain(bool plain) { plain_additions = plain; }

}  // namespace flash::left_out

#define FLASH_NUMBER (__COUNTER__ - ::flash::left_out::kFirst)
#define __syncthreads() ::flash::left_out::unless_left_out<FLASH_NUMBER>(::flash::left_out::block_barrier)
#define __syncwarp() ::flash::left_out::unless_left_out<FLASH_NUMBER>(::flash::left_out::warp_barrier)
#define atomicAdd(to, x) ::flash::left_out::add(to, x)

#include "bonus_backward/solution/flash_backward_cuda.cu"
const int flash::left_out::kBarriersOfSolution = FLASH_NUMBER;

#undef FLASH_INSTANTIATE
#undef FLASH_NUMBER
#define FLASH_NUMBER (__COUNTER__ - ::flash::left_out::kFirst - 1)  // the count above took a number too
#include "bonus_backward/ladder/1_one_pass.cu"
const int flash::left_out::kBarriers = FLASH_NUMBER;
