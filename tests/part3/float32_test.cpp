// What float32 means on tensor cores (part3_flash_cuda/ladder/float32.md): every pass that takes
// float32 stays below the error that is derived there for three products of TF32, on inputs that
// are hard for numbers cut in pieces, and loses no more than the solution's FFMA does.
#include <cmath>
#include <functional>

#include "harness/needs_gpu.hpp"
#include "part3/on_device.hpp"

using namespace flash;
using part3::to_host;
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

Bound bound_of_row(const Inputs& x, const AttentionOracle& want, Index h, Index i, Index keys) {
  const Index c = x.q.extent(3);
  const double scale = 1 / std::sqrt(static_cast<double>(c)), lse = want.lse(0, h, i),
               blocks = std::ceil(static_cast<double>(keys) / kLeastKeys);
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

std::optional<Outputs> run(const Entry<AttentionForward>& entry, const Inputs& x, bool causal) {
  const DeviceTensor<float, 4> q(x.q), k(x.k), v(x.v), out(x.q.shape());
  const DeviceTensor<float, 3> lse(attention_shape(x.q.shape(), x.k.shape()).of_rows());
  const AttentionForward<float> pass{q.view(),   k.view(),   v.view(),
                                     out.view(), lse.view(), {.causal = causal}};
  if (!part3::is_run(entry, pass)) return std::nullopt;
  return Outputs{to_host(out.view()), to_host(lse.view())};
}

struct Expected {
  AttentionOracle oracle;
  std::vector<Bound> bounds;  // of each head's queries
};

Expected expected(const Inputs& x, bool causal) {
  const AttentionShape shape = attention_shape(x.q.shape(), x.k.shape());
  Expected want{x.forward({.causal = causal}), {}};
  for (Index h = 0; h < shape.heads; ++h)
    for (Index i = 0; i < shape.queries; ++i)
      want.bounds.push_back(bound_of_row(x, want.oracle, h, i, shape.visible_keys(i, causal)));
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

// Relative to the oracle's norm.
double error(const Outputs& got, const AttentionOracle& want) {
  double wrong = 0, all = 0;
  for (Index n = 0; n < got.out.size(); ++n) {
    const double must = want.out.value.data()[n];
    wrong += std::pow(got.out.data()[n] - must, 2);
    all += must * must;
  }
  return std::sqrt(wrong / all);
}

// ---- Inputs -------------------------------------------------------------------------------------

Inputs normal_inputs(const AttentionShape& shape) {
  return {normal<float>(shape.of_queries(), 1), normal<float>(shape.of_keys(), 2),
          normal<float>(shape.of_keys(), 3)};
}

void scale_by(Tensor<float, 4>& x, double factor) {
  for (Index n = 0; n < x.size(); ++n) x.data()[n] = static_cast<float>(x.data()[n] * factor);
}

auto scaled(double of_q, double of_k, double of_v) {
  return [=](Inputs& x) {
    scale_by(x.q, of_q);
    scale_by(x.k, of_k);
    scale_by(x.v, of_v);
  };
}

// Rows and columns each times a factor of their own.
void scale_lognormal(Tensor<float, 4>& x, std::uint64_t seed) {
  Random random(seed);
  const Index columns = x.extent(3);
  std::vector<double> of_column(columns);
  for (double& factor : of_column) factor = std::exp(random.normal());
  for (Index row = 0; row < x.size() / columns; ++row) {
    const double of_row = std::exp(random.normal());
    for (Index n = 0; n < columns; ++n) {
      float& element = x.data()[row * columns + n];
      element = static_cast<float>(element * of_row * of_column[n]);
    }
  }
}

struct Case {
  std::string name;
  std::function<void(Inputs&)> change;  // of N(0, 1)
  bool ordinary = false;                // the error is that of many elements, and not of a few
};

std::vector<Case> cases() {
  std::vector<Case> all{
      {"N(0, 1)", [](Inputs&) {}, true},
      {"q x 8", scaled(8, 1, 1), true},
      {"q x 200", scaled(200, 1, 1)},
      {"rows and columns x lognormal",
       [](Inputs& x) {
         scale_lognormal(x.q, 4);
         scale_lognormal(x.k, 5);
         scale_lognormal(x.v, 6);
       }},
      {"q and k x 1e-30", scaled(1e-30, 1e-30, 1)},
      {"q x 1e30, k x 1e-30, v x 1e30", scaled(1e30, 1e-30, 1e30)},
      {"q x 1e-30, k x 1e30, v x 1e-30", scaled(1e-30, 1e30, 1e-30)},
      {"v x 1e37", scaled(1, 1, 1e37)},
      {"subnormal q, k and v", scaled(1e-40, 1e-40, 1e-40)},
      {"subnormal elements among others",
       [](Inputs& x) {
         for (auto* tensor : {&x.q, &x.k, &x.v})
           for (Index n = 0; n < tensor->size(); n += 3) tensor->data()[n] *= 1e-40f;
       }},
  };
  all.push_back(
      {"one score of 1e11", [](Inputs& x) { x.q(0, 0, 30, 5) = x.k(0, 0, 37, 5) = 1e6f; }});
  for (const float size : {1e3f, 1e6f}) {
    const std::string outlier = "an element of " + std::to_string(static_cast<int>(size)) + " in ";
    // Not in the first step of keys, so that sums have begun.
    all.push_back({outlier + "q", [=](Inputs& x) { x.q(0, 0, 30, 5) = size; }});
    all.push_back({outlier + "k", [=](Inputs& x) { x.k(0, 0, 37, 5) = size; }});
    all.push_back({outlier + "v", [=](Inputs& x) { x.v(0, 0, 37, 5) = size; }});
    all.push_back({outlier + "k that no query looks at", [=](Inputs& x) {
                     x.k(0, 0, 37, 5) = size;
                     for (Index i = 0; i < x.q.extent(2); ++i) x.q(0, 0, i, 5) = 0;
                   }});
  }
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
        Inputs x = normal_inputs(shape);
        one.change(x);
        const Expected want = expected(x, causal);
        double of_ffma = 0;
        for (const auto& entry : passes) {
          CAPTURE(entry.name, one.name, to_string<4>(shape.of_keys()), causal);
          if (is_for_one_size(entry.name) && !one.ordinary) continue;
          const auto got = run(entry, x, causal);
          if (!got) continue;
          CHECK(wrong(*got, want) == "");
          if (!one.ordinary) continue;
          if (entry.name == "flash") of_ffma = error(*got, want.oracle);
          INFO("relative error " << error(*got, want.oracle) << ", of FFMA " << of_ffma);
          // Two planes of half have two bits less than float32. FFMA loses more in long sums.
          CHECK(error(*got, want.oracle) <= 1.25 * of_ffma);
        }
      }
}

TEST_CASE("float32: NaN and infinity in the inputs never give a finite wrong result") {
  if (harness::skipped_without_gpu()) return;
  const AttentionShape shape{1, 2, 70, 150, 64};
  const auto passes = passes_of_float32();
  for (const bool causal : {false, true})
    for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f})
      for (int place = 0; place < 3; ++place) {
        if (device::is_emulated() && causal != (place == 1)) continue;  // half of them
        Inputs x = normal_inputs(shape);
        Tensor<float, 4>& tensor = place == 0 ? x.q : place == 1 ? x.k : x.v;
        tensor(0, 0, 37, 5) = tensor(0, 1, 3, 63) = tensor(0, 1, 60, 0) = bad;
        const Expected want = expected(x, causal);
        for (const auto& entry : passes) {
          if (is_for_one_size(entry.name)) continue;
          CAPTURE(entry.name, causal, bad, place);
          if (const auto got = run(entry, x, causal))
            CHECK(wrong(*got, want, Ask::kRightOrNotFinite) == "");
        }
      }
}
