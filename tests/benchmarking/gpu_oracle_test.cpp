// The oracle of the GPU's boards gives what the oracle of common/ gives, and finds every mistake.
#include "benchmarking/leaderboard/gpu_oracle.hpp"

#include <cmath>

#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

namespace flash::leaderboard {
namespace {

// The largest difference, beside the largest value.
template <class T>
double difference(const DeviceTensor<T, 1>& got, const double* want) {
  const Tensor<T, 1> host = got.to_host();
  double largest = 0, off = 0;
  for (Index i = 0; i < host.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    off = std::max(off, std::fabs(static_cast<double>(host(i)) - want[i]));
  }
  return off / largest;
}

void check_same(const Wanted& got, const WithMagnitude& want) {
  CHECK(difference(got.value, want.value.data()) < 1e-12);
  CHECK(difference(got.magnitude, want.magnitude.data()) < 1e-5);
}

template <class T>
void check_attention(const AttentionShape& shape, bool causal, Index rows = 0) {
  const Tensor<T, 4> q = normal<T>(shape.of_queries(), 1), k = normal<T>(shape.of_keys(), 2),
                     v = normal<T>(shape.of_keys(), 3), d_out = normal<T>(shape.of_queries(), 4);
  const AttentionOptions options{.causal = causal};
  const auto forward = attention_oracle<T>(q.view(), k.view(), v.view(), options);
  const auto backward =
      attention_backward_oracle<T>(q.view(), k.view(), v.view(), d_out.view(), options);
  GpuOracle<T> oracle(shape.batch * shape.heads, {1, 1, shape.queries, shape.keys, shape.head_dim},
                      causal, true, rows);
  const DeviceTensor<T, 4> on_device[] = {DeviceTensor<T, 4>(q), DeviceTensor<T, 4>(k),
                                          DeviceTensor<T, 4>(v), DeviceTensor<T, 4>(d_out)};
  oracle.compute(on_device[0].data(), on_device[1].data(), on_device[2].data(),
                 on_device[3].data());
  check_same(oracle.out, forward.out);
  CHECK(difference(oracle.lse.value, forward.lse.data()) < 1e-12);
  const std::vector<double>& scores = oracle.largest_scores;
  CHECK(std::fabs(*std::max_element(scores.begin(), scores.end()) / forward.largest_score - 1) <
        1e-5);
  check_same(oracle.d_q, backward.d_q);
  check_same(oracle.d_k, backward.d_k);
  check_same(oracle.d_v, backward.d_v);
}

}  // namespace

TEST_CASE("the GPU's oracle of attention is that of common/") {
  if (harness::skipped_without_gpu()) return;
  for (const bool causal : {false, true}) {
    check_attention<float>({2, 1, 70, 70, 33}, causal);
    check_attention<BFloat16>({1, 2, 130, 130, 16}, causal);
    check_attention<Half>({1, 1, 64, 64, 64}, causal);
  }
}

TEST_CASE("the GPU's oracle takes the queries in several pieces") {
  if (harness::skipped_without_gpu()) return;
  for (const bool causal : {false, true}) check_attention<float>({1, 2, 90, 90, 5}, causal, 40);
}

TEST_CASE("the GPU's oracle of softmax(X) V is that of common/") {
  if (harness::skipped_without_gpu()) return;
  const Tensor<float, 3> x = make_input<3>({2, 33, 70}, Pattern::kNormal, 1),
                         v = make_input<3>({2, 70, 40}, Pattern::kNormal, 2);
  const DeviceTensor<float, 3> x_there(x), v_there(v);
  Wanted out(2 * 33 * 40);
  softmax_matmul_wanted(x_there.data(), v_there.data(), {2, 33, 70, 40}, out);
  CHECK(difference(out.value, softmax_matmul_oracle<float>(x.view(), v.view()).data()) < 1e-12);
  CHECK(difference(out.magnitude, softmax_matmul_magnitude<float>(x.view(), v.view()).data()) <
        1e-5);
}

TEST_CASE("a mistake is found wherever it is, and NaN is one") {
  if (harness::skipped_without_gpu()) return;
  constexpr Index kCount = 1000;
  Wanted wanted(kCount);
  Tensor<float, 1> got({kCount});
  Tensor<double, 1> value({kCount});
  Tensor<float, 1> magnitude({kCount});
  for (Index i = 0; i < kCount; ++i) got(i) = 2, value(i) = 2, magnitude(i) = 4;
  wanted.value.copy_from(value);
  wanted.magnitude.copy_from(magnitude);
  DeviceTensor<float, 1> there(got);
  CHECK(find_mistakes<float>(there.data(), wanted, {1e-3}).count == 0);
  got(999) = 2.0041f;  // 4 * 1e-3 is allowed
  got(17) = NAN;
  got(5) = 2.0039f;
  there.copy_from(got);
  const Mistakes found = find_mistakes<float>(there.data(), wanted, {1e-3});
  CHECK(found.count == 2);
  CHECK(found.first == 17);
  CHECK(std::isnan(found.got));
  CHECK(found.wanted == 2);
  CHECK(find_mistakes<float>(there.data(), wanted, {0}, 0.0045).count == 1);
  CHECK(find_mistakes<float>(there.data(), wanted, {0}, 0, 0.0021).count == 1);
  // Each half has its bound.
  CHECK(find_mistakes<float>(there.data(), wanted, {1e-3, 2e-3}).count == 1);
  CHECK(find_mistakes<float>(there.data(), wanted, {5e-4, 2e-3}).count == 2);
}

TEST_CASE("the GPU's oracle has the contract's NaN and -inf") {
  if (harness::skipped_without_gpu()) return;
  constexpr AttentionShape kShape{1, 1, 70, 75, 8};
  const Cipher cipher{};
  for (const bool causal : {false, true})
    for (const Graded kind : {Graded::kNaN, Graded::kMasked, Graded::kNothing}) {
      DeviceTensor<float, 4> q(kShape.of_queries()), k(kShape.of_keys()), v(kShape.of_keys());
      std::uint64_t stream = 0;
      for (auto* x : {&q, &k, &v}) fill_normal(x->data(), x->view().size(), cipher, stream++);
      grade_head(q.data(), k.data(), kShape, kind, 0);
      GpuOracle<float> oracle(1, kShape, causal, false);
      oracle.compute(q.data(), k.data(), v.data(), static_cast<const float*>(nullptr));
      const auto want = attention_oracle<float>(q.to_host().view(), k.to_host().view(),
                                                v.to_host().view(), {.causal = causal});
      const auto got = oracle.out.value.to_host(), lse = oracle.lse.value.to_host();
      const auto same = [](double a, double b) {
        return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) < 1e-11;
      };
      int special = 0;
      for (Index i = 0; i < got.size(); ++i) CHECK(same(got(i), want.out.value.data()[i]));
      for (Index i = 0; i < lse.size(); ++i) {
        CHECK(same(lse(i), want.lse.data()[i]));
        special += !std::isfinite(lse(i));
      }
      CHECK(special == (kind == Graded::kNothing ? kShape.queries
                        : kind == Graded::kNaN   ? (kShape.queries + 1) / 4
                        : causal                 ? std::max(special, 25)
                                                 : 0));
      CHECK(std::isfinite(oracle.largest_scores[0]));
      // And only these are right there.
      const auto mistakes = [&](double shift) {
        Tensor<float, 1> out({got.size()});
        for (Index i = 0; i < got.size(); ++i)
          out(i) = static_cast<float>(
              std::isfinite(want.lse.data()[i / kShape.head_dim]) ? got(i) : got(i) + shift);
        return find_mistakes<float>(DeviceTensor<float, 1>(out).data(), oracle.out, {1e-6}).count;
      };
      CHECK(mistakes(0) == 0);
      if (kind == Graded::kNothing) CHECK(mistakes(NAN) == got.size());
    }
}

TEST_CASE("the inputs of the GPU's boards are normal, and each stream has its own") {
  if (harness::skipped_without_gpu()) return;
  constexpr Index kCount = 20001;
  DeviceTensor<float, 1> x({kCount});
  double sums[2] = {};
  for (int stream = 0; stream < 2; ++stream) {
    fill_normal(x.data(), kCount, Cipher{{1, 2, 3}}, static_cast<std::uint64_t>(stream), 8);
    const Tensor<float, 1> host = x.to_host();
    double sum = 0, squares = 0;
    for (Index i = 0; i < kCount; ++i) {
      const double one = static_cast<double>(host(i)) / 8;
      sum += one, squares += one * one;
    }
    CHECK(std::fabs(sum / kCount) < 0.03);
    CHECK(std::fabs(squares / kCount - 1) < 0.05);
    sums[stream] = sum;
  }
  CHECK(sums[0] != sums[1]);
}

TEST_CASE("the cipher is ChaCha with 8 rounds") {
  // The ECRYPT project's first test vector, and one that depends on key, block and stream.
  std::uint32_t x[16], other[16];
  Cipher{}.block(0, 0, x);
  CHECK(x[0] == 0x2fef003e);
  CHECK(x[1] == 0xd6405f89);
  CHECK(x[15] == 0x42fe0c0e);
  const auto differ = [&](const Cipher& cipher, std::uint64_t stream, std::uint64_t number) {
    cipher.block(stream, number, other);
    return x[0] != other[0] && x[15] != other[15];
  };
  CHECK(differ(Cipher{}, 0, 1));
  CHECK(differ(Cipher{}, 0, std::uint64_t{1} << 32));
  CHECK(differ(Cipher{}, 1, 0));
  CHECK(differ(Cipher{}, std::uint64_t{1} << 32, 0));
  CHECK(differ(Cipher{{0, 0, 0, 0, 0, 0, 0, 1}}, 0, 0));
}

}  // namespace flash::leaderboard
