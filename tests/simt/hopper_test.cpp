// Hopper's instructions one at a time (hopper_kernels.cu), on a Hopper GPU and on the emulator.
#include <cmath>
#include <iostream>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/tensor_map.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "simt/hopper_kernels.hpp"
#include "simt/products.hpp"

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
void check_store(bool add) {
  const auto before = numbered<T>({2, 2, 21, 72});
  const Index columns = 128 / static_cast<Index>(sizeof(T)),
              chunk = 16 / static_cast<Index>(sizeof(T));
  Tensor<T, 2> box({kBoxRows, columns});
  for (Index i = 0; i < box.size(); ++i) box.data()[i] = T(i % 1021);
  for (const Shape<4>& place :
       {Shape<4>{0, 1, 0, 0}, Shape<4>{1, 0, 16, 0}, Shape<4>{1, 1, 3, 64}}) {
    const DeviceTensor<T, 4> memory(before);
    stored<T>(memory.view(), place, box, add);
    const auto after = memory.to_host();
    for (Index b = 0; b < 2; ++b)
      for (Index h = 0; h < 2; ++h)
        for (Index i = 0; i < 21; ++i)
          for (Index j = 0; j < 72; ++j) {
            const Index row = i - place[2], column = j - place[3];
            const bool inside = b == place[0] && h == place[1] && row >= 0 && row < kBoxRows &&
                                column >= 0 && column < columns;
            const float was = static_cast<float>(before(b, h, i, j));
            CAPTURE(add, b, h, i, j);
            float want = was;
            if (inside)
              want = static_cast<float>(box(row, swizzled(row, column, chunk))) + (add ? was : 0);
            REQUIRE(static_cast<float>(after(b, h, i, j)) == want);
          }
  }
}

}  // namespace

TEST_CASE("wgmma multiplies by every layout of its operands") {
  if (skipped_without_hopper()) return;
  for (const Way& way : ways()) {
    products::check(way, 64, products::integers(64, way.k, 1), products::integers(way.k, way.n, 2),
                    products::integers(64, way.n, 3), 0);
    products::check(way, 64, products::integers(64, way.k, 4), products::integers(way.k, way.n, 5),
                    Tensor<float, 2>({64, way.n}), 0);
    // Of 16 products and what is there, in each step of 16: 2 u a term, and u for the result.
    products::check_random(way, 64, 2 * 0x1p-24 * (16 + 1) * (way.k / 16));
  }
}

TEST_CASE("the sum of a step is cut off 25 bits below its largest term, and to 24 bits") {
  if (skipped_without_hopper()) return;
  for (const Way& way : ways()) products::check_truncation(way, 64);
}

TEST_CASE("stmatrix stores rows, or columns") {
  if (skipped_without_hopper()) return;
  for (const int count : {2, 4})
    for (const bool transpose : {false, true}) {
      const std::vector<int> stored = stored_matrices(count, transpose);
      for (int i = 0; i < count; ++i)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column) {
            const int g = transpose ? column : row, pair = transpose ? row : column;
            CAPTURE(count, transpose, i, row, column);
            REQUIRE(stored[static_cast<std::size_t>((8 * i + row) * 8 + column)] ==
                    100 * (4 * g + pair / 2) + 2 * i + pair % 2);
          }
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

TEST_CASE("TMA stores boxes, and adds them, inside of the tensor only") {
  if (skipped_without_hopper()) return;
  check_store<Half>(false);
  check_store<float>(false);
  check_store<float>(true);
}

TEST_CASE("mbarriers, named barriers and the register split carry a pipeline") {
  if (skipped_without_hopper()) return;
  for (const Index rows : {16, 100, 333}) {
    const auto x = numbered<Half>({1, 1, rows, 64});
    const DeviceTensor<Half, 4> memory(x);
    const TensorView<const Half, 4> view = memory.view();
    const auto sums = column_sums(view);
    for (Index column = 0; column < 64; ++column) {
      float want = 0;
      for (Index row = 0; row < rows; ++row) want += static_cast<float>(x(0, 0, row, column));
      CAPTURE(rows, column);
      CHECK(sums(0, column) == want);
      CHECK(sums(1, column) == want);
    }
  }
}
