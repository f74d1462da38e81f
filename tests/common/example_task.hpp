// A task for task_test.cpp, with a library that is right and two that are not.
#pragma once

#include "common/task.hpp"

namespace flash {

int sum(int a, int b);

struct ExampleTask {
  static constexpr char kId[] = "example.sum";
  int (*sum)(int a, int b) = flash::sum;
};
struct OtherTask {
  static constexpr char kId[] = "example.other";
};

}  // namespace flash
