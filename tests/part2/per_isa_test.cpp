// The pieces that part 2's vectorised kernels are made of, in the vectors of the instruction set
// that the tests are compiled for.
#define FLASH_ISA native

#include <cmath>
#include <limits>
#include <vector>

#include "common/cpu/exp2.hpp"
#include "harness/catch.hpp"
#include "part2_flash_cpu/ladder/per_isa/transpose.hpp"

namespace native = flash::native;

namespace {

template <class T>
std::vector<T> exp2_of(const std::vector<T>& x) {
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); i += native::kLanes<T>)
    native::store(&y[i], native::exp2<T>(native::load(&x[i])));
  return y;
}

template <class T>
T exp2_of(T x) {
  return exp2_of(std::vector<T>(native::kLanes<T>, x)).back();
}

// The largest error of exp2 in [from, to], in units of the result's last place.
template <class T>
double worst_exp2(double from, double to) {
  std::vector<T> x(std::size_t{1} << 18);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(from +
                          (to - from) * static_cast<double>(i) / static_cast<double>(x.size() - 1));
  const std::vector<T> y = exp2_of(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double want = std::exp2(static_cast<long double>(x[i]));
    const T nearest = static_cast<T>(want),
            next = std::nextafter(nearest, std::numeric_limits<T>::infinity());
    const double ulps =
        static_cast<double>(std::fabs(static_cast<long double>(y[i]) - want) / (next - nearest));
    if (!(ulps <= worst)) worst = ulps;
  }
  return worst;
}

template <class T>
void check_transpose() {
  for (const flash::native::Index rows : {1, 3, 16, 17, 40})
    for (const flash::native::Index columns : {1, 4, 16, 33}) {
      CAPTURE(rows, columns);
      std::vector<T> from(static_cast<std::size_t>(rows * (columns + 2))),
          to(static_cast<std::size_t>(columns * (rows + 3)), T{-1});
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i);
      native::transpose<T>({from.data(), columns + 2}, rows, columns, T{2}, {to.data(), rows + 3});
      bool right = true;
      for (flash::native::Index c = 0; c < columns; ++c)
        for (flash::native::Index r = 0; r < rows + 3; ++r)
          right &= to[static_cast<std::size_t>(c * (rows + 3) + r)] ==
                   (r < rows ? static_cast<T>(2 * (r * (columns + 2) + c)) : T{-1});
      CHECK(right);
    }
}

}  // namespace

TEST_CASE("exp2 is off by at most 1.5 units in the last place, and ends in 0") {
  CHECK(worst_exp2<float>(-126, 127) <= 1.5);
  CHECK(worst_exp2<float>(-1, 0) <= 1.5);
  if (std::numeric_limits<long double>::digits > 60) {
    CHECK(worst_exp2<double>(-1022, 1023) <= 1.5);
    CHECK(worst_exp2<double>(-1, 0) <= 1.5);
  }
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(exp2_of(0.0f) == 1.0f);
  CHECK(exp2_of(0.0) == 1.0);
  CHECK(exp2_of(static_cast<float>(-infinity)) == 0.0f);
  CHECK(exp2_of(-infinity) == 0.0);
  CHECK(exp2_of(-127.0f) == 0.0f);
  CHECK(exp2_of(-1023.0) == 0.0);
  CHECK(exp2_of(-1e30f) == 0.0f);
  CHECK(std::isnan(exp2_of(static_cast<float>(nan))));
  CHECK(std::isnan(exp2_of(nan)));
}

TEST_CASE("a transposition has every element in its place, and writes no other") {
  check_transpose<float>();
  check_transpose<double>();
}
