// CUDA's vector types with CUDA's alignments, and make_float4() and its kin.
#pragma once

#define FLASH_SIMT_VECTOR(T, element, alignment_2, alignment_4)                                     \
  struct T##1 {                                                                                     \
    element x;                                                                                      \
  };                                                                                                \
  struct alignas(alignment_2) T##2 {                                                                \
    element x, y;                                                                                   \
  };                                                                                                \
  struct T##3 {                                                                                     \
    element x, y, z;                                                                                \
  };                                                                                                \
  struct alignas(alignment_4) T##4 {                                                                \
    element x, y, z, w;                                                                             \
  };                                                                                                \
  inline T##1 make_##T##1(element x) { return {x}; }                                                \
  inline T##2 make_##T##2(element x, element y) { return {x, y}; }                                  \
  inline T##3 make_##T##3(element x, element y, element z) { return {x, y, z}; }                    \
  inline T##4 make_##T##4(element x, element y, element z, element w) { return {x, y, z, w}; }

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
