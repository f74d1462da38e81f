// Part 1's CUDA solutions with one __syncthreads() taken out (CMakeLists.txt makes the copies): the checks have to report it in
// every run, as a race between two lines that access the shared tiles. FLASH_SOURCE is the solution, whose lines are the copies'.
#include <fstream>
#include <set>

#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "common/simt/simt.hpp"
#include "harness/catch.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

using namespace flash;

namespace {

// The lines that read or write shared memory: their tiles are indexed there, or on the second line of a statement that begins there.
std::set<int> lines_with_tiles() {
  std::ifstream source(FLASH_SOURCE);
  std::set<int> lines;
  std::string text, before;
  for (int line = 1; std::getline(source, text); before = text, ++line)
    for (const char* const tile : {"V_smem[", "P_smem[", "k_tile[", "v_tile["})
      if (text.find(tile) != std::string::npos) lines.insert(!before.empty() && before.back() == '=' ? line - 1 : line);
  return lines;
}

void run() {
#ifdef FLASH_ATTENTION_1D
  const DeviceTensor<float, 1> q(make_input<1>({70}, Pattern::kNormal, 1)), k(make_input<1>({90}, Pattern::kNormal, 2)),
      v(make_input<1>({90}, Pattern::kNormal, 3)), z({70});
  attention_1d_cuda(q.view(), k.view(), v.view(), z.view(), 64, 32);
#else
  const DeviceTensor<float, 3> x(make_input<3>({1, 33, 47}, Pattern::kNormal, 1)), v(make_input<3>({1, 47, 40}, Pattern::kNormal, 2)),
      out({1, 33, 40});
  fused_softmax_matmul_cuda(x.view(), v.view(), out.view(), 32, 16);
#endif
}

}  // namespace

TEST_CASE("the missing barrier is reported in every run, with the lines that it leaves unordered") {
  const std::set<int> lines = lines_with_tiles();
  REQUIRE(lines.size() >= 4);
  for (int seed = -1; seed <= 20; ++seed) {
    simt::set_schedule(seed == -1   ? simt::Schedule{simt::Order::kForward, 1}
                       : seed == 0 ? simt::Schedule{simt::Order::kReverse, 1}
                                   : simt::Schedule{simt::Order::kRandom, static_cast<std::uint64_t>(seed)});
    std::string text;
    try {
      run();
    } catch (const KernelError& error) {
      text = error.what();
    }
    CAPTURE(seed, text);
    const std::string first = text.substr(0, text.find('\n'));
    REQUIRE(first.find(": a data race between ") != std::string::npos);
    int places = 0;
    for (std::size_t at = 0; (at = first.find(".cu:", at)) != std::string::npos; ++places) {
      at += 4;
      CHECK(lines.count(std::atoi(first.c_str() + at)) == 1);
    }
    CHECK(places == 2);
  }
}
