// Every backward pass of the bonus in the registry, the rungs of its ladder among them.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include "bonus/backward_cases.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/needs_gpu.hpp"
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

// Two tests, for ctest to run side by side.
TEST_CASE("every rung of the ladder solves the graded cases: whole blocks") {
  if (harness::skipped_without_gpu()) return;
  part3::check_cases<harness::BackwardCall>(all_passes().backward.entries(),
                                            bonus::cases_of_a_gradient());
}

TEST_CASE("every rung of the ladder solves the graded cases: masks, ragged ends and all the rest") {
  if (harness::skipped_without_gpu()) return;
  const Registry registry = all_passes();
  part3::check_cases<harness::BackwardCall>(registry.backward.entries(),
                                            bonus::cases_of_all_gradients());
  if (!device::is_emulated())
    part3::check_cases<harness::BackwardCall>(registry.backward.entries(), bonus::long_cases());
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
  const std::set<std::string> any_order{"1_one_pass", "3_atomic_dq", "4_one_barrier",
                                        "6_wgmma_one_pass", "7_one_block_late"};
  const Registry registry = all_passes();
  const auto& first = registry.backward.find("1_one_pass", DeviceKind::kGpu);
  Random random(11);
  const auto upto = [&](Index most) { return 1 + static_cast<Index>(random.below(most)); };
  for (int n = 0; n < (device::is_emulated() ? 2 : 1000); ++n) {
    const Index longest = device::is_emulated() ? 90 : 400;
    const AttentionShape shape{upto(2), upto(3), upto(longest), upto(longest), 8 * upto(32)};
    const bool causal = n % 2 == 1;
    CAPTURE(to_string<4>(shape.of_queries()), shape.keys, causal);
    const auto check = [&](const auto& x) {
      const auto forward = x.forward(registry, {"flash", "plain"}, {.causal = causal});
      const auto want = gradients_by(first, x, forward, causal);
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
    else
      check(part3::OnDevice<BFloat16>(shape));
  }
}

TEST_CASE("a problem that a pass does not take is named") {
  const Registry registry = all_passes();
  for (const auto& entry : registry.backward.entries()) {
    const auto why_not = [&](const AttentionShape& shape) {
      return entry.why_not({shape, {}, entry.dtypes().front(), {}});
    };
    CAPTURE(entry.name);
    CHECK(why_not({1, 1, 3, 5, 64}) == "");
    if (entry.name == "plain") continue;
    CHECK_THAT(why_not({1, 1, 3, 5, 264}),
               harness::ContainsSubstring("head_dim is 264; it must be at most "));
    CHECK_THAT(why_not({1, 1, 3, Index{1} << 31, 8}),
               harness::ContainsSubstring("keys is 2147483648; it must be at most "));
  }
}
