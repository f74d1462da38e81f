// The tensors of a pass, each with poison around it, in host memory or on a device; and what a call
// did to them that it must not do.
//
//   PaddedForward<float> tensors(inputs, Layout::kSpread, options);  // DeviceCopy: on a device
//   flash_attention_forward(tensors.pass());
//   tensors.copy_back();
//   tensors.damage();    // "", or what is wrong, for a student to read
//   tensors.out.view();  // in host memory
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/attention_data.hpp"
#include "harness/cases/padded_tensor.hpp"
#include "harness/cases/surroundings.hpp"
#include "harness/diagnosis/diagnosis.hpp"

namespace flash::harness {

// Where a call finds a padded tensor: here, where it is. On a device: DeviceCopy. AddressSanitizer,
// where it is there, reports accesses before and after the tensor until copy_back().
template <class T, int Rank>
class InPlace {
 public:
  explicit InPlace(BasicPaddedTensor<T, Rank>& host) : host_(host) {
    host_.forbid_ends(true);
    note_memory(host_.buffer().data(), sizeof(T) * host_.buffer().size());
  }
  ~InPlace() {
    copy_back();
    forget_memory(host_.buffer().data());
  }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  TensorView<T, Rank> view() const { return host_.view(); }
  void copy_back() { host_.forbid_ends(false); }

 private:
  BasicPaddedTensor<T, Rank>& host_;
};

template <class T, int Rank, template <class, int> class Memory = InPlace>
class PassTensor {
 public:
  // An input. With a `fill` there are finite numbers around it.
  PassTensor(const char* name, const Tensor<T, Rank>& values, Layout layout, Index shift = 0,
             double fill = kPoisoned)
      : name_(name),
        tensor_(values, layout, shift),
        filled_(fill_places(fill, false)),
        before_(tensor_),
        memory_(tensor_) {}

  // An output.
  PassTensor(const char* name, const Shape<Rank>& shape, Layout layout, Index shift = 0,
             double fill = kPoisoned)
      : name_(name),
        tensor_(shape, layout, shift),
        filled_(fill_places(fill, true)),
        memory_(tensor_) {}

  PassTensor(const PassTensor&) = delete;
  PassTensor& operator=(const PassTensor&) = delete;

  BasicPaddedTensor<T, Rank>& padded() { return tensor_; }

  // For the call, wherever it runs.
  TensorView<T, Rank> in_call() const { return memory_.view(); }
  const void* memory() const { return memory_.memory(); }

  // In host memory: up to date after copy_back().
  void copy_back() { memory_.copy_back(); }
  TensorView<const T, Rank> view() { return tensor_.view(); }
  // Its name where it is not the same bit by bit, else "".
  std::string name_if_not(const PassTensor& other) const {
    return tensor_.same_bits(other.tensor_) ? "" : name_;
  }

  // The values, and those that are read here with the strides of each of `others`.
  template <class... Others>
  SeenTensor seen(Others&... others) {
    SeenTensor seen{with_heads(in_float64(view()))};
    const TensorView<const T, Rank> own = view();
    const auto& buffer = tensor_.buffer();
    with_other_strides(
        [&](const std::string& other, const Shape<Rank>& strides) {
          Index last = own.data() - buffer.data();
          for (int axis = 0; axis < Rank; ++axis) last += (own.extent(axis) - 1) * strides[axis];
          Tensor<double, 4> values;
          if (last < static_cast<Index>(buffer.size()))
            values =
                with_heads(in_float64(TensorView<const T, Rank>(own.data(), own.shape(), strides)));
          seen.by_others.push_back({other, values});
        },
        others...);
    return seen;
  }

  // Where elements lie that are written with those strides. With a stride of 0 nobody can tell
  // which of them stays there, and a program that writes too few would fit.
  template <class... Others>
  void add_misplaced(std::vector<Misplaced>& list, Output output, Others&... others) {
    const Shape<Rank> shape = view().shape(), own = view().strides();
    with_other_strides(
        [&](const std::string& other, const Shape<Rank>& strides) {
          for (int axis = 0; axis < Rank; ++axis)
            if (strides[axis] == 0 && shape[axis] > 1) return;
          std::vector<Index> written(tensor_.buffer().size(), Misplaced::kNone);
          Index n = 0;
          for_each_offset<Rank>(shape, strides, [&](Index place) {
            if (place < static_cast<Index>(written.size()))
              written[place] = written[place] == Misplaced::kNone ? n : Misplaced::kSeveral;
            ++n;
          });
          Misplaced misplaced{output, name_, other, {}};
          for_each_offset<Rank>(shape, own,
                                [&](Index place) { misplaced.source.push_back(written[place]); });
          list.push_back(std::move(misplaced));
        },
        others...);
  }
  const std::string& name() const { return name_; }

  // "" when nothing is wrong.
  std::string damage() const {
    if (before_)
      return tensor_.same_bits(*before_)
                 ? ""
                 : "It changes `" + name_ + "`. Inputs must stay as they are.";
    return tensor_.written_outside(name_);
  }

 private:
  // use(whose, strides) for strides that this tensor might be taken to have: another tensor's, or
  // those of rows without gaps ("" is whose they are); all of them, those of rows and columns, or
  // one of these.
  template <class Use, class... Others>
  void with_other_strides(Use use, Others&... others) {
    const Shape<Rank> own = view().strides();
    if (view().size() == 0) return;
    const auto try_all = [&](const std::string& whose, const Shape<Rank>& strides) {
      Shape<Rank> inner = own, row = own, column = own;
      row[Rank - 2] = inner[Rank - 2] = strides[Rank - 2];
      column[Rank - 1] = inner[Rank - 1] = strides[Rank - 1];
      for (const Shape<Rank>& tried : {strides, inner, row, column})
        if (tried != own) use(whose, tried);
    };
    (try_all(others.name(), others.view().strides()), ...);
    try_all("", row_major_strides(view().shape()));
  }

  // The elements, or what lies around them; before the device gets its copy.
  bool fill_places(double fill, bool elements) {
    if (std::isnan(fill)) return false;
    const std::vector<bool> inside = tensor_.elements();
    for (std::size_t place = 0; place < inside.size(); ++place)
      if (inside[place] == elements)
        tensor_.buffer()[place] =
            static_cast<T>(elements ? fill : static_cast<double>(place % 13) / 8 - 0.75);
    return true;
  }

  std::string name_;
  BasicPaddedTensor<T, Rank> tensor_;
  bool filled_ = false;
  std::optional<BasicPaddedTensor<T, Rank>> before_;
  Memory<T, Rank> memory_;
};

inline Layout layout_of_lse(Layout layout) {
  return layout == Layout::kMixed ? Layout::kSpread : Layout::kRowMajor;
}

template <class... Tensors>
std::string damage_of(const Tensors&... tensors) {
  std::string damage;
  ((damage.empty() ? void(damage = tensors.damage()) : void()), ...);
  return damage;
}

// lse is row-major, unless layouts are mixed. `shift`: of the first elements behind an aligned
// address, in elements. `fill`: what outputs hold before the call, poison where NaN.
template <class T, template <class, int> class Memory = InPlace>
struct PaddedForward {
  PassTensor<T, 4, Memory> q, k, v, out;
  PassTensor<LseType<T>, 3, Memory> lse;
  AttentionOptions options;
  double filled;

  PaddedForward(const AttentionInputs<T>& inputs, Layout layout, const AttentionOptions& of_pass,
                Index shift = 0, double fill = kPoisoned)
      : q("q", inputs.q, layout_of(layout, 0), shift, fill),
        k("k", inputs.k, layout_of(layout, 1), shift, fill),
        v("v", inputs.v, layout_of(layout, 2), shift, fill),
        out("out", inputs.q.shape(), layout_of(layout, 3), shift, fill),
        lse("lse", {inputs.q.extent(0), inputs.q.extent(1), inputs.q.extent(2)},
            layout_of_lse(layout), shift, fill),
        options(of_pass),
        filled(fill) {}

  AttentionForward<T> pass() const {
    return {q.in_call(), k.in_call(), v.in_call(), out.in_call(), lse.in_call(), options};
  }
  void copy_back() {
    for (auto* tensor : {&q, &k, &v, &out}) tensor->copy_back();
    lse.copy_back();
  }
  std::string changed_inputs() const { return damage_of(q, k, v); }
  std::string written_outside() const { return damage_of(out, lse); }
  std::string differing_output(const PaddedForward& other) const {
    const std::string differing = out.name_if_not(other.out);
    return differing.empty() ? lse.name_if_not(other.lse) : differing;
  }
  std::string damage() const {
    const std::string outside = written_outside();
    return outside.empty() ? changed_inputs() : outside;
  }

  // For diagnose(), after copy_back(); the bounds are those of out and of lse.
  SeenForward seen(double bound, double lse_bound, Index block_queries, Index block_keys) {
    std::vector<Misplaced> misplaced;
    out.add_misplaced(misplaced, Output::kOut, q, k, v);
    lse.add_misplaced(misplaced, Output::kLse);
    return {.shape = pass().shape(),
            .options = options,
            .q = q.seen(k, v, out),
            .k = k.seen(q, v, out),
            .v = v.seen(q, k, out),
            .out = in_float64(out.view()),
            .lse = in_float64(lse.view()),
            .misplaced = misplaced,
            .precision = precision_of<T>(bound),
            .lse_bound = lse_bound,
            .block_queries = block_queries,
            .block_keys = block_keys,
            .fill = filled};
  }
};

template <class T, template <class, int> class Memory = InPlace>
struct PaddedBackward {
  PassTensor<T, 4, Memory> q, k, v, out, d_out, d_q, d_k, d_v;
  PassTensor<LseType<T>, 3, Memory> lse;
  AttentionOptions options;
  double filled;

  PaddedBackward(const AttentionInputs<T>& inputs, const Tensor<T, 4>& out_values,
                 const Tensor<LseType<T>, 3>& lse_values, const Tensor<T, 4>& d_out_values,
                 Layout layout, const AttentionOptions& of_pass, Index shift = 0,
                 double fill = kPoisoned)
      : q("q", inputs.q, layout_of(layout, 0), shift, fill),
        k("k", inputs.k, layout_of(layout, 1), shift, fill),
        v("v", inputs.v, layout_of(layout, 2), shift, fill),
        out("out", out_values, layout_of(layout, 3), shift, fill),
        d_out("d_out", d_out_values, layout_of(layout, 4), shift, fill),
        d_q("d_q", inputs.q.shape(), layout_of(layout, 6), shift, fill),
        d_k("d_k", inputs.k.shape(), layout_of(layout, 7), shift, fill),
        d_v("d_v", inputs.v.shape(), layout_of(layout, 8), shift, fill),
        lse("lse", lse_values, layout_of_lse(layout), shift, fill),
        options(of_pass),
        filled(fill) {}

  AttentionBackward<T> pass() const {
    return {q.in_call(),     k.in_call(),   v.in_call(),   out.in_call(), lse.in_call(),
            d_out.in_call(), d_q.in_call(), d_k.in_call(), d_v.in_call(), options};
  }
  void copy_back() {
    for (auto* tensor : {&q, &k, &v, &out, &d_out, &d_q, &d_k, &d_v}) tensor->copy_back();
    lse.copy_back();
  }
  std::string changed_inputs() const { return damage_of(q, k, v, out, d_out, lse); }
  std::string written_outside() const { return damage_of(d_q, d_k, d_v); }
  std::string differing_output(const PaddedBackward& other) const {
    for (const auto output : {&PaddedBackward::d_q, &PaddedBackward::d_k, &PaddedBackward::d_v})
      if (const std::string name = (this->*output).name_if_not(other.*output); !name.empty())
        return name;
    return "";
  }
  std::string damage() const {
    const std::string outside = written_outside();
    return outside.empty() ? changed_inputs() : outside;
  }

  // For diagnose(), after copy_back().
  SeenBackward seen(double bound, Index block_keys) {
    std::vector<Misplaced> misplaced;
    d_q.add_misplaced(misplaced, Output::kDQ, q, k, v);
    d_k.add_misplaced(misplaced, Output::kDK, q, k, v);
    d_v.add_misplaced(misplaced, Output::kDV, q, k, v);
    return {.shape = pass().shape(),
            .options = options,
            .q = q.seen(k, v, out, d_out),
            .k = k.seen(q, v, out, d_out),
            .v = v.seen(q, k, out, d_out),
            .out = out.seen(),
            .d_out = d_out.seen(q, k, v, out),
            .lse = lse.seen(),
            .d_q = in_float64(d_q.view()),
            .d_k = in_float64(d_k.view()),
            .d_v = in_float64(d_v.view()),
            .misplaced = misplaced,
            .precision = precision_of<T>(bound),
            .block_keys = block_keys,
            .fill = filled};
  }
};

}  // namespace flash::harness
