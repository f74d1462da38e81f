#include "common/tensor.hpp"

#include <cstdint>
#include <utility>

#include "harness/catch.hpp"

using namespace flash;

TEST_CASE("a tensor is row-major, aligned, and starts at zero") {
  Tensor<float, 3> t({2, 3, 5});
  CHECK(t.size() == 30);
  CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
  for (Index k = 0; k < t.size(); ++k) CHECK(t.data()[k] == 0);
  t(1, 2, 3) = 7;
  CHECK(t.data()[1 * 15 + 2 * 5 + 3] == 7);
  CHECK(t.view().strides() == Shape<3>{15, 5, 1});
}

TEST_CASE("copies are deep, moves are not") {
  Tensor<float, 2> a({2, 2});
  a(1, 1) = 3;
  Tensor<float, 2> b = a;
  b(1, 1) = 4;
  CHECK(a(1, 1) == 3);
  const float* data = b.data();
  const Tensor<float, 2> c = std::move(b);
  CHECK(c.data() == data);
  a = c;
  CHECK(a(1, 1) == 4);
}

TEST_CASE("a view walks by its strides: transposed, skipping, broadcast") {
  Tensor<float, 2> t({3, 4});
  for (Index k = 0; k < t.size(); ++k) t.data()[k] = static_cast<float>(k);
  const TensorView<const float, 2> transposed(t.data(), {4, 3}, {1, 4});
  CHECK(transposed(3, 2) == t(2, 3));
  const TensorView<const float, 2> every_other(t.data(), {3, 2}, {4, 2});
  CHECK(every_other(2, 1) == t(2, 2));
  const TensorView<const float, 2> repeated(t.data(), {5, 4}, {0, 1});
  CHECK(repeated(4, 3) == t(0, 3));
  const TensorView<const float, 2> readable = t.view();  // mutable converts to const
  CHECK(readable(1, 2) == 6);
}

TEST_CASE("impossible shapes are refused") {
  CHECK_THROWS_WITH((Tensor<float, 2>({2, -1})),
                    "a shape is (2, -1); every extent must be at least 0");
  CHECK_THROWS_AS((Tensor<float, 2>({Index{1} << 40, Index{1} << 40})), ShapeError);
  CHECK_THROWS_AS((TensorView<float, 1>(nullptr, {-5})), ShapeError);
}

TEST_CASE("a tensor may be empty") {
  const Tensor<float, 3> t({2, 0, 5});
  CHECK(t.size() == 0);
  CHECK(t.view().size() == 0);
}
