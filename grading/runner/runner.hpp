// What the runner of each task defines: how its function is called.
#pragma once

#include <string>
#include <vector>

#include "common/tensor.hpp"
#include "grading/judge/protocol.hpp"

namespace flash::grading {

// The functions of the student's library, by their names in it. Exits where one is missing.
void* symbol(const char* mangled_name);
template <class Function>
Function* function(const char* mangled_name) {
  return reinterpret_cast<Function*>(symbol(mangled_name));
}

// A view of a tensor of the call, in the memory that the judge sent.
template <class T, int Rank>
TensorView<T, Rank> view(const Message& call, void* memory, int number) {
  const Placed& placed = call.placed[number];
  Shape<Rank> shape, strides;
  for (int axis = 0; axis < Rank; ++axis) {
    shape[axis] = placed.shape[axis];
    strides[axis] = placed.strides[axis];
  }
  return {reinterpret_cast<T*>(static_cast<char*>(memory) + placed.offset), shape, strides};
}

// Asks the judge for something, as a callback; throws what the judge says that it throws.
double ask_judge(Callback what);

// The message of the measurement that the judge's last configuration gave.
std::string judges_message();

// Runs one call, and puts what it returns into `done`. Each runner defines it. The memory is the
// host's, or where the judge said kMapDevice a device's.
void run(const Message& call, void* memory, Message& done);

// ---- In host.cpp, emulator.cpp and gpu.cpp ------------------------------------------------------

// What a call costs that does nothing.
void run_nothing();

// Maps device memory that the judge made; without a descriptor it is that of the call before. Exits
// where this runner has no device.
void* mapped_on_device(int descriptor, std::size_t bytes);

// What the emulator has against the kernels of this call, "" elsewhere.
std::string finding();

// Called before the library is loaded, and before the kernel is told what this process may do.
// Returns the system calls that are needed beyond those of arithmetic.
std::vector<unsigned> prepared_for(const char* library);

}  // namespace flash::grading
