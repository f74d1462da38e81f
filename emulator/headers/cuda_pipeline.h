#error "The emulator has no cuda_pipeline.h. Use the cp.async of common/cuda/async_copy.hpp."
