// What load_task() gives of a task's library, and what it says of one that is wrong.
#include "common/error.hpp"
#include "common/example_task.hpp"
#include "harness/catch.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

const std::string kFolder = FLASH_EXAMPLES;

}  // namespace

TEST_CASE("the functions of a task come from the library that is named, loaded once") {
  const TaskLibrary<ExampleTask> task{kFolder + "/libexample_task_0.so"};
  CHECK(task->sum(3, 4) == 7);
  CHECK(task.operator->() == task.operator->());
}

TEST_CASE("what is wrong with a library is said in words that tell what to do") {
  const auto load = [](const std::string& file) { load_task<ExampleTask>(kFolder + file); };
  CHECK_THROWS_WITH(load("/libexample_task_1.so"),
                    ContainsSubstring("uses sum(int, int), which it does not define"));
  CHECK_THROWS_WITH(load("/libexample_task_2.so"),
                    ContainsSubstring("the last line of the file of task example.sum must be "
                                      "FLASH_TASK(ExampleTask)"));
  CHECK_THROWS_WITH(load("/nothing.so"), ContainsSubstring("nothing.so does not load"));
  CHECK_THROWS_WITH(load_task<OtherTask>(kFolder + "/libexample_task_0.so"),
                    ContainsSubstring("has task example.sum; it must have task example.other"));
}

TEST_CASE("a task's library has the task's name, with the author and the backend behind it") {
  const TaskLibraries tasks{"/build/lib/lib", "_solution_emulated.so"};
  CHECK(tasks.library<ExampleTask>().path == "/build/lib/libexample_sum_solution_emulated.so");
}
