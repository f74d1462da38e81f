#error "The emulator has no memcpy_async(). Use the cp.async of common/cuda/async_copy.hpp."
