// CUDA's vector types with CUDA's alignments, and make_float4() and its kin.
#pragma once

// FLASH_SIMT_VECTOR(name, type of the elements, alignment of 2, of 4)
#define FLASH_SIMT_VECTOR(T, E, A2, A4)                        \
  struct T##1 {                                                \
    E x;                                                       \
  };                                                           \
  struct alignas(A2) T##2 {                                    \
    E x, y;                                                    \
  };                                                           \
  struct T##3 {                                                \
    E x, y, z;                                                 \
  };                                                           \
  struct alignas(A4) T##4 {                                    \
    E x, y, z, w;                                              \
  };                                                           \
  inline T##1 make_##T##1(E x) { return {x}; }                 \
  inline T##2 make_##T##2(E x, E y) { return {x, y}; }         \
  inline T##3 make_##T##3(E x, E y, E z) { return {x, y, z}; } \
  inline T##4 make_##T##4(E x, E y, E z, E w) { return {x, y, z, w}; }

FLASH_SIMT_VECTOR(char, signed char, 2, 4)
FLASH_SIMT_VECTOR(uchar, unsigned char, 2, 4)
FLASH_SIMT_VECTOR(short, short, 4, 8)
FLASH_SIMT_VECTOR(ushort, unsigned short, 4, 8)
FLASH_SIMT_VECTOR(int, int, 8, 16)
FLASH_SIMT_VECTOR(uint, unsigned int, 8, 16)
FLASH_SIMT_VECTOR(longlong, long long, 16, 16)
FLASH_SIMT_VECTOR(ulonglong, unsigned long long, 16, 16)
FLASH_SIMT_VECTOR(float, float, 8, 16)
FLASH_SIMT_VECTOR(double, double, 16, 16)
#undef FLASH_SIMT_VECTOR

// Extents of a grid or a block; what is not given is 1.
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
