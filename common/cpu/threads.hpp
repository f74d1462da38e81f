// Threads for the ladders on a CPU and for what measures them: a pool that stays. Starting a thread
// takes 30 us and more; a head of 512 keys is done in 300 us.
#pragma once

#include <cstddef>

#include "common/export.hpp"
#include "common/tensor.hpp"

namespace flash {

// How many threads a pass on a CPU uses: the number that was set last, else that of the environment
// variable FLASH_THREADS, else as many as the machine runs at once. Throws ArgumentError when
// FLASH_THREADS is not a whole number from 1 to 1024.
FLASH_EXPORT int host_threads();

// Throws ArgumentError unless 1 <= threads <= 1024.
FLASH_EXPORT void set_host_threads(int threads);

// Ends the threads that wait for work; the next call starts new ones.
FLASH_EXPORT void stop_threads();

// Calls body(task) once for every task from 0 to tasks - 1, those with small numbers first. Returns
// when all are done. If a call throws, no further task is begun, and one of the exceptions is
// thrown here. Throws Error when threads cannot be started. Calls from several threads wait for
// each other; body must not call this itself.
using ParallelBody = void(void* context, Index task);
FLASH_EXPORT void parallel_tasks(Index tasks, ParallelBody* body, void* context);

template <class Body>
void parallel_for(Index tasks, Body&& body) {
  parallel_tasks(
      tasks, [](void* context, Index task) { (*static_cast<Body*>(context))(task); }, &body);
}

}  // namespace flash
