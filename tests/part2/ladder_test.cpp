// Every pass of part 2 in the registry, the rungs of the ladder among them, on the graded problems
// and on larger ones; that the results do not depend on the number of threads; and the pool of
// threads.
#include "part2_flash_cpu/ladder/ladder.hpp"

#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/all_passes.hpp"
#include "common/attention_call.hpp"
#include "common/best_pass.hpp"
#include "common/cpu/threads.hpp"
#include "common/memory_meter.hpp"
#include "harness/catch.hpp"
#include "part2/attention_cases.hpp"

using namespace flash;
using namespace flash::harness;

namespace {

// "refused: " and why an entry does not take a pass; "" when it does.
template <class EntryOfPass, class Pass>
std::string refused(const EntryOfPass& entry, const Pass& pass) {
  const std::string why = entry.why_not(problem_of(pass));
  return why.empty() ? "" : "refused: " + why;
}

template <template <class> class Pass, class T>
void run(const Entry<Pass>& entry, const Pass<T>& pass, PassMemory& memory) {
  entry.run.template of<T>()(pass, memory);
  if (memory.deliver) std::exchange(memory.deliver, nullptr)();
}

// A problem with the oracle's results, which take longer than all passes together.
template <class T>
struct Solved {
  explicit Solved(const AttentionCase& of)
      : problem(of),
        inputs(inputs_of<T>(of, 1)),
        upstream(shared_in(of.layout, 4, normal<T>(of.shape.of_queries(), 1001))),
        forward(inputs.forward(of.options())),
        backward(inputs.backward(upstream, of.options())) {}

  AttentionCase problem;
  AttentionInputs<T> inputs;
  Tensor<T, 4> upstream;
  AttentionOracle forward;
  AttentionOracleGradients backward;
};

// A forward pass, and what is wrong with it: "" when nothing is.
template <class T>
struct Forward {
  PaddedForward<T> tensors;
  PassMemory memory;
  std::string wrong;

  Forward(const Entry<AttentionForward>& entry, const Solved<T>& solved)
      : tensors(solved.inputs, solved.problem.layout, solved.problem.options()) {
    wrong = refused(entry, tensors.pass());
    if (!wrong.empty()) return;
    run(entry, tensors.pass(), memory);
    tensors.copy_back();
    const double bound =
        output_bound<T>(solved.problem, solved.problem.shape, solved.forward.largest_score);
    wrong = tensors.damage();
    if (wrong.empty())
      wrong = wrong_in<T>(tensors.out.view(), solved.forward.out, bound, "query", 0);
    if (wrong.empty() && !entry.only_as_pair)
      wrong = wrong_lse<LseType<T>>(tensors.lse.view(), solved.forward.lse, bound, 0);
  }
};

// What is wrong with a backward pass from what a forward pass left.
template <class T>
std::string wrong_with(const Entry<AttentionBackward>& entry, Forward<T>& from,
                       const Solved<T>& solved) {
  PaddedBackward<T> tensors(solved.inputs, packed(from.tensors.out.view()),
                            packed(from.tensors.lse.view()), solved.upstream, solved.problem.layout,
                            solved.problem.options());
  if (const std::string why = refused(entry, tensors.pass()); !why.empty()) return why;
  run(entry, tensors.pass(), from.memory);
  tensors.copy_back();
  if (const std::string damage = tensors.damage(); !damage.empty()) return damage;
  // out and lse are the forward pass's own, each a bound away from the oracle's.
  const AttentionShape& shape = solved.problem.shape;
  const double largest = solved.problem.inexact(solved.forward.largest_score);
  const double bound =
      attention_gradient_bound<T>(shape, largest) + 2 * attention_output_bound<T>(shape, largest);
  const auto wrong = [&](PassTensor<T, 4>& got, const WithMagnitude& expected, const char* rows) {
    return wrong_in<T>(got.view(), expected, bound, rows, 0);
  };
  const AttentionOracleGradients& want = solved.backward;
  return gradients_text(wrong(tensors.d_q, want.d_q, "query"), wrong(tensors.d_k, want.d_k, "key"),
                        wrong(tensors.d_v, want.d_v, "key"));
}

// Sizes around those of the rungs' tiles and blocks, which are larger than the graded problems'.
std::vector<AttentionCase> larger_cases() {
  return {
      {.name = "head_dim 72: vectors and a rest", .shape = {1, 2, 130, 150, 72}},
      {.name = "several blocks of keys and queries", .shape = {2, 3, 333, 401, 32}},
      {.name = "causal: several blocks", .shape = {1, 3, 421, 421, 64}, .causal = true},
      {.name = "causal: many more queries than keys", .shape = {1, 1, 500, 90, 16}, .causal = true},
      {.name = "causal: many more keys than queries", .shape = {1, 1, 90, 500, 16}, .causal = true},
      {.name = "one head of 1000", .shape = {1, 1, 1000, 1000, 16}, .causal = true},
      {.name = "double: several blocks",
       .shape = {1, 2, 300, 333, 40},
       .causal = true,
       .type = DType::kFloat64},
      {.name = "NaN behind the diagonal",
       .shape = {1, 2, 200, 200, 24},
       .causal = true,
       .data = Data::kNaN},
  };
}

// The backward pass that goes with a forward pass: that of the same name, else the task's, which
// takes any out and lse.
AttentionNames pair_of(const Registry& registry, const std::string& forward) {
  const bool has_both = registry.backward.find_or_null(forward, DeviceKind::kCpu) != nullptr;
  return {forward, has_both ? forward : "flash"};
}

bool takes(const auto& entry, const AttentionShape& shape, const AttentionOptions& options,
           DType dtype) {
  return entry.why_not(AttentionProblem{shape, options, dtype, {}}).empty();
}

// Within the passes' predicates; counts in `taken` how many problems each takes.
template <class T>
void check_every_pass(const Registry& registry, const AttentionCase& problem,
                      std::map<std::string, int>& taken) {
  const Solved<T> solved(problem);
  for (const auto& entry : registry.forward.entries()) {
    CAPTURE(entry.name, problem.name);
    int& problems = taken[entry.name];
    if (!takes(entry, problem.shape, problem.options(), dtype_of<T>())) continue;
    ++problems;
    Forward<T> forward(entry, solved);
    CHECK(forward.wrong == "");
    if (!problem.has_gradients()) continue;
    for (const std::string& name :
         std::set<std::string>{pair_of(registry, entry.name).backward, "flash"}) {
      CAPTURE(name);
      const auto& backward = registry.backward.find(name, DeviceKind::kCpu);
      if (takes(backward, problem.shape, problem.options(), dtype_of<T>()))
        CHECK(wrong_with(backward, forward, solved) == "");
    }
  }
}

void check_every_pass(const std::vector<AttentionCase>& problems) {
  const Registry registry = with_best(all_passes());
  INFO("instruction set: " << ladder_isa());
  std::map<std::string, int> taken;
  for (const AttentionCase& problem : problems)
    part2::with_type(problem.type, [&](auto zero) {
      check_every_pass<decltype(zero)>(registry, problem, taken);
    });
  for (const auto& [name, times] : taken) {
    CAPTURE(name);
    CHECK(times > 0);
  }
}

// Puts the number of threads back.
struct SameThreadsAfterwards {
  int before = host_threads();
  ~SameThreadsAfterwards() { set_host_threads(before); }
};

bool same_bits(const TensorView<const float, 4>& a, const TensorView<const float, 4>& b) {
  return std::equal(a.data(), a.data() + a.size(), b.data(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

bool same_bits(const AttentionGradients<float>& a, const AttentionGradients<float>& b) {
  return same_bits(a.d_q.view(), b.d_q.view()) && same_bits(a.d_k.view(), b.d_k.view()) &&
         same_bits(a.d_v.view(), b.d_v.view());
}

// Inputs of one attention, float.
struct Inputs {
  AttentionInputs<float> qkv;
  Tensor<float, 4> d_out;

  explicit Inputs(const AttentionShape& shape, std::uint64_t seed = 1)
      : qkv(make_inputs<float>(shape, Data::kNormal, seed)),
        d_out(normal<float>(shape.of_queries(), 4)) {}

  Attention<float> attend(const Registry& registry, const std::string& name,
                          bool causal = false) const {
    return attend(registry, pair_of(registry, name), causal);
  }
  Attention<float> attend(const Registry& registry, const AttentionNames& names,
                          bool causal = false) const {
    return {registry, names, qkv.q.view(), qkv.k.view(), qkv.v.view(), {.causal = causal}};
  }
};

}  // namespace

// Two tests, for ctest to run side by side.
TEST_CASE("every pass is right on the graded problems") {
  std::vector<AttentionCase> problems = part2::attention_cases();
#ifdef __SANITIZE_ADDRESS__
  // Those of a tolerance are large, and their memory is laid out as that of others.
  std::erase_if(problems, [](const AttentionCase& one) { return one.tolerance.has_value(); });
#endif
  check_every_pass(problems);
}

TEST_CASE("every pass is right on larger problems") { check_every_pass(larger_cases()); }

TEST_CASE("every pass gives the same bits for any number of threads") {
  const Registry registry = all_passes();
  const SameThreadsAfterwards restore;
  const AttentionShape shape{.batch = 1, .heads = 3, .queries = 301, .keys = 280, .head_dim = 40};
  const Inputs inputs(shape);
  for (const auto& entry : registry.forward.entries())
    for (const bool causal : {false, true}) {
      if (!takes(entry, shape, {.causal = causal}, DType::kFloat32)) continue;
      CAPTURE(entry.name, causal);
      set_host_threads(1);
      auto one = inputs.attend(registry, entry.name, causal);
      const auto one_back = one.backward(inputs.d_out.view());
      for (const int threads : {2, 3, 5}) {
        set_host_threads(threads);
        auto many = inputs.attend(registry, entry.name, causal);
        CHECK(same_bits(one.out(), many.out()));
        CHECK(same_bits(one_back, many.backward(inputs.d_out.view())));
      }
    }
}

TEST_CASE("what is saved between the passes is exactly q, k, v, out and lse") {
  const SameThreadsAfterwards restore;
  set_host_threads(1);  // a thread that gets its first task late would make its memory late
  const Registry registry = all_passes();
  const AttentionShape shape{.batch = 2, .heads = 3, .queries = 40, .keys = 50, .head_dim = 24};
  const Inputs inputs(shape);
  const std::size_t queries = 2 * 3 * 40 * 24 * 4, keys = 2 * 3 * 50 * 24 * 4,
                    rows = 2 * 3 * 40 * 4, p = 2 * 3 * 40 * 50 * 4;
  using Saved = std::vector<std::pair<std::string, std::size_t>>;
  for (const auto& entry : registry.forward.entries()) {
    if (!takes(entry, shape, {}, DType::kFloat32)) continue;
    CAPTURE(entry.name);
    { (void)inputs.attend(registry, entry.name); }  // what is kept from call to call is there now
    const std::size_t in_use = host_memory::in_use();
    auto pass = inputs.attend(registry, entry.name);
    const std::size_t held = host_memory::in_use() - in_use;
    const bool standard = entry.name == "standard";
    CHECK(pass.saved() ==
          (standard
               ? Saved{{"q", queries}, {"k", keys}, {"v", keys}, {"kept", p}}
               : Saved{{"q", queries}, {"k", keys}, {"v", keys}, {"out", queries}, {"lse", rows}}));
    // Nothing else is held: out and lse, and standard attention's P; up to 4 KiB are the
    // allocator's.
    CHECK(held >= queries + rows + (standard ? p : 0));
    CHECK(held <= queries + rows + (standard ? p : 0) + 4096);

    // The backward pass reads nothing but that: another pass in between changes nothing.
    const auto first = pass.backward(inputs.d_out.view());
    const Inputs others(shape, 2);
    auto other = others.attend(registry, entry.name);
    (void)other.backward(inputs.d_out.view());
    CHECK(same_bits(first, pass.backward(inputs.d_out.view())));
  }
}

TEST_CASE("names that are not there, and passes that do not go together, are named") {
  const Registry registry = all_passes();
  const Inputs inputs({.batch = 1, .heads = 1, .queries = 4, .keys = 4, .head_dim = 4});
  std::string names;
  for (const auto& entry : registry.forward.entries())
    names += (names.empty() ? "" : ", ") + entry.name;
  CHECK(names.find("standard, flash, 1_threads, 2_vectorised") == 0);
  CHECK_THROWS_WITH(inputs.attend(registry, "flush"),
                    "pass is 'flush'; on cpu it must be one of: " + names);
  CHECK_THROWS_WITH(inputs.attend(registry, AttentionNames{"flash", "standard"}),
                    "forward is 'flash'; backward pass 'standard' reads what the forward pass of "
                    "its name keeps, so that it must be 'standard'");
}

TEST_CASE("the ladder's memory grows no faster than the sequence") {
  const Registry registry = all_passes();
  const auto shape_of = [](Index sequence) -> AttentionShape {
    return {.batch = 1, .heads = 1, .queries = sequence, .keys = sequence, .head_dim = 16};
  };
  const auto extra = [&](const std::string& name, Index sequence) {
    const Inputs inputs(shape_of(sequence));
    return host_memory::extra_bytes_of([&] {
      auto pass = inputs.attend(registry, name);
      (void)pass.backward(inputs.d_out.view());
    });
  };
  const SameThreadsAfterwards restore;
  set_host_threads(2);  // each thread has memory of its own
  for (const auto& entry : registry.forward.entries()) {
    if (entry.name == "standard" || !takes(entry, shape_of(1024), {}, DType::kFloat32)) continue;
    CAPTURE(entry.name);
    (void)extra(entry.name, 64);
    // P alone would grow by 6 KiB a row. The results take 260 bytes a row, 16 shares of d_q 1 KiB,
    // and larger blocks their part: together 1.2 KiB with g++ 12, and 2.2 KiB with clang 14.
    CHECK(extra(entry.name, 1024) <= extra(entry.name, 512) + 512 * 3072);
  }
}
