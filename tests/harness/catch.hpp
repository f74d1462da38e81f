// Catch2, whichever version is installed. Tests use what versions 2 and 3 have in common, and
// ContainsSubstring from here.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace flash::harness {

// Matches text that contains `part`. Version 2 calls it Contains, which is about containers in
// version 3.
inline auto ContainsSubstring(const std::string& part) {
#if CATCH_VERSION_MAJOR >= 3
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

}  // namespace flash::harness
