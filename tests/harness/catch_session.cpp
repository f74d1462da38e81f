// Starts Catch2: by its session, or by the main() of a compiled version 2 (see
// cmake/FlashCatch.cmake).
#include "harness/catch_session.hpp"

#ifdef FLASH_CATCH2_MAIN
extern "C" int FLASH_CATCH2_MAIN(int argc, char** argv);
#else
#define CATCH_CONFIG_RUNNER
#include "harness/catch.hpp"
#endif

namespace flash::harness {

int run_catch2(int argc, char** argv) {
#ifdef FLASH_CATCH2_MAIN
  return FLASH_CATCH2_MAIN(argc, argv);
#else
  return Catch::Session().run(argc, argv);
#endif
}

}  // namespace flash::harness
