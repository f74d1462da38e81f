#error \
    "The emulator has no thrust, and a task is written without it. Device memory is a DeviceTensor (common/cuda/device_tensor.hpp)."
