// The problems of the decoding part's graded cases, which every pass that decodes has to solve: a
// cache whose pages are shuffled, with a NaN wherever no sequence has a key.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "common/decode.hpp"
#include "common/registry.hpp"
#include "harness/cases/attention_data.hpp"
#include "harness/cases/device_copy.hpp"
#include "harness/cases/padded_pass.hpp"

namespace flash::decode_cases {

using harness::Layout;

struct DecodeCase {
  std::string name = "";
  std::vector<std::int32_t> lengths = {100};  // one for each sequence
  Index group = 1, kv_heads = 2, queries = 1, head_dim = 64, page_size = 16;
  harness::Data data = harness::Data::kNormal;
  DType type = DType::kFloat32;
  std::optional<double> scale = {};
  Layout cache = Layout::kRowMajor;   // kInterleavedHeads: (page, head, row, column)
  std::optional<Layout> of_v = {};    // where it is another one than that of k
  Layout layout = Layout::kRowMajor;  // of q, out and lse; with kSpread also of table and lengths
  Index shift = 0;            // of their first elements behind an aligned address, in elements
  bool shares_pages = false;  // the second sequence begins with pages of the first one
  std::optional<Index> table_pages = {};  // as many as the longest sequence has, and one
  std::optional<Index> nan_key = {};      // of the first sequence: a NaN in a value

  Index heads() const { return kv_heads * group; }
  DecodeCase of_type(DType other) const;
  DecodeCase of_probe(const harness::Probe& probe) const;
};

using CasesOf = std::pair<const char*, std::vector<DecodeCase>>;  // a requirement (tasks.toml)
std::vector<CasesOf> cases();
std::vector<DecodeCase> long_cases();

inline constexpr std::int32_t kNoPage = -1000000;  // what no kernel may take for a page

template <class T>
struct DecodeInputs {
  Tensor<T, 4> q, k, v;
  Tensor<std::int32_t, 2> block_table;
  Tensor<std::int32_t, 1> lengths;

  // What is no key of a sequence is a NaN, or `fill`.
  DecodeInputs(const DecodeCase& problem, std::uint64_t seed, double fill = harness::kPoisoned);
};

// A cache in float64, and how its keys are cut up.
struct SeenCache {
  Tensor<double, 4> k, v;
  Tensor<std::int32_t, 2> block_table;
  Tensor<std::int32_t, 1> lengths;
  Index first;      // of the sequences that were seen
  Index chunk;      // elements of 16 bytes
  Index keys_each;  // of a part
  bool nan_behind;  // the cache, else numbers
};

// Completes `seen`, which has all but the keys and values: a sequence's keys, taken out of their
// pages, make the wrong result one of attention (diagnosis.hpp). The mistakes that pages, groups
// and parts alone make possible are added (own_mistakes.cpp).
void add_keys(harness::SeenForward& seen, const SeenCache& cache);

// A tensor of integers on a device, `apart` elements from one to the next; between them is none.
template <int Rank>
class Numbers {
 public:
  Numbers(const Tensor<std::int32_t, Rank>& from, Index apart)
      : shape_(from.shape()), apart_(apart), there_(spread(from, apart)) {}
  TensorView<const std::int32_t, Rank> view() const {
    Shape<Rank> strides = row_major_strides(shape_);
    for (Index& stride : strides) stride *= apart_;
    return {there_.data(), shape_, strides};
  }

 private:
  static Tensor<std::int32_t, 1> spread(const Tensor<std::int32_t, Rank>& from, Index apart) {
    Tensor<std::int32_t, 1> all({from.size() * apart});
    for (Index n = 0; n < all.size(); ++n)
      all(n) = n % apart == 0 ? from.data()[n / apart] : kNoPage;
    return all;
  }
  Shape<Rank> shape_;
  Index apart_;
  DeviceTensor<std::int32_t, 1> there_;
};

// A call on a device, and what it left.
template <class T>
struct DecodeCall {
  DecodeCase problem;
  DecodeInputs<T> inputs;
  harness::PassTensor<T, 4, harness::DeviceCopy> q, k, v, out;
  harness::PassTensor<float, 3, harness::DeviceCopy> lse;
  Numbers<2> block_table;
  Numbers<1> lengths;

  DecodeCall(const DecodeCase& of, std::uint64_t seed, double fill = harness::kPoisoned)
      : problem(of),
        inputs(of, seed, fill),
        q("q", inputs.q, of.layout, of.shift),
        k("k", inputs.k, of.cache, 0, fill),
        v("v", inputs.v, of.of_v.value_or(of.cache), 0, fill),
        out("out", inputs.q.shape(), of.layout, of.shift, fill),
        lse("lse", {inputs.q.extent(0), inputs.q.extent(1), inputs.q.extent(2)}, of.layout,
            of.shift, fill),
        block_table(inputs.block_table, of.layout == Layout::kSpread ? 2 : 1),
        lengths(inputs.lengths, of.layout == Layout::kSpread ? 2 : 1),
        seed_(seed),
        fill_(fill) {}

  Decode<T> pass() const {
    return {q.in_call(),    k.in_call(),   v.in_call(),   block_table.view(),
            lengths.view(), out.in_call(), lse.in_call(), problem.scale};
  }
  void copy_back() {
    for (auto* const tensor : {&q, &k, &v, &out}) tensor->copy_back();
    lse.copy_back();
  }
  // "" where both calls left the same.
  std::string differing_output(const DecodeCall& other) const {
    return out.name_if_not(other.out) + lse.name_if_not(other.lse);
  }
  // "" where out and lse of sequence b are right; all of the pass is in host memory.
  static std::string wrong(const Decode<T>& pass, Index b);
  // Waits for the call, and judges what it left, sequence by sequence. With `run`, which makes a
  // call, the verdict can be explained.
  harness::Verdict verdict(const std::function<void(DecodeCall&)>& run = {});

 private:
  // The inputs, and after copy_back() what the call left.
  Decode<T> on_host() {
    return {inputs.q.view(),           inputs.k.view(),       inputs.v.view(),
            inputs.block_table.view(), inputs.lengths.view(), out.padded().view(),
            lse.padded().view(),       problem.scale};
  }
  // Of the sequences from `first` on.
  harness::SeenForward seen(Index first, Index count);

  std::uint64_t seed_;
  double fill_;
};

}  // namespace flash::decode_cases
