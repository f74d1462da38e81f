#error \
    "The emulator has no cuda_pipeline_primitives.h. Use the cp.async of common/cuda/async_copy.hpp."
