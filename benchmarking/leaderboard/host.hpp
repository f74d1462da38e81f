// The problems of a CPU's boards.
#pragma once

#include "benchmarking/leaderboard/problem.hpp"

namespace flash::leaderboard {

std::unique_ptr<Problem> attention_on_host(const Shape<4>& sizes, bool causal);
std::unique_ptr<Problem> softmax_matmul_on_host(const Shape<4>& sizes);

}  // namespace flash::leaderboard
