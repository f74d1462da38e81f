// Ctrl-C as a request. See interrupt.hpp.
#include "benchmarking/interrupt.hpp"

#include <csignal>

namespace flash {
namespace {

volatile std::sig_atomic_t remembered = 0;

void remember(int signal) { remembered = signal; }

}  // namespace

void remember_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember;
  // SA_RESETHAND: whoever does not want to wait for a long pass presses ctrl-C again.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupting_signal() { return remembered; }

void throw_if_interrupted() {
  if (remembered != 0) throw Interrupted{remembered};
}

}  // namespace flash
