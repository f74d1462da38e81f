// Each mistake that the harness names has a program in tests/wrong/ and a hint, and what these name
// is a mistake that the harness knows. A program that reads head 0 of k stands for all tensors.
#include "harness/diagnosis/mistakes.hpp"

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "harness/catch.hpp"
#include "part3/own_mistakes.hpp"

namespace flash::harness {
namespace {

using Names = std::set<std::string>;

std::string text_of(const std::string& file) {
  std::ifstream in(std::string(FLASH_TESTS) + "/" + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Without the names of tensors.
std::string family(const std::string& name) {
  static const std::regex tensor("\\b(dQ|dK|dV|d_q|d_k|d_v|d_out|out|lse|q|k|v|x)\\b"),
      several("X( and X)+");
  return std::regex_replace(std::regex_replace(name, tensor, "X"), several, "X");
}

// Every mistake, in problems where each is different from what is right.
std::vector<Mistake> all_mistakes() {
  const AttentionShape shape{2, 2, 5, 7, 4};
  const auto of_queries = [&] { return SeenTensor{Tensor<double, 4>(shape.of_queries())}; };
  const auto of_keys = [&] { return SeenTensor{Tensor<double, 4>(shape.of_keys())}; };
  const auto with_strides = [&](SeenTensor tensor) {
    tensor.by_others = {{"", tensor.values}, {"k", tensor.values}};
    return tensor;
  };
  const Precision precision{1e-6, std::numeric_limits<double>::max()};
  std::vector<Mistake> all;
  const auto add = [&](const auto& seen) {
    for (const Mistake& mistake : mistakes_of(seen)) all.push_back(mistake);
  };
  for (const bool causal : {false, true}) {
    const AttentionOptions options{.causal = causal, .scale = causal ? -0.5 : 0.5};
    SeenForward forward{
        .shape = shape,
        .options = options,
        .q = with_strides(of_queries()),
        .k = of_keys(),
        .v = of_keys(),
        .out = Tensor<double, 4>(shape.of_queries()),
        .lse = Tensor<double, 3>(shape.of_rows()),
        .misplaced = {{Output::kOut, "out", "", {}}, {Output::kOut, "out", "q", {}}},
        .precision = precision,
        .own_mistakes = part3::own_mistakes};
    add(forward);
    forward.has_scores = true;
    add(forward);
    add(SeenBackward{.shape = shape,
                     .options = options,
                     .q = of_queries(),
                     .k = of_keys(),
                     .v = of_keys(),
                     .out = of_queries(),
                     .d_out = of_queries(),
                     .d_q = Tensor<double, 4>(shape.of_queries()),
                     .d_k = Tensor<double, 4>(shape.of_keys()),
                     .d_v = Tensor<double, 4>(shape.of_keys()),
                     .precision = precision});
  }
  return all;
}

Names without(Names some, const Names& others) {
  for (const std::string& name : others) some.erase(name);
  return some;
}

}  // namespace

TEST_CASE("each mistake has a program, and each program's name a mistake") {
  Names known, programs;
  for (const Mistake& mistake : all_mistakes()) known.insert(family(mistake.name));
  known.insert({"grid and block exchanged",              // harness/judge/graded_main.cpp
                "offsets in 32 bits",                    // harness/cases/far_apart.cpp
                "loss of precision",                     // harness/diagnosis/diagnosis.cpp
                "index too small", "stride of 0",        // there, too
                "memory that nobody wrote",              // there, too
                "weights of P_smem in another order"});  // part1/softmax_matmul_cases.cpp
  const std::regex named("named = \"(.*)\"");
  for (const std::string task :
       {"attention_1d", "flash_backward", "flash_backward_cuda", "flash_forward",
        "flash_forward_cuda", "fused_cpu", "fused_cuda"}) {
    const std::string text = text_of("wrong/" + task + ".toml");
    for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at)
      programs.insert(family((*at)[1]));
  }
  CHECK(without(known, programs) == Names{});
  CHECK(without(programs, known) == Names{});
}

TEST_CASE("each kind of mistake has a hint, and each hint a mistake") {
  Names kinds{"launch", "offsets", "precision", "slices", "unwritten"}, hints;
  kinds.insert({"groups", "last-queries", "pages", "parts"});  // of decoding
  for (const Mistake& mistake : all_mistakes()) kinds.insert(mistake.kind);
  const std::string text = text_of("harness/diagnosis/hints.toml");
  const std::regex entry("([\\w-]+) = \"\"\"");
  for (std::sregex_iterator at(text.begin(), text.end(), entry), end; at != end; ++at)
    hints.insert((*at)[1]);
  CHECK(kinds == hints);
}

}  // namespace flash::harness
