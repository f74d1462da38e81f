// How fast one core of this machine can be: no function of a board can be faster.
#pragma once

namespace flash::leaderboard {

// Multiplications and additions a second, in GFLOP/s: independent fused multiply-adds on registers,
// in the widest vectors that a student's file is compiled for.
double peak_gflops();

// Bytes a second that are read from memory, in GB/s.
double read_bandwidth();

}  // namespace flash::leaderboard
