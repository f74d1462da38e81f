// Runs Catch2. A function of its own, because version 2 compiles its whole implementation where its session is named.
#pragma once

namespace flash::harness {
int run_catch2(int argc, char** argv);
}  // namespace flash::harness
