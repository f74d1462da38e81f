// A library of example_task.hpp. FLASH_LEFT_OUT is what it lacks: 1 its function, 2 its last line.
#include "common/example_task.hpp"

#if FLASH_LEFT_OUT != 1
int flash::sum(int a, int b) { return a + b; }
#endif

#if FLASH_LEFT_OUT != 2
FLASH_TASK(ExampleTask)
#endif
