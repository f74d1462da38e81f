// Formatting of what a benchmark shows.
#include <string>
#include <vector>

#include "benchmarking/screen.hpp"
#include "harness/catch.hpp"

TEST_CASE("format is printf into a string of any length") {
  CHECK(flash::format("%d and %s", 7, "text") == "7 and text");
  CHECK(flash::format("%s", std::string(1000, 'x').c_str()) == std::string(1000, 'x'));
}

TEST_CASE("tables are aligned to the right, column by column") {
  const auto lines = flash::aligned({{"d2", "ms"}, {"64", "1.25"}, {"8192", "-"}});
  CHECK(lines == std::vector<std::string>{"  d2     ms", "  64   1.25", "8192      -"});
}
