// For the emulator, so that a file compiles that includes it and does not use it.
#pragma once

using cublasHandle_t
    [[deprecated("the emulator has no cuBLAS, and a task is written without it")]] = void*;
