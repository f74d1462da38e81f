// What float32 means on tensor cores (part3_flash_cuda/ladder/float32.md): every pass that takes
// float32 stays below the error that is derived there for three products of TF32, on inputs that
// are hard for numbers cut in pieces, and loses no more than the solution's FFMA does.
#include <cmath>

#include "harness/needs_gpu.hpp"
#include "part3/float32_cases.hpp"
#include "part3/on_device.hpp"

using namespace flash;
using part3::scaled;
using part3::to_host;
using Case = part3::Float32Case;
using Inputs = harness::AttentionInputs<float>;

namespace {

constexpr double kU = 0x1p-24;  // float32's unit roundoff
constexpr double kMma =
    6.5 * kU;  // what one step of a tensor core loses, of the sum of its |addends|
constexpr double kProduct = 8 * kU;              // what three products lose of a b
constexpr int kLeastKeys = 16, kMostKeys = 128;  // in a step of a kernel

// The most that a row of out may be wrong by, and lse.
struct Bound {
  std::vector<double> out;
  double lse;
};

Bound bound_of_row(const Inputs& x, const AttentionOracle& want, double scale, Index h, Index i,
                   Index keys) {
  const Index c = x.q.extent(3);
  const double lse = want.lse(0, h, i), blocks = std::ceil(static_cast<double>(keys) / kLeastKeys);
  std::vector<double> score(keys), wrong(keys);
  for (Index j = 0; j < keys; ++j) {
    double sizes = 0;
    for (Index n = 0; n < c; ++n) {
      const double term = scale * x.q(0, h, i, n) * x.k(0, h, j, n);
      score[j] += term;
      sizes += std::fabs(term);
    }
    wrong[j] = (kProduct + kMma * static_cast<double>(c) / 8 + 3 * kU) * sizes;
  }
  const auto top = std::max_element(score.begin(), score.end()) - score.begin();
  const double m = score[top];
  // Weights beside that of the largest score: what is wrong with all of them alike cancels.
  double most_l = std::exp(m - lse), least_l = most_l;
  std::vector<double> out(c);
  for (Index j = 0; j < keys; ++j) {
    if (j == top || score[j] == -INFINITY) continue;
    const double w = wrong[j] + wrong[top] + kU * (8 + 4 * blocks + 5 * (m - score[j])),
                 P = std::exp(score[j] - lse), most = std::exp(score[j] - lse + w);
    if (most == 0) continue;
    most_l += most;
    least_l += P * std::exp(-w);
    for (Index n = 0; n < c; ++n)
      out[n] += (most - P) * std::fabs(x.v(0, h, j, n) - want.out.value(0, h, i, n));
  }
  const double sums = kProduct + kMma * kMostKeys / 8 + kU * (40 + 3 * blocks);
  for (Index n = 0; n < c; ++n)
    out[n] = out[n] / least_l + sums * (most_l / least_l) * want.out.magnitude(0, h, i, n) +
             4 * static_cast<double>(keys) * 0x1p-126;
  return {out, wrong[top] + std::log(most_l) - std::log(least_l) + kU * (40 + 3 * blocks) +
                   4 * kU * (std::fabs(m) + std::fabs(lse))};
}

struct Outputs {
  Tensor<float, 4> out;
  Tensor<float, 3> lse;
};

std::optional<Outputs> run(const Entry<AttentionForward>& entry, const Inputs& x,
                           const AttentionOptions& options) {
  const DeviceTensor<float, 4> q(x.q), k(x.k), v(x.v), out(x.q.shape());
  const DeviceTensor<float, 3> lse(attention_shape(x.q.shape(), x.k.shape()).of_rows());
  const AttentionForward<float> pass{q.view(), k.view(), v.view(), out.view(), lse.view(), options};
  if (!part3::is_run(entry, pass)) return std::nullopt;
  return Outputs{to_host(out.view()), to_host(lse.view())};
}

struct Expected {
  AttentionOracle oracle;
  std::vector<Bound> bounds;  // of each head's queries
};

Expected expected(const Inputs& x, const AttentionOptions& options) {
  const AttentionShape shape = attention_shape(x.q.shape(), x.k.shape());
  Expected want{x.forward(options), {}};
  for (Index h = 0; h < shape.heads; ++h)
    for (Index i = 0; i < shape.queries; ++i)
      want.bounds.push_back(bound_of_row(x, want.oracle, *options.scale, h, i,
                                         shape.visible_keys(i, options.causal)));
  return want;
}

enum class Ask { kRight, kRightOrNotFinite };

// What is wrong, "" if nothing is.
std::string wrong(const Outputs& got, const Expected& want, Ask ask = Ask::kRight) {
  const auto [batch, heads, queries, columns] = got.out.shape();
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < queries; ++i) {
      const Bound& bound = want.bounds[h * queries + i];
      const auto bad = [&](double is, double must, double most) {
        if (ask == Ask::kRightOrNotFinite && !std::isfinite(is)) return false;
        return !(std::fabs(is - must) <= most);
      };
      const std::string row = " of head " + std::to_string(h) + ", query " + std::to_string(i);
      const auto text = [](double is, double must, double most) {
        return std::to_string(is) + " and not " + std::to_string(must) + ", wrong by " +
               std::to_string(std::fabs(is - must) / most) + " times the bound";
      };
      if (const double is = got.lse(0, h, i), must = want.oracle.lse(0, h, i);
          bad(is, must, bound.lse))
        return "lse" + row + " is " + text(is, must, bound.lse);
      for (Index n = 0; n < columns; ++n)
        if (const double is = got.out(0, h, i, n), must = want.oracle.out.value(0, h, i, n);
            bad(is, must, bound.out[n]))
          return "column " + std::to_string(n) + row + " is " + text(is, must, bound.out[n]);
    }
  return "";
}

// ---- Inputs -------------------------------------------------------------------------------------

Inputs qkv(const part3::Float32Inputs& x) { return {x[0], x[1], x[2]}; }

std::vector<Case> cases() {
  std::vector<Case> all = part3::float32_cases();
  std::erase_if(all, [](const Case& one) { return one.name.ends_with("d_out"); });
  all.insert(all.end(), {{"q x 200", scaled(200, 1, 1)},
                         {"q and k x 1e-30", scaled(1e-30, 1e-30, 1)},
                         {"q x 1e30, k x 1e-30, v x 1e30", scaled(1e30, 1e-30, 1e30)},
                         {"q x 1e-30, k x 1e30, v x 1e-30", scaled(1e-30, 1e30, 1e-30)},
                         {"v x 1e37", scaled(1, 1, 1e37)},
                         {"subnormal q, k and v", scaled(1e-40, 1e-40, 1e-40)}});
  all.push_back({"subnormal elements among others", [](auto& x) {
                   for (auto& tensor : x)
                     for (Index n = 0; n < tensor.size(); n += 3) tensor.data()[n] *= 1e-40f;
                 }});
  all.push_back(
      {"one score of 1e11", [](auto& x) { x[0](0, 0, 30, 5) = x[1](0, 0, 37, 5) = 1e6f; }});
  for (const float size : {1e3f, 1e6f})
    all.push_back(
        {"an element of " + std::to_string(static_cast<int>(size)) + " in k that no query looks at",
         [=](auto& x) {
           x[1](0, 0, 37, 5) = size;
           for (Index i = 0; i < x[0].extent(2); ++i) x[0](0, 0, i, 5) = 0;
         }});
  return all;
}

// Those of the emulator, and more for a GPU.
std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all{{1, 1, 70, 150, 64}, {1, 1, 40, 70, 128}};
  if (!device::is_emulated())
    all.insert(all.end(), {{1, 1, 64, 3000, 64}, {1, 1, 64, 3000, 128}, {1, 1, 70, 300, 256}});
  return all;
}

// Two planes of half without a choice are for numbers of one size.
bool is_for_one_size(const std::string& name) { return name.ends_with("_fast"); }

std::vector<Entry<AttentionForward>> passes_of_float32() {
  std::vector<Entry<AttentionForward>> passes;
  const Registry registry = all_passes();
  for (const auto& entry : registry.forward.entries())
    if (entry.run.float32 && entry.name != "standard") passes.push_back(entry);
  return passes;
}

}  // namespace

TEST_CASE(
    "float32: the error is below the derived bound, and what is ordinary is as good as FFMA") {
  if (harness::skipped_without_gpu()) return;
  const auto passes = passes_of_float32();
  for (const AttentionShape& shape : shapes())
    for (const bool causal : {false, true})
      for (const Case& one : cases()) {
        if (device::is_emulated() && causal != (shape.head_dim == 128)) continue;  // one mask each
        const Inputs x = qkv(one.inputs(shape));
        const AttentionOptions options = one.options(shape, causal);
        const Expected want = expected(x, options);
        double of_ffma = 0;
        for (const auto& entry : passes) {
          CAPTURE(entry.name, one.name, to_string<4>(shape.of_keys()), causal);
          if (is_for_one_size(entry.name) && !one.ordinary) continue;
          const auto got = run(entry, x, options);
          if (!got) continue;
          CHECK(wrong(*got, want) == "");
          if (!one.ordinary) continue;
          const double error = part3::error(got->out, want.oracle.out);
          if (entry.name == "flash") of_ffma = error;
          INFO("relative error " << error << ", of FFMA " << of_ffma);
          // Two planes of half have two bits less than float32. FFMA loses more in long sums.
          CHECK(error <= 1.25 * of_ffma);
        }
      }
}

TEST_CASE("float32: NaN and infinity in the inputs never give a finite wrong result") {
  if (harness::skipped_without_gpu()) return;
  const AttentionShape shape{1, 2, 70, 150, 64};
  const Case normal{"N(0, 1)", [](auto&) {}};
  const auto passes = passes_of_float32();
  for (const bool causal : {false, true})
    for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f})
      for (int place = 0; place < 3; ++place) {
        if (device::is_emulated() && causal != (place == 1)) continue;  // half of them
        Inputs x = qkv(normal.inputs(shape));
        Tensor<float, 4>& tensor = place == 0 ? x.q : place == 1 ? x.k : x.v;
        tensor(0, 0, 37, 5) = tensor(0, 1, 3, 63) = tensor(0, 1, 60, 0) = bad;
        const AttentionOptions options = normal.options(shape, causal);
        const Expected want = expected(x, options);
        for (const auto& entry : passes) {
          if (is_for_one_size(entry.name)) continue;
          CAPTURE(entry.name, causal, bad, place);
          if (const auto got = run(entry, x, options))
            CHECK(wrong(*got, want, Ask::kRightOrNotFinite) == "");
        }
      }
}
