// Hopper's instructions one at a time (hopper_kernels.cu), on a Hopper GPU and on the emulator. How
// kernels put them together, and stmatrix, the rungs of part 3's ladder show on both.
#include <iostream>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/tensor_map.hpp"
#include "common/error.hpp"
#include "emulator/hopper_kernels.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;
using namespace flash::hopper_kernels;

namespace {

bool skipped_without_hopper() {
  if (harness::skipped_without_gpu()) return true;
  if (device::compute_capability() == 90) return false;
  std::cout << "verdict:needs-gpu" << std::endl;
  return true;
}

// 16-byte chunks of a row of 128 bytes, as TMA and wgmma have them in shared memory.
Index swizzled(Index row, Index column, Index chunk) {
  return (column / chunk ^ row % 8) * chunk + column % chunk;
}

// Numbers that tell where they come from, and that half has exactly.
template <class T>
Tensor<T, 4> numbered(const Shape<4>& shape) {
  Tensor<T, 4> x(shape);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = T((i * 7 + 3) % 2039);
  return x;
}

// Small ones, whose products and sums are exact in float32 in any order.
Tensor<float, 2> integers(Index rows, Index columns, int salt) {
  Tensor<float, 2> t({rows, columns});
  for (Index i = 0; i < t.size(); ++i)
    t.data()[i] = static_cast<float>((i * 37 + salt * 11) % 23 - 11);
  return t;
}

template <class T>
float at_or_zero(const Tensor<T, 4>& x, const Shape<4>& i) {
  for (int axis = 0; axis < 4; ++axis)
    if (i[axis] < 0 || i[axis] >= x.extent(axis)) return 0;
  return static_cast<float>(x(i[0], i[1], i[2], i[3]));
}

// `view` is of device memory that holds x.
template <class T>
void check_load(const Tensor<T, 4>& x, const TensorView<const T, 4>& view, const Shape<4>& place) {
  const Tensor<T, 2> box = loaded<T>(view, place);
  for (Index row = 0; row < box.extent(0); ++row)
    for (Index column = 0; column < box.extent(1); ++column) {
      CAPTURE(place[0], place[1], place[2], place[3], row, column);
      const Index at = swizzled(row, column, 16 / static_cast<Index>(sizeof(T)));
      REQUIRE(static_cast<float>(box(row, at)) ==
              at_or_zero(x, {place[0], place[1], place[2] + row, place[3] + column}));
    }
}

template <class T>
void check_loads(Index columns) {
  const auto x = numbered<T>({2, 3, 37, columns});
  const DeviceTensor<T, 4> memory(x);
  const TensorView<const T, 4> view = memory.view();
  for (const Shape<4>& place :
       {Shape<4>{0, 0, 0, 0}, Shape<4>{1, 2, 8, 0}, Shape<4>{0, 1, 32, 0}, Shape<4>{1, 0, -5, 0},
        Shape<4>{0, 2, 3, 64}, Shape<4>{1, 1, 0, -8}, Shape<4>{1, 1, 40, 0}, Shape<4>{2, 0, 0, 0}})
    check_load(x, view, place);
}

template <class T>
void check_store() {
  const auto before = numbered<T>({2, 2, 21, 72});
  const Index columns = 128 / static_cast<Index>(sizeof(T)),
              chunk = 16 / static_cast<Index>(sizeof(T));
  Tensor<T, 2> box({kBoxRows, columns});
  for (Index i = 0; i < box.size(); ++i) box.data()[i] = T(i % 1021);
  for (const Shape<4>& place :
       {Shape<4>{0, 1, 0, 0}, Shape<4>{1, 0, 16, 0}, Shape<4>{1, 1, 3, 64}}) {
    const DeviceTensor<T, 4> memory(before);
    stored<T>(memory.view(), place, box);
    const auto after = memory.to_host();
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 2; ++h)
        for (Index i = 0; i < 21; ++i)
          for (Index j = 0; j < 72; ++j) {
            const Index row = i - place[2], column = j - place[3];
            const bool inside = b == place[0] && h == place[1] && row >= 0 && row < kBoxRows &&
                                column >= 0 && column < columns;
            CAPTURE(b, h, i, j);
            const T want = inside ? box(row, swizzled(row, column, chunk)) : before(b, h, i, j);
            REQUIRE(static_cast<float>(after(b, h, i, j)) == static_cast<float>(want));
          }
  }
}

}  // namespace

TEST_CASE("wgmma multiplies by every layout of its operands") {
  if (skipped_without_hopper()) return;
  for (const Way& way : ways())
    for (const bool from_zero : {false, true}) {
      const auto a = integers(64, way.k, 1), b = integers(way.k, way.n, 2);
      const auto c = from_zero ? Tensor<float, 2>({64, way.n}) : integers(64, way.n, 3);
      const auto d = way.run(a, b, c);
      for (Index i = 0; i < 64; ++i)
        for (Index j = 0; j < way.n; ++j) {
          float want = c(i, j);
          for (Index k = 0; k < way.k; ++k) want += a(i, k) * b(k, j);
          CAPTURE(way.name, i, j);
          REQUIRE(d(i, j) == want);
        }
    }
}

TEST_CASE("the sum of a step is cut off 25 bits below its largest term, and to 24 bits") {
  if (skipped_without_hopper()) return;
  for (const Way& way : ways()) {
    // Of 1 and seven times `small`.
    const auto sum = [&way](double small) {
      Tensor<float, 2> a({64, way.k}), b({way.k, way.n});
      for (Index k = 0; k < 8; ++k) {
        for (Index j = 0; j < way.n; ++j) b(k, j) = k == 0 ? 1.0f : 0x1p-13f;
        for (Index i = 0; i < 64; ++i) a(i, k) = static_cast<float>(k == 0 ? 1 : small * 0x1p13);
      }
      const auto d = way.run(a, b, Tensor<float, 2>({64, way.n}));
      for (Index i = 0; i < d.size(); ++i) REQUIRE(d.data()[i] == d.data()[0]);
      return static_cast<double>(d.data()[0]);
    };
    CAPTURE(way.name);
    CHECK(sum(0x1p-26) == 1);
    CHECK(sum(-0x1p-26) == 1);
    CHECK(sum(0x1p-25) == 1 + 0x1p-23);  // 1 + 7 * 2^-25, of which 2^-23 is the last bit
    CHECK(sum(0x1p-25 + 0x1p-26) == 1 + 0x1p-23);
  }
}

TEST_CASE("TMA loads boxes, swizzled, with zeros outside of the tensor") {
  if (skipped_without_hopper()) return;
  check_loads<Half>(136);
  check_loads<float>(36);
}

TEST_CASE("a tensor map of what TMA cannot express is refused in words") {
  const auto refusal = [](Index offset, const Shape<4>& strides, int box_rows) -> std::string {
    alignas(16) static Half memory[8];
    try {
      (void)tensor_map(TensorView<Half, 4>(memory + offset, {2, 2, 2, 8}, strides), box_rows);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  const auto refused = [&](const std::string& words, const std::string& message) {
    CAPTURE(words, message);
    CHECK(message.find(words) != std::string::npos);
  };
  refused("data's address modulo 16 is 2 bytes", refusal(1, {32, 16, 8, 1}, 64));
  refused("stride 2 is 18 bytes; for TMA it must be a multiple of 16",
          refusal(0, {32, 16, 9, 1}, 64));
  refused("stride 0 is 66 bytes", refusal(0, {33, 16, 8, 1}, 64));
  refused("the stride of the columns is 2", refusal(0, {32, 16, 8, 2}, 64));
  refused("box_rows", refusal(0, {32, 16, 8, 1}, 257));
  refused("box_rows", refusal(0, {32, 16, 8, 1}, 0));
}

TEST_CASE("TMA loads from a tensor whose heads lie between its rows") {
  if (skipped_without_hopper()) return;
  const auto x = numbered<Half>({2, 37, 3, 64});  // (batch, rows, heads, columns)
  const DeviceTensor<Half, 4> memory(x);
  Tensor<Half, 4> swapped({2, 3, 37, 64});
  for (Index b = 0; b < 2; ++b)
    for (Index h = 0; h < 3; ++h)
      for (Index i = 0; i < 37; ++i)
        for (Index j = 0; j < 64; ++j) swapped(b, h, i, j) = x(b, i, h, j);
  const TensorView<const Half, 4> view(memory.data(), {2, 3, 37, 64}, {37 * 3 * 64, 64, 3 * 64, 1});
  check_load(swapped, view, {1, 2, 30, 0});
  check_load(swapped, view, {0, 1, 0, 0});
}

TEST_CASE("TMA stores boxes, inside of the tensor only") {
  if (skipped_without_hopper()) return;
  check_store<Half>();
  check_store<float>();
}
