// Times decoding: one new query a sequence against a cache in pages. In the same turns a copy moves
// as many bytes as a pass has to load, and a kernel reads them and does nothing else. PyTorch's
// kernels, which take no pages, decode the same memory as if the keys of each sequence lay in one
// piece.
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "benchmarking/attention_inputs.hpp"
#include "benchmarking/benchmark.hpp"
#include "benchmarking/memory.hpp"
#include "benchmarking/read_bytes.hpp"
#include "common/all_passes.hpp"
#include "common/inputs.hpp"

namespace flash {
namespace {

using std::to_string;

constexpr const char* kCeilings[] = {"copy", "read"};  // what no pass computes, the copy first

const Registry& registry() {
  static const Registry passes = all_passes();
  return passes;
}

struct Size {
  DecodeShape shape;  // its pages are those that the sequences need
  Index keys;         // the most that a sequence has
  bool log_uniform;   // lengths of 1 to `keys`; else all are `keys`
  Tensor<std::int32_t, 1> lengths;

  Size(const DecodeShape& of, Index most, bool ragged, std::uint64_t seed)
      : shape(of), keys(most), log_uniform(ragged), lengths({of.batch}) {
    Random random(seed);
    shape.pages = 0, shape.table_pages = pages_of(most);
    for (Index b = 0; b < shape.batch; ++b) {
      const double length = std::round(std::pow(static_cast<double>(most), random.uniform()));
      lengths(b) = static_cast<std::int32_t>(ragged ? length : static_cast<double>(most));
      shape.pages += pages_of(lengths(b));
    }
  }
  Index pages_of(Index length) const { return (length + shape.page_size - 1) / shape.page_size; }
  // Whether the cache can also be read as one piece for each sequence.
  bool is_whole() const { return !log_uniform && keys % shape.page_size == 0; }
  double cache_elements() const {
    return 2.0 * static_cast<double>(shape.kv_heads * shape.head_dim) *
           std::accumulate(lengths.data(), lengths.data() + lengths.size(), 0.0);
  }
};

// N(0, 1). The numbers of the first 4 MiB come again and again.
template <class T>
Tensor<T, 4> cache_of(const Shape<4>& shape, std::uint64_t seed) {
  Tensor<T, 4> cache(shape);
  const Index some = std::min<Index>(cache.size(), 4 << 20 / sizeof(T));
  Random random(seed);
  for (Index n = 0; n < some; ++n) cache.data()[n] = static_cast<T>(random.normal());
  for (Index n = some; n < cache.size(); n += some)
    std::copy_n(cache.data(), std::min(some, cache.size() - n), cache.data() + n);
  return cache;
}

// A cache in pages, or the same memory with a page for each sequence.
template <class T>
struct Cache {
  const Size& size;
  const Shape<4> shape;
  Tensor<std::int32_t, 2> table;

  Cache(const Size& of, bool in_pages, std::uint64_t seed)
      : size(of),
        shape(in_pages ? of.shape.of_cache()
                       : Shape<4>{of.shape.batch, of.keys, of.shape.kv_heads, of.shape.head_dim}),
        table({of.shape.batch, in_pages ? of.shape.table_pages : 1}) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(shape[0]));
    std::iota(order.begin(), order.end(), 0);
    Random random(seed);
    for (std::size_t n = order.size(); n > 1 && in_pages; --n)
      std::swap(order[n - 1], order[random.bits() % n]);
    std::size_t next = 0;
    for (Index b = 0; b < table.extent(0); ++b)
      for (Index n = 0; n < (in_pages ? size.pages_of(size.lengths(b)) : 1); ++n)
        table(b, n) = order[next++];
  }

  // Of the last kv heads of the last sequences, as many as the oracle needs about half a second
  // for, at least one.
  void prepare_check(const Tensor<T, 4>& q, const Tensor<T, 4>& k, const Tensor<T, 4>& v) {
    const DecodeShape& of = size.shape;
    double pairs = 1 << 19;
    for (Index n = of.batch * of.kv_heads - 1; n >= 0; --n) {
      const Index b = n / of.kv_heads, head = n % of.kv_heads, length = size.lengths(b);
      pairs -= static_cast<double>(length * of.group());
      if (pairs < 0 && !parts.empty()) break;
      // The heads of the group are queries of one head.
      const AttentionShape part{1, 1, of.group(), length, of.head_dim};
      Tensor<T, 4> q_part(part.of_queries()), k_part(part.of_keys()), v_part(part.of_keys());
      std::copy_n(&q(b, head * of.group(), 0, 0), q_part.size(), q_part.data());
      for (Index j = 0; j < length; ++j) {
        const Index row = (table(b, j / shape[1]) * shape[1] + j % shape[1]) * of.kv_heads + head;
        std::copy_n(k.data() + row * of.head_dim, of.head_dim, &k_part(0, 0, j, 0));
        std::copy_n(v.data() + row * of.head_dim, of.head_dim, &v_part(0, 0, j, 0));
      }
      parts.emplace_back(AttentionProblem{.shape = part, .dtype = dtype_of<T>()}, std::move(q_part),
                         std::move(k_part), std::move(v_part), Tensor<T, 4>{});
      parts.back().prepare_check(true);
    }
  }

  Verdict check(const Tensor<T, 4>& out, const Tensor<float, 3>& lse) const {
    const DecodeShape& of = size.shape;
    for (Index n = 0; n < out.size(); ++n)
      if (!std::isfinite(static_cast<double>(out.data()[n])))
        return {"out has no finite number in column " + to_string(n % of.head_dim) + " of row " +
                to_string(n / of.head_dim)};
    Verdict verdict;
    Index n = of.batch * of.kv_heads;
    for (const AttentionInputs<T>& part : parts) {
      const Index b = --n / of.kv_heads, h = n % of.kv_heads * of.group();
      Verdict one = part.check_forward({&out(b, h, 0, 0), part.problem.shape.of_queries()});
      one.add(part.check_lse({&lse(b, h, 0), part.problem.shape.of_rows()}));
      if (!one.wrong.empty())
        one.wrong =
            "sequence " + to_string(b) + ", from head " + to_string(h) + " on: " + one.wrong;
      verdict.add(one);
    }
    return verdict;
  }

  std::deque<AttentionInputs<T>> parts;
};

bool takes_no_pages(const Entry<Decode>* entry) {
  return entry != nullptr && entry->name.starts_with("pytorch_");
}

template <class T>
class InputsOf final : public Inputs {
 public:
  InputsOf(const Size& size, std::uint64_t seed, const std::vector<const Entry<Decode>*>& entries)
      : size_(size),
        entries_(entries),
        q_(cache_of<T>(size.shape.of_queries(), seed)),
        k_(cache_of<T>(size.shape.of_cache(), seed + 1)),
        v_(cache_of<T>(size.shape.of_cache(), seed + 2)),
        in_pages_(size, true, seed + 3) {
    if (size.is_whole() && std::ranges::any_of(entries, takes_no_pages))
      whole_.emplace(size, false, seed);
  }

  std::size_t bytes() const override { return 2 * k_on_gpu_.bytes() + q_on_gpu_.bytes(); }
  void prepare_check() override {
    in_pages_.prepare_check(q_, k_, v_);
    if (whole_) whole_->prepare_check(q_, k_, v_);
  }
  std::unique_ptr<Trial> trial(std::size_t i) override {
    if (entries_[i] == nullptr) return std::make_unique<Ceiling>(*this, i == 0);
    return std::make_unique<OnePass>(*this, *entries_[i]);
  }

 private:
  class OnePass final : public TrialIn<DeviceTensor> {
   public:
    OnePass(const InputsOf& inputs, const Entry<Decode>& entry)
        : x_(inputs),
          entry_(entry),
          cache_(x_.whole_ && takes_no_pages(&entry) ? *x_.whole_ : x_.in_pages_),
          table_(cache_.table) {}

    void prepare() override {
      out_ = {}, lse_ = {}, memory_ = {};
      out_ = this->template output<T>(x_.size_.shape.of_queries());
      lse_ = this->template output<float>(x_.size_.shape.of_rows());
      pass_ = {.q = x_.q_on_gpu_.view(),
               .k = {x_.k_on_gpu_.data(), cache_.shape},
               .v = {x_.v_on_gpu_.data(), cache_.shape},
               .block_table = table_.view(),
               .lengths = x_.lengths_on_gpu_.view(),
               .out = out_.view(),
               .lse = lse_.view()};
      reserve(entry_, pass_, bytes_of(out_) + bytes_of(lse_));
    }
    void forward() override { entry_.run.template of<T>()(pass_, memory_); }
    Verdict check_forward() override { return cache_.check(on_host(out_), on_host(lse_)); }

   private:
    const InputsOf& x_;
    const Entry<Decode>& entry_;
    const Cache<T>& cache_;
    const DeviceTensor<std::int32_t, 2> table_;
    DeviceTensor<T, 4> out_;
    DeviceTensor<float, 3> lse_;
    Decode<T> pass_;
  };

  // Loads the cache's bytes, or half of them and stores as many.
  class Ceiling final : public TrialIn<DeviceTensor> {
   public:
    Ceiling(const InputsOf& inputs, bool copies) : x_(inputs), copies_(copies) {}

    void prepare() override { to_ = this->template output<T>(x_.k_on_gpu_.shape()); }
    void forward() override {
      const DeviceTensor<T, 4>& k = x_.k_on_gpu_;
      if (copies_)
        device::copy(to_.data(), k.data(), k.bytes());
      else
        read_bytes(k.data(), x_.v_on_gpu_.data(), k.bytes(), to_.data());
    }
    Verdict check_forward() override { return {}; }

   private:
    const InputsOf& x_;
    const bool copies_;
    DeviceTensor<T, 4> to_;
  };

  const Size& size_;
  const std::vector<const Entry<Decode>*>& entries_;
  const Tensor<T, 4> q_, k_, v_;
  const DeviceTensor<T, 4> q_on_gpu_{q_}, k_on_gpu_{k_}, v_on_gpu_{v_};
  const DeviceTensor<std::int32_t, 1> lengths_on_gpu_{size_.lengths};
  Cache<T> in_pages_;
  std::optional<Cache<T>> whole_;  // where that goes
};

class DecodeBenchmark final : public Benchmark {
 public:
  std::string table() const override { return "decode"; }
  std::string purpose() const override {
    return "Times decoding on a GPU: one query a sequence against a cache in pages.\nPasses are " +
           joined(names_of(registry().decode, DeviceKind::kGpu)) + ".\n";
  }
  std::string default_device() const override { return has_gpu() ? "cuda" : "cpu"; }

  void declare(Options& options) override {
    constexpr std::int64_t kMost = 1 << 20;
    options.names("impl", "implementations, by name (default: all), beside copy and read", names_);
    options.integer("batch", "sequences (default: six problems, quick two; with --keys 1)", batch_,
                    1, 1 << 12);
    options.integers("keys", "of each sequence, instead of the six problems", keys_, 1, kMost);
    options.choice("lengths", "of sequences with --keys: all equal, or from 1 on, log-uniform",
                   lengths_, {"equal", "log-uniform"});
    options.integer("heads", "query heads (default: 32)", heads_, 1, 1 << 10);
    options.integer("kv-heads", "heads of keys and values (default: 8)", kv_heads_, 1, 1 << 10);
    options.integer("head-dim", "columns of a head (default: 128)", head_dim_, 1, 1 << 10);
    options.integer("page-size", "keys of a page (default: 64)", page_size_, 1, kMost);
    options.choice("dtype", "of q, k, v and out (default: bfloat16)", dtype_,
                   {"float32", "float16", "bfloat16"});
  }

  void decide(Settings& settings) override {
    if (settings.device != "cuda")
      throw OptionError("--device is 'cpu'; it must be cuda: no pass decodes on a CPU");
    settings.warmups = settings.quick ? 2 : 10;
    settings.passes = settings.quick ? 10 : 100;
    seed_ = settings.seed;
    for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
      if (to_string(each) == dtype_.value_or("bfloat16")) settings.dtype = dtype_of_all_ = each;

    DecodeShape shape{.heads = heads_.value_or(32),
                      .kv_heads = kv_heads_.value_or(8),
                      .head_dim = head_dim_.value_or(128),
                      .page_size = page_size_.value_or(64)};
    if (shape.heads % shape.kv_heads != 0)
      throw OptionError("--heads is " + to_string(shape.heads) + "; it must be a multiple of " +
                        to_string(shape.kv_heads) + ", --kv-heads");
    const auto add = [&](Index batch, Index keys, bool log_uniform) {
      shape.batch = batch;
      sizes_.emplace_back(shape, keys, log_uniform, seed_);
    };
    if (keys_ || batch_) {
      for (const Index keys : keys_.value_or(std::vector<std::int64_t>{4096}))
        add(batch_.value_or(1), keys, lengths_.value_or("equal") != "equal");
    } else if (settings.quick) {
      add(2, 4096, false), add(8, 4096, true);
    } else {
      for (const auto& [batch, keys] :
           {std::pair{1, 131072}, {8, 32768}, {64, 4096}, {256, 1024}, {1, 16384}})
        add(batch, keys, false);
      add(64, 16384, true);
    }

    entries_.assign(std::size(kCeilings), nullptr);
    const Strings known = names_of(registry().decode, DeviceKind::kGpu);
    for (const std::string& name : names_.value_or(known)) {
      if (!contains(known, name))
        throw OptionError("--impl is '" + name + "'; it must be one of: " + joined(known));
      entries_.push_back(&registry().decode.find(name, DeviceKind::kGpu));
    }
  }

  std::string headline() const override {
    const DecodeShape& shape = sizes_.front().shape;
    return to_string(shape.heads) + " heads on " + to_string(shape.kv_heads) + " kv heads of " +
           to_string(shape.head_dim) + ", pages of " + to_string(shape.page_size) + ", " +
           to_string(dtype_of_all_);
  }
  Strings implementations() const override {
    Strings names;
    for (std::size_t i = 0; i < entries_.size(); ++i)
      names.push_back(entries_[i] ? entries_[i]->name : kCeilings[i]);
    return names;
  }
  std::size_t sizes() const override { return sizes_.size(); }
  std::string name_of_size(std::size_t size) const override {
    const Size& of = sizes_[size];
    return "batch " + to_string(of.shape.batch) + (of.log_uniform ? ", 1 to " : ", ") +
           to_string(of.keys) + " keys";
  }
  std::unique_ptr<Inputs> inputs(std::size_t size) override {
    const auto make = [&]<class T>(T) -> std::unique_ptr<Inputs> {
      return std::make_unique<InputsOf<T>>(sizes_[size], seed_, entries_);
    };
    if (dtype_of_all_ == DType::kFloat32) return make(float());
    return dtype_of_all_ == DType::kFloat16 ? make(Half()) : make(BFloat16());
  }

  CsvRow cells(std::size_t size, std::size_t i, const std::vector<Result>& results) const override {
    const auto& [shape, keys, log_uniform, lengths] = sizes_[size];
    const Result& result = results[i];
    const auto cell = [&](double value) { return number_cell(result.has_forward, value); };
    const double ms = result.forward.median_ms, copy_ms = results.front().forward.median_ms;
    const double element = dtype_of_all_ == DType::kFloat32 ? 4 : 2;
    // Copy and read also load what pages have behind their sequences.
    const double copied = 2 * static_cast<double>(element_count(shape.of_cache())),
                 loaded = entries_[i] ? sizes_[size].cache_elements() : copied;
    const double rate = loaded * element / ms * 1e-6, copy_rate = copied * element / copy_ms * 1e-6;
    return {{"batch", to_string(shape.batch)},
            {"keys", to_string(keys)},
            {"lengths", log_uniform ? "log-uniform" : "equal"},
            {"heads", to_string(shape.heads)},
            {"kv_heads", to_string(shape.kv_heads)},
            {"head_dim", to_string(shape.head_dim)},
            {"page_size", to_string(shape.page_size)},
            {"forward_ms", cell(ms)},
            {"spread_percent", cell(result.forward.spread_percent)},
            {"forward_peak_MiB", cell(result.forward.peak_MiB)},
            {"tokens_per_s", number_cell(result.has_forward && entries_[i],
                                         static_cast<double>(shape.batch) / ms * 1e3)},
            {"gb_per_s", cell(rate)},
            {"percent_of_copy", number_cell(result.has_forward && results.front().has_forward,
                                            100 * rate / copy_rate)}};
  }
  Strings shown_columns() const override {
    return {"implementation",  "forward_ms",       "tokens_per_s", "gb_per_s",
            "percent_of_copy", "forward_peak_MiB", "scaled_error"};
  }

 private:
  std::optional<Strings> names_;
  std::optional<std::int64_t> batch_, heads_, kv_heads_, head_dim_, page_size_;
  std::optional<std::vector<std::int64_t>> keys_;
  std::optional<std::string> lengths_, dtype_;
  std::uint64_t seed_ = 1;
  DType dtype_of_all_ = DType::kBFloat16;
  std::vector<Size> sizes_;
  std::vector<const Entry<Decode>*> entries_;  // after kCeilings, which have none
};

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::DecodeBenchmark().main(argc, argv); }
