#include "common/cpu/threads.hpp"

#include <vector>

#include "common/error.hpp"
#include "harness/catch.hpp"

using namespace flash;

TEST_CASE("tasks run once each, and what one throws arrives") {
  const int before = host_threads();
  for (const int threads : {1, 2, 4}) {
    set_host_threads(threads);
    std::vector<int> runs(1000);
    parallel_for(1000, [&](Index task) { ++runs[static_cast<std::size_t>(task)]; });
    CHECK(runs == std::vector<int>(1000, 1));
    CHECK_THROWS_WITH(parallel_for(100,
                                   [](Index task) {
                                     if (task == 7) throw Error("seven");
                                   }),
                      "seven");
    CHECK_NOTHROW(parallel_for(0, [](Index) { throw Error("nobody calls this"); }));
  }
  CHECK_THROWS_WITH(set_host_threads(0), "threads is 0; it must be 1 to 1024");
  set_host_threads(before);
}
