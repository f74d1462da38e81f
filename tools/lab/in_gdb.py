"""Runs inside gdb, for `./lab debug`: `$threadIdx`, `$blockIdx`, `$blockDim` and `$gridDim` are
those of the emulated thread in which the program has stopped.

They are made anew at each stop, because the emulator runs all threads of a block in one thread of
the system.
"""

import gdb  # gdb's own module

stops = 0


def name_the_thread(event: object) -> None:
    global stops
    stops += 1
    for name in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
        try:
            value = gdb.parse_and_eval(f"flash_simt_{name}")
        except gdb.error:  # a task in C++
            return
        gdb.set_convenience_variable(name, value)


def say_that_it_ended(event: object) -> None:
    if stops < 2:  # the first one is in main()
        print("The case ended before it came to your code, or to that block and thread.")


gdb.events.stop.connect(name_the_thread)
gdb.events.exited.connect(say_that_it_ended)
