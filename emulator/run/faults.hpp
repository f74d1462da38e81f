// Turns a fault of a kernel (illegal address, stack overflow, division by zero) into a finding with
// its place, and host code's access to device memory into a message. Other faults go to the handler
// that was there before.
#pragma once

namespace flash::simt {

// Installs the handler, unless it is the current one already. Called by every launch and by
// cudaMalloc(): test frameworks put their own handlers in place.
void install_fault_handler();

// Gives this OS thread a stack for signal handlers: the one that overflowed cannot be used.
void use_alternate_signal_stack();

}  // namespace flash::simt
