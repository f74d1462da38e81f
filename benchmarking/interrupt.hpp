// Ctrl-C as a request: a benchmark finishes the pass it is in, shows what it has, and leaves.
#pragma once

namespace flash {

// Thrown at the next safe moment after SIGINT or SIGTERM. Not an Error: no handler of errors may swallow it.
struct Interrupted {
  int signal;
};

// From here on the first SIGINT or SIGTERM is remembered instead of ending the process; a second one ends it.
void remember_interrupts();

// The remembered signal's number, 0 when there was none.
int interrupting_signal();

// Throws Interrupted when a signal is remembered.
void throw_if_interrupted();

}  // namespace flash
