// Every backward pass of the bonus in the registry, the rungs of its ladder among them.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bonus/backward_cases.hpp"
#include "common/best_pass.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/needs_gpu.hpp"
#include "part3/float32_cases.hpp"
#include "part3/on_device.hpp"

using namespace flash;
using harness::Data;

TEST_CASE("every pass gives the oracle's gradients, for every type, with a mask and without") {
  if (harness::skipped_without_gpu()) return;
  part3::check_pairs_of_all_types({{2, 2, 33, 66, 24}, {1, 1, 20, 40, 200}, {1, 2, 5, 0, 8}});
}

TEST_CASE("weights far below those of the key that a row sees most are right, too") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  const bool emulated = device::is_emulated();
  for (const auto& entry : registry.backward.entries())
    for (const bool causal : {false, true}) {
      const AttentionShape shape{1, 1, emulated ? 70 : 500, emulated ? 70 : 500, 64};
      if (part3::is_left_out(entry.name, registry.backward.entries().size())) continue;
      part3::check_pair<BFloat16>(registry, {"flash", entry.name}, shape, causal,
                                  Data::kLargeScores);
    }
}

namespace {

// The passes that take heads of one of these widths.
template <class... Widths>
std::vector<Entry<AttentionBackward>> passes_for(Widths... head_dims) {
  const Registry registry = device::is_emulated() ? all_passes() : with_best(all_passes());
  std::vector<Entry<AttentionBackward>> passes = registry.backward.entries();
  std::erase_if(passes,
                [&](const auto& pass) { return !(part3::takes_heads_of(head_dims, pass) || ...); });
  return passes;
}

}  // namespace

// Two tests, for ctest to run side by side.
TEST_CASE("every rung of the ladder solves the graded cases: whole blocks") {
  if (harness::skipped_without_gpu()) return;
  part3::check_cases<harness::BackwardCall>(passes_for(64), bonus::cases_of_a_gradient());
}

TEST_CASE("every rung of the ladder solves the graded cases: masks, ragged ends and all the rest") {
  if (harness::skipped_without_gpu()) return;
  auto problems = bonus::cases_of_all_gradients();
  problems.push_back(part3::narrow_case());
  part3::check_cases<harness::BackwardCall>(passes_for(64, 4), problems);
  if (!device::is_emulated())
    part3::check_cases<harness::BackwardCall>(passes_for(64), bonus::long_cases());
}

TEST_CASE("rungs for wide heads give the oracle's gradients around the edges of their tiles") {
  if (harness::skipped_without_gpu()) return;
  std::vector<Entry<AttentionBackward>> rungs = passes_for(512);
  std::erase_if(rungs, [](const auto& pass) { return pass.name == "plain"; });
  const AttentionShape two_chunks{1, 1, 1060, 70, 264};
  part3::check_cases<harness::BackwardCall>(
      rungs,
      part3::wide_cases(
          {{.name = "without weights", .shape = {1, 1, 100, 20, 400}, .without_weights = true},
           {.name = "two chunks", .shape = two_chunks, .causal = true},
           {.name = "two chunks, all seen", .shape = two_chunks},
           {.name = "one key a query", .shape = {1, 1, 20, 150, 1000}, .data = Data::kOneHot}}));
}

namespace {

// The gradients of one call.
template <class T>
struct Gradients {
  Tensor<T, 4> d_q, d_k, d_v;
};

// Nothing where the pass does not take the problem.
template <class T>
std::optional<Gradients<T>> gradients_by(const Entry<AttentionBackward>& rung,
                                         const part3::OnDevice<T>& x,
                                         const Attention<T, DeviceTensor>& forward, bool causal) {
  const DeviceTensor<T, 4> d_q(x.q.shape()), d_k(x.k.shape()), d_v(x.v.shape());
  for (const auto* tensor : {&d_q, &d_k, &d_v})
    device::fill_bytes(tensor->data(), 0xff, tensor->bytes());
  const AttentionBackward<T> pass{x.q.view(),    x.k.view(),        x.v.view(), forward.out(),
                                  forward.lse(), x.d_out.view(),    d_q.view(), d_k.view(),
                                  d_v.view(),    {.causal = causal}};
  if (!part3::is_run(rung, pass)) return std::nullopt;
  return Gradients<T>{part3::to_host(d_q.view()), part3::to_host(d_k.view()),
                      part3::to_host(d_v.view())};
}

// Whether each element is within 8 roundings of the largest number of `want`: where a key, a row or
// a product is wrong, numbers are off by about a fifth of it. 2^-12 is more than the sums in
// float32 leave where all terms cancel, as with one key.
template <class T>
bool is_close(const Tensor<T, 4>& got, const Tensor<T, 4>& want) {
  double largest = 0, worst = 0;
  for (Index i = 0; i < want.size(); ++i) {
    const double a = static_cast<double>(got.data()[i]), b = static_cast<double>(want.data()[i]);
    largest = std::max(largest, std::fabs(b));
    if (!(std::fabs(a - b) <= worst)) worst = std::fabs(a - b);  // NaN, too
  }
  return worst <= 8 * unit_roundoff<T>() * largest + 0x1p-12;
}

template <class T>
bool are_same_bits(const Tensor<T, 4>& a, const Tensor<T, 4>& b) {
  return std::memcmp(a.data(), b.data(), sizeof(T) * static_cast<std::size_t>(a.size())) == 0;
}

}  // namespace

TEST_CASE("on random shapes a rung gives the first rung's gradients, twice with the same bits") {
  if (harness::skipped_without_gpu()) return;
  // These add to dQ as their blocks come. dK and dV are sums of one block, except in rung 1.
  const std::set<std::string> any_order{"1_one_pass",       "3_atomic_dq",      "4_one_barrier",
                                        "6_wgmma_one_pass", "7_one_block_late", "9_float32_planes"};
  const Registry registry = all_passes();
  const auto& first = registry.backward.find("1_one_pass", DeviceKind::kGpu);
  const auto& plain = registry.backward.find("plain", DeviceKind::kGpu);
  Random random(11);
  const auto upto = [&](Index most) { return 1 + static_cast<Index>(random.below(most)); };
  for (int n = 0; n < (device::is_emulated() ? 3 : 1000); ++n) {
    const Index longest = device::is_emulated() ? 90 : 400;
    const bool is_wide = n % 5 == 4;  // not emulated: these rungs have a test above
    const AttentionShape shape{upto(2), upto(3), upto(longest), upto(longest),
                               8 * (is_wide ? 32 + upto(96) : upto(32))};
    const auto& reference = is_wide ? plain : first;
    const bool causal = n % 2 == 1;
    CAPTURE(to_string<4>(shape.of_queries()), shape.keys, causal);
    const auto check = [&](const auto& x) {
      const auto forward = x.forward(registry, {"flash", "plain"}, {.causal = causal});
      const auto want = gradients_by(reference, x, forward, causal);
      REQUIRE(want);
      for (const auto& rung : registry.backward.entries()) {
        if (!std::isdigit(static_cast<unsigned char>(rung.name.front()))) continue;
        const auto got = gradients_by(rung, x, forward, causal);
        if (!got) continue;
        CAPTURE(rung.name);
        CHECK(is_close(got->d_q, want->d_q));
        CHECK(is_close(got->d_k, want->d_k));
        CHECK(is_close(got->d_v, want->d_v));
        if (rung.name == first.name) continue;
        const auto again = gradients_by(rung, x, forward, causal);
        CHECK((any_order.count(rung.name) != 0 || are_same_bits(got->d_q, again->d_q)));
        CHECK(are_same_bits(got->d_k, again->d_k));
        CHECK(are_same_bits(got->d_v, again->d_v));
      }
    };
    if (n % 3 == 0)
      check(part3::OnDevice<Half>(shape));
    else if (n % 3 == 2)
      check(part3::OnDevice<float>(shape));
    else
      check(part3::OnDevice<BFloat16>(shape));
  }
}

TEST_CASE(
    "float32: the error is below the bound for numbers of any sizes, and mostly as good as FFMA") {
  if (harness::skipped_without_gpu()) return;
  std::vector<AttentionShape> shapes{{1, 1, 70, 150, 64}, {1, 1, 40, 70, 128}};
  if (!device::is_emulated())
    shapes.insert(shapes.end(), {{1, 1, 1000, 3000, 64}, {1, 1, 1000, 3000, 128}});
  const Registry registry = all_passes();
  for (const AttentionShape& shape : shapes)
    for (const part3::Float32Case& one : part3::float32_cases()) {
      const AttentionOptions options = one.options(shape, shape.head_dim == 128);
      const part3::Float32Inputs x = one.inputs(shape);
      const harness::AttentionInputs<float> inputs{x[0], x[1], x[2]};
      const auto forward = inputs.forward(options);
      const auto want = inputs.backward(x[3], options);
      const DeviceTensor<float, 4> q(x[0]), k(x[1]), v(x[2]), d_out(x[3]), d_q(x[0].shape()),
          d_k(x[1].shape()), d_v(x[1].shape()), out(harness::converted<float>(forward.out.value));
      const DeviceTensor<float, 3> lse(harness::converted<float>(forward.lse));
      const AttentionBackward<float> pass{q.view(),   k.view(),     v.view(),   out.view(),
                                          lse.view(), d_out.view(), d_q.view(), d_k.view(),
                                          d_v.view(), options};
      std::array<double, 3> of_ffma{};
      for (const auto& entry : registry.backward.entries()) {
        if (entry.name == "plain" || !entry.run.float32 || !part3::is_run(entry, pass)) continue;
        CAPTURE(entry.name, one.name, to_string<4>(shape.of_keys()));
        const auto got_q = part3::to_host(d_q.view()), got_k = part3::to_host(d_k.view()),
                   got_v = part3::to_host(d_v.view());
        CHECK(harness::wrong_gradients<float>(
                  {.shape = shape, .causal = options.causal, .scale = options.scale},
                  {x[0].view(), x[1].view(), x[2].view(), {}, {}, x[3].view()}, got_q.view(),
                  got_k.view(), got_v.view()) == "");
        const std::array errors{part3::error(got_q, want.d_q), part3::error(got_k, want.d_k),
                                part3::error(got_v, want.d_v)};
        if (entry.name == "flash") of_ffma = errors;
        const bool of_many = one.name.find("element") == std::string::npos;
        for (int i = 0; of_many && i < 3; ++i) {
          CAPTURE(i, errors[i], of_ffma[i]);
          // Two planes of half have two bits less than float32. FFMA loses more in long sums.
          CHECK(errors[i] <= 1.5 * of_ffma[i]);
        }
      }
    }
}

TEST_CASE("a problem that a pass does not take is named") {
  const Registry registry = all_passes();
  for (const auto& entry : registry.backward.entries()) {
    const auto why_not = [&](const AttentionShape& shape) {
      return entry.why_not({shape, {}, entry.dtypes().front(), {}});
    };
    CAPTURE(entry.name);
    const auto takes = [&](Index head_dim) { return why_not({1, 1, 3, 5, head_dim}).empty(); };
    const bool is_wide = entry.name != "plain" && takes(512);
    const Index width = is_wide ? 512 : takes(64) ? 64 : 4;
    CHECK(why_not({1, 1, 3, 5, width}) == "");
    if (is_wide) CHECK(why_not({1, 1, 3, 5, 64}) == "head_dim is 64; it must be above 256");
    if (entry.name == "plain") continue;
    CHECK_THAT(why_not({1, 1, 3, 5, 1032}),
               harness::ContainsSubstring("head_dim is 1032; it must be at most "));
    CHECK_THAT(why_not({1, 1, 3, Index{1} << 31, width}),
               harness::ContainsSubstring("keys is 2147483648; it must be at most "));
  }
}
