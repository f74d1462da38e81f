// Catch2 itself, for version 2 (30 s of compiling, once); a call of it, for version 3.
#define CATCH_CONFIG_RUNNER
#include "harness/catch.hpp"
//
#include "harness/catch_session.hpp"

namespace flash::harness {
int run_catch2(int argc, char** argv) { return Catch::Session().run(argc, argv); }
}  // namespace flash::harness
