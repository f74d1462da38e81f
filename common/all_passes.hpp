// All passes that a program is linked with. The build generates the function
// (cmake/FlashRegistry.cmake).
#pragma once

#include "common/registry.hpp"

namespace flash {

Registry all_passes();

}  // namespace flash
