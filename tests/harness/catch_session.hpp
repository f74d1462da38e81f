// Runs Catch2 on a command line; returns its exit code.
#pragma once

namespace flash::harness {
int run_catch2(int argc, char** argv);
}  // namespace flash::harness
