#error "The emulator has no cub, and a task is written without it. Sums and maxima of a warp are in common/cuda/warp.hpp."
