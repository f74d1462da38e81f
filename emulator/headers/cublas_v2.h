#error "The emulator has no cuBLAS, and a task is written without it."
