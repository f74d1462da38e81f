// What compare says, word for word: these are the sentences that students read.
#include "common/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/catch.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

// A (2, 40, 3) result that is right, to be spoilt.
struct Example {
  Tensor<float, 3> got{{2, 40, 3}};
  Tensor<double, 3> want{{2, 40, 3}};
  CompareOptions options;

  Example() {
    for (Index k = 0; k < want.size(); ++k) {
      want.data()[k] = 1 + static_cast<double>(k % 7);
      got.data()[k] = static_cast<float>(want.data()[k]);
    }
    options = {.max_scaled = 1e-5,
               .max_frobenius = 1e-5,
               .axes = {"batch", "row", "column"},
               .blocks = {0, 16, 0},
               .magnitude = nullptr};
  }

  Comparison compare() const { return flash::compare<3>(got.view(), want, options); }
};

}  // namespace

TEST_CASE("an equal result passes and reports its errors") {
  const Comparison c = Example().compare();
  CHECK(c.pass);
  CHECK(c.wrong == 0);
  CHECK(c.text == "scaled max error 0 (bound 1e-05), relative Frobenius error 0 (bound 1e-05)");
}

TEST_CASE("errors within the bound pass, beyond it they do not") {
  Example e;
  const double rms = [&] {
    double squares = 0;
    for (Index k = 0; k < e.want.size(); ++k) squares += e.want.data()[k] * e.want.data()[k];
    return std::sqrt(squares / static_cast<double>(e.want.size()));
  }();
  e.options.max_scaled = 1e-3;
  e.got(1, 2, 1) += static_cast<float>(0.9e-3 * rms);
  CHECK(e.compare().pass == false);  // the Frobenius bound
  e.options.max_frobenius = 1e-3;
  CHECK(e.compare().pass);
  e.got(1, 2, 1) += static_cast<float>(0.2e-3 * rms);
  CHECK_FALSE(e.compare().pass);
}

TEST_CASE("the verdict says what is wrong, where, and in which pattern") {
  // spoil(e), and the parts of the verdict that follow from it.
  const auto says = [](auto spoil, std::initializer_list<std::string> parts) {
    Example e;
    spoil(e);
    const Comparison c = e.compare();
    CHECK_FALSE(c.pass);
    for (const std::string& part : parts) CHECK_THAT(c.text, ContainsSubstring(part));
    return c;
  };
  const auto where = [&](auto wrong, const std::string& part) {
    says(
        [&](Example& e) {
          for (Index b = 0; b < 2; ++b)
            for (Index i = 0; i < 40; ++i)
              for (Index c = 0; c < 3; ++c)
                if (wrong(b, i, c)) e.got(b, i, c) = -1;
        },
        {part});
  };
  const auto rows = [&](auto wrong, const std::string& part) {
    where([&](Index, Index i, Index) { return wrong(i); }, part);
  };
  where([](Index b, Index i, Index) { return b == 1 && i > 32; },
        "21 of 240 elements are wrong: only batch 1, every row from 33 on\nfirst at batch 1, row "
        "33, column 0 (row block 2, row 1 in it): got -1, expected 3\n");
  rows([](Index i) { return i == 7; }, "wrong: only row 7\n");
  rows([](Index i) { return i >= 16 && i < 32; }, "wrong: only rows 16 to 31\n");
  rows([](Index i) { return i % 16 == 7; }, "wrong: one row in 16, from row 7\n");
  rows([](Index i) { return i % 8 >= 4; }, "wrong: rows 4 to 7 of each 8\n");
  rows([](Index i) { return i % 16 < 4; }, "of 240 elements are wrong\n");  // 2.5 times
  rows([](Index i) { return i % 8 >= 4 && i < 39; }, "of 240 elements are wrong\n");
  where([](Index, Index, Index c) { return c == 2; }, "wrong: only column 2\n");
  where([](Index, Index, Index) { return true; }, "240 of 240 elements are wrong: all of them\n");
  where([](Index b, Index i, Index) { return b == 0 && (i == 1 || i == 5 || i == 6); },
        "wrong: only batch 0\n");
  for (const auto& [axis, plural] :
       {std::pair{"query", "queries"}, {"key", "keys"}, {"batch", "batches"}})
    says(
        [axis = axis](Example& e) {
          e.options.axes[1] = axis;
          for (const Index i : {3, 4}) e.got(0, i, 0) += 100;
        },
        {"only " + std::string(plural) + " 3 to 4"});

  // NaN never passes, whatever the bound, and neither does one that is expected.
  const Comparison nan = says(
      [](Example& e) {
        e.options.max_scaled = e.options.max_frobenius = kInfinite;
        for (Index b = 0; b < 2; ++b)
          for (Index i = 3; i < 40; ++i) e.got(b, i, 1) = std::nanf("");
      },
      {"NaN in 74 elements: every row from 3 on, only column 1"});
  CHECK(std::isnan(nan.scaled_max));
  for (const float both : {std::nanf(""), kInfinite})
    says([&](Example& e) { e.want(0, 0, 0) = e.got(0, 0, 0) = both; }, {});
  says([](Example& e) { e.got(0, 4, 0) = kInfinite; }, {"infinite in 1 element"});
  says(
      [](Example& e) {
        e.got(0, 3, 0) = outside_value() * 2.0f;
        e.got(0, 3, 1) = -outside_value();
        e.got(0, 3, 2) = std::nanf("");
      },
      {"got NaN, expected",
       "NaN in 3 elements: only batch 0, only row 3\n2 of them made from what lies outside of the "
       "inputs",
       "scaled max error NaN (bound 1e-05), relative Frobenius error NaN"});

  // What was never written is told from what became NaN.
  const auto unwritten = [](Example& e) {
    for (Index b = 0; b < 2; ++b)
      for (Index c = 0; c < 3; ++c) e.got(b, 39, c) = poison();
  };
  const std::string text =
      says(unwritten, {"wrong: only row 39\n",
                       "got the old contents (never written, or added to them), expected",
                       "6 elements hold what was there before the call\n"})
          .text;
  CHECK_THAT(text, !ContainsSubstring("NaN in"));
  says(
      [&](Example& e) {
        unwritten(e);
        e.got(0, 0, 0) = 100;
      },
      {"6 elements hold what was there before the call: only row 39\n"});
  CHECK(is_poison(poison()));
  CHECK_FALSE(is_poison(std::nanf("")));

  const auto each = [&](auto change, const std::string& part) {
    return says(
               [&](Example& e) {
                 for (Index k = 0; k < e.got.size(); ++k)
                   e.got.data()[k] = change(k, e.got.data()[k]);
               },
               {part})
        .text;
  };
  each([](Index, float x) { return 2 * x; }, "the result is 2 times the expected one, everywhere");
  each([](Index, float x) { return x - 2; }, "the result is the expected one - 2, everywhere");
  each([](Index, float) { return 0.0f; }, "the result is 0 everywhere\n");
  each([](Index k, float) { return k % 2 == 0 ? 1e-6f : -3e-7f; },
       "the result is 0 everywhere, but for rounding\n");
  CHECK_THAT(each([](Index k, float) { return k % 2 == 0 ? 2e-4f : -6e-5f; }, ""),
             !ContainsSubstring("everywhere"));  // of no size that is constant
}

TEST_CASE("an axis with one index is not named, unless all have one") {
  CompareOptions options{.axes = {"batch", "query"}};
  const std::vector<float> got{1, 2};
  const std::vector<double> want{1, 3};
  CHECK_THAT(compare(got.data(), want.data(), {1, 2}, options).text,
             ContainsSubstring("first at query 1: got 2"));
  CHECK_THAT(compare(got.data(), want.data() + 1, {1, 1}, options).text,
             ContainsSubstring("first at batch 0, query 0: got 1"));
}

TEST_CASE("a magnitude takes the place of the result's size, element by element") {
  Example e;
  Tensor<double, 3> magnitude({2, 40, 3});
  for (Index k = 0; k < magnitude.size(); ++k) magnitude.data()[k] = 1000;
  e.options.magnitude = magnitude.data();
  e.options.max_frobenius = 1;
  e.got(0, 0, 0) += 0.005f;
  CHECK(e.compare().pass);
  magnitude(0, 0, 0) = 100;
  CHECK_FALSE(e.compare().pass);
  magnitude(0, 0, 0) = 0;  // nothing was summed: only an exact result passes
  CHECK_FALSE(e.compare().pass);
  e.got(0, 0, 0) = static_cast<float>(e.want(0, 0, 0));
  CHECK(e.compare().pass);
}

TEST_CASE("a result that float cannot hold is 0, whatever the magnitude") {
  Example spoilt;
  Tensor<double, 3> magnitude(spoilt.want.shape());
  std::copy_n(spoilt.want.data(), spoilt.want.size(), magnitude.data());
  spoilt.options.magnitude = magnitude.data();
  magnitude(0, 5, 1) = 5e-62, spoilt.want(0, 5, 1) = -5e-62;
  spoilt.got(0, 5, 1) = 0;
  CHECK(spoilt.compare().pass);
  magnitude(0, 5, 1) = 5e-37, spoilt.want(0, 5, 1) = -5e-37;
  CHECK(spoilt.compare().wrong == 1);
}

TEST_CASE("options that do not fit are refused") {
  Example e;
  e.options.axes = {"row"};
  CHECK_THROWS_WITH(e.compare(), "axes has 1 names; it must have one for each of the 3 axes");
  e = {};
  e.options.blocks = {1};
  CHECK_THROWS_AS(e.compare(), ArgumentError);
  e = {};
  e.options.max_scaled = std::nan("");
  CHECK_THROWS_AS(e.compare(), ArgumentError);
  const Tensor<float, 3> other({2, 40, 4});
  CHECK_THROWS_AS(compare<3>(other.view(), Example().want, Example().options), ShapeError);
}

TEST_CASE("an empty result is right") {
  const Tensor<float, 3> got({0, 3, 2});
  const Tensor<double, 3> want({0, 3, 2});
  CHECK(compare<3>(got.view(), want, Example().options).pass);
}
