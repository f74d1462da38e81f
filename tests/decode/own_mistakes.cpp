// The mistakes that decoding alone makes possible.

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "decode/decode_cases.hpp"
#include "harness/diagnosis/split.hpp"

namespace flash::decode_cases {
namespace {

using namespace harness;

struct Where {
  Index page, row, head;
};
using Find = std::function<Where(Index b, Index h, Index j)>;

// Empty where a key lies in no page; behind the last one there may be NaN.
Tensor<double, 4> taken_out(const Tensor<double, 4>& cache, const SeenCache& of,
                            const AttentionShape& shape, const Find& find) {
  const Index size = cache.extent(1), end = cache.extent(0) * size;
  Tensor<double, 4> rows(shape.of_keys());
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h)
      for (Index j = 0; j < shape.keys; ++j) {
        const auto [page, row, head] = find(b, h, j);
        const Index place = page * size + row;
        if (place < 0 || place >= end + (of.nan_behind ? size : 0)) return {};
        for (Index c = 0; c < shape.head_dim; ++c)
          rows(b, h, j, c) = place < end ? cache(place / size, place % size, head, c) : NAN;
      }
  return rows;
}

// Where key j is, of the kv head that head h reads.
Find places(const SeenCache& cache, Index heads) {
  return [&cache, size = cache.k.extent(1), group = heads / cache.k.extent(2)](Index b, Index h,
                                                                               Index j) -> Where {
    const Index entry = j / size;
    return {entry < cache.block_table.extent(1) ? cache.block_table(cache.first + b, entry) : -1,
            j % size, h / group};
  };
}

void add_own(std::vector<Mistake>& known, const AttentionShape& shape, Index tile,
             const SeenCache& cache) {
  const Index heads = shape.heads, queries = shape.queries, keys = shape.keys, d = shape.head_dim,
              size = cache.k.extent(1), kv_heads = cache.k.extent(2), group = heads / kv_heads,
              first_query = keys - queries;
  // The mask is another one here, and these have names of their own.
  std::erase_if(known, [](const Mistake& one) {
    return one.kind == "mask" || one.name == "batch 0 of k and v in every batch" ||
           one.name.starts_with("head 0 of k") || one.name.starts_with("head 0 of v");
  });
  const char* kind = "pages";
  const auto add = [&](const char* name, const char* text, const Change& way) {
    known.push_back({name, text, kind, Group::kAlone, false, {way}});
  };
  const auto from = [&](Operand what, const Tensor<double, 4>& tensor, const Find& find) -> Change {
    const auto values =
        std::make_shared<const Tensor<double, 4>>(taken_out(tensor, cache, shape, find));
    return [what, values](Steps& steps) {
      if (values->size() == 0)
        steps.leaves_memory = true;
      else
        steps.read[what].from = values.get();
    };
  };
  const auto by = [&](const char* name, const char* text, const Find& find) {
    add(name, text, [k = from(kK, cache.k, find), v = from(kV, cache.v, find)](Steps& steps) {
      k(steps), v(steps);
    });
  };
  const Find own = places(cache, heads);
  by("first row of the page", "every key is taken from the first row of its page",
     [&](Index b, Index h, Index j) { return own(b, h, j - j % size); });
  by("block table not used", "key j is looked for in page j / page_size, without the block table",
     [&](Index, Index h, Index j) -> Where {
       return {j / size, j % size, h / group};
     });
  by("table of the first sequence", "all sequences use the block table of the first one",
     [&](Index, Index h, Index j) { return own(-cache.first, h, j); });
  by("row in a page of 16", "the row in the page is j % 16; pages have page_size rows",
     [&](Index b, Index h, Index j) -> Where {
       return {own(b, h, j).page, j % 16, h / group};
     });
  by("keys of the first part in every part",
     "each part reads the keys of the first one: add the part's first key",
     [&](Index b, Index h, Index j) { return own(b, h, j % cache.keys_each); });
  add("values from k", "the values are read from k, in place of v", from(kV, cache.k, own));
  const Index of_first = cache.lengths(0);
  add("length of the first sequence", "all sequences have the length of the first one",
      [=](Steps& steps) {
        steps.leaves_memory = of_first > keys;
        steps.sees = [=](auto& at) { return at.j <= at.i + of_first - queries; };
      });

  kind = "groups";
  by("kv heads in turn", "head h reads kv head h % kv_heads instead of h / (heads / kv_heads)",
     [&](Index b, Index h, Index j) { return own(b, h % kv_heads * group, j); });
  const Find first_head = [&](Index b, Index, Index j) { return own(b, 0, j); };
  by("first kv head for all", "all heads read the first kv head", first_head);
  add("values of the first kv head", "all heads read the values of the first kv head",
      from(kV, cache.v, first_head));
  add("keys of the first kv head", "all heads read the keys of the first kv head",
      from(kK, cache.k, first_head));

  kind = "last-queries";
  add("all queries see all keys", "each query sees the keys behind it, too",
      replace(&Steps::sees, [](auto&) { return true; }));
  add("own key missing", "a query does not see its own key, the last one",
      replace(&Steps::sees, [=](auto& at) { return at.j < at.i + first_query; }));
  const auto counts = [=](const std::function<bool(const Pair&)>& sees) {
    return [=](Steps& steps) {
      steps.end = [=](Index, Index) { return (keys + tile - 1) / tile * tile; };
      steps.sees = sees;
      steps.masked = [=](auto& at) { return at.j >= keys && sees(at) ? 0 : -INFINITY; };
    };
  };
  add("one key too many", "a query sees the key behind its own, too, which may be a row of zeros",
      counts([=](auto& at) { return at.j <= at.i + first_query + 1; }));
  add("keys counted from the tile's first one",
      "whether a row sees a key is asked of the key's place in the tile: add the tile's first key",
      counts([=](auto& at) { return at.j % tile <= at.i + first_query; }));
  Mistake& padded = named("padded keys counted", known);
  padded.by_block = false, padded.ways = {counts([](auto&) { return true; })};

  kind = "lanes";
  add("columns in the order of the sums",
      "a sum is stored in column p; it belongs to column c, which column_of_sum(p) gives",
      replace(&Steps::write, [=, chunk = cache.chunk](const Written& at, StepRow& row) {
        const StepRow was = row;
        for (Index p = 0, lanes = d / 8; at.output == Output::kOut && p < d; ++p) {
          const Index lane = p % (4 * lanes) / 4, n = p / (4 * lanes) * 4 + p % 4,
                      c = n / chunk * lanes * chunk + lane * chunk + n % chunk;
          row.value[p] = was.value[c], row.magnitude[p] = was.magnitude[c];
        }
      }));
  Index row_groups = 1;
  while (4 * row_groups < group * queries) row_groups *= 2;
  const Index of_warp = 256 / d;
  add_split_mistakes(known,
                     {cache.keys_each, tile, 8 / row_groups * of_warp, of_warp, cache.chunk});
}

}  // namespace

void add_keys(SeenForward& seen, const SeenCache& cache) {
  const Find find = places(cache, seen.shape.heads);
  seen.k.values = taken_out(cache.k, cache, seen.shape, find);
  seen.v.values = taken_out(cache.v, cache, seen.shape, find);
  seen.options.causal = true, seen.mask_offset = seen.shape.keys - seen.shape.queries;
  seen.key_by_key = true;
  seen.own_mistakes = [shape = seen.shape, tile = seen.block_keys,
                       kept = std::make_shared<const SeenCache>(cache)](auto& known) {
    add_own(known, shape, tile, *kept);
  };
}

}  // namespace flash::decode_cases
