// What this processor can do, and what other programs take of it.
#pragma once

#include <optional>

#include "common/registry.hpp"

namespace flash {

// Multiplications and additions a second on `threads` threads together, in GFLOP/s: independent
// fused multiply-adds on registers, for about `milliseconds`, in the widest vectors that the
// processor has. dtype is kFloat32 or kFloat64.
double native_peak_gflops(DType dtype, int threads, double milliseconds);

// Bytes of such a vector.
int native_vector_bytes();

// Bytes a second that one core reads from memory, in GB/s.
double read_bandwidth_gbs();

// What other programs and other virtual machines took of the processors since it was made, from 0
// to 1; nothing where the system does not say.
class OtherPrograms {
 public:
  OtherPrograms() : start_(now()) {}
  std::optional<double> share() const;

 private:
  struct Seconds {
    double busy = 0, all = 0, own = 0;
  };
  static Seconds now();
  Seconds start_;
};

}  // namespace flash
