// The problems of the decoding part's graded cases, which every pass that decodes has to solve: a
// cache whose pages are shuffled, with a NaN wherever no sequence has a key.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "common/decode.hpp"
#include "common/registry.hpp"
#include "decode/own_mistakes.hpp"
#include "harness/cases/attention_data.hpp"
#include "harness/cases/device_copy.hpp"
#include "harness/cases/padded_pass.hpp"

namespace flash::decode_cases {

struct DecodeCase {
  std::string name = "";
  std::vector<std::int32_t> lengths = {100};  // one for each sequence
  Index heads = 2, kv_heads = 2, queries = 1, head_dim = 64, page_size = 16;
  harness::Data data = harness::Data::kNormal;
  DType type = DType::kFloat32;
  std::optional<double> scale = std::nullopt;
  harness::Layout cache =
      harness::Layout::kRowMajor;  // kInterleavedHeads: (page, head, row, column)
  harness::Layout layout = harness::Layout::kRowMajor;  // of q, out and lse
  Index shift = 0;            // of their first elements behind an aligned address, in elements
  bool shares_pages = false;  // the second sequence begins with pages of the first one
  Index table_pages = 0;      // 0: as many as the longest sequence has, and one
  std::optional<Index> nan_key = std::nullopt;  // of the first sequence: a NaN in a value

  DecodeCase of_type(DType other) const;
  DecodeCase of_probe(const harness::Probe& probe) const;
};

std::vector<DecodeCase> cases_of_one_part(), cases_of_pages(), cases_of_groups(),
    cases_of_many_parts(), cases_of_types(), cases_of_special_values(), long_cases();
std::vector<DecodeCase> all_cases();

template <class T>
struct DecodeInputs {
  Tensor<T, 4> q, k, v;
  Tensor<std::int32_t, 2> block_table;
  Tensor<std::int32_t, 1> lengths;

  // What is no key of a sequence is a NaN, or `fill`.
  DecodeInputs(const DecodeCase& problem, std::uint64_t seed, double fill = harness::kPoisoned);
};

// A call on a device, and what it left.
template <class T>
struct DecodeCall {
  DecodeCase problem;
  DecodeInputs<T> inputs;
  harness::PassTensor<T, 4, harness::DeviceCopy> q, k, v, out;
  harness::PassTensor<float, 3, harness::DeviceCopy> lse;
  DeviceTensor<std::int32_t, 2> block_table;
  DeviceTensor<std::int32_t, 1> lengths;

  DecodeCall(const DecodeCase& of, std::uint64_t seed, double fill = harness::kPoisoned)
      : problem(of),
        inputs(of, seed, fill),
        q("q", inputs.q, of.layout, of.shift),
        k("k", inputs.k, of.cache, 0, fill),
        v("v", inputs.v, of.cache, 0, fill),
        out("out", inputs.q.shape(), of.layout, of.shift, fill),
        lse("lse", {inputs.q.extent(0), inputs.q.extent(1), inputs.q.extent(2)}, of.layout,
            of.shift, fill),
        block_table(inputs.block_table),
        lengths(inputs.lengths),
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
  // Waits for the call, and judges what it left, sequence by sequence. With `run`, which makes a
  // call, the verdict can be explained.
  harness::Verdict verdict(const std::function<void(DecodeCall&)>& run = {});

 private:
  // Of the sequences from `first` on.
  harness::SeenForward seen(Index first, Index count);

  std::uint64_t seed_;
  double fill_;
};

}  // namespace flash::decode_cases
