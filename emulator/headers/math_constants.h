// For the emulator: the constants that kernels use.
#pragma once

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_bit_cast(float, 0x7fffffffu)
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_bit_cast(double, 0xfff8000000000000ull)
#define CUDART_MIN_DENORM_F 0x1p-149f
#define CUDART_MAX_NORMAL_F 0x1.fffffep127f
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define CUDART_LN2_F 0.693147181f
#define CUDART_L2E_F 1.442695041f
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_TWO_TO_23_F 8388608.0f
