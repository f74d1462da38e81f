#include "common/compare.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <type_traits>

#include "common/half.hpp"

namespace flash {
namespace {

template <class T>
struct Payload {  // quiet NaNs of Half and of BFloat16
  using Bits = std::uint16_t;
  static constexpr Bits kPoison = 0x7fed, kOutside = 0x7fef;
};
template <>
struct Payload<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kPoison = 0x7fc0dead, kOutside = 0x7fc0beef;
};
template <>
struct Payload<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kPoison = 0x7ff80000'0000dead, kOutside = 0x7ff80000'0000beef;
};

using Extents = std::vector<Index>;

std::vector<Index> unflatten(Index flat, const Extents& shape) {
  std::vector<Index> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0; flat /= shape[axis])
    index[axis] = flat % shape[axis];
  return index;
}

// "batch 1, row 33, column 4", without the axes that have one index only, unless all have.
std::string at(const std::vector<Index>& index, const Extents& shape,
               const CompareOptions& options) {
  std::string all, text;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    const std::string place = options.axes[axis] + " " + std::to_string(index[axis]);
    all += (all.empty() ? "" : ", ") + place;
    if (shape[axis] > 1) text += (text.empty() ? "" : ", ") + place;
  }
  return text.empty() ? all : text;
}

// " (row block 2, row 1 in it)", for the axes that have blocks smaller than the axis
std::string block_of(const std::vector<Index>& index, const Extents& shape,
                     const CompareOptions& options) {
  std::string text;
  for (std::size_t axis = 0; axis < options.blocks.size(); ++axis) {
    const Index block = options.blocks[axis];
    if (block < 1 || block >= shape[axis]) continue;
    text += (text.empty() ? " (" : "; ") + options.axes[axis] + " block " +
            std::to_string(index[axis] / block) + ", " + options.axes[axis] + " " +
            std::to_string(index[axis] % block) + " in it";
  }
  return text.empty() ? "" : text + ")";
}

// "rows", "queries", "keys", "batches"
std::string plural(const std::string& name) {
  if (name.ends_with("y") && !name.ends_with("ey")) return name.substr(0, name.size() - 1) + "ies";
  return name + (name.ends_with("ch") ? "es" : "s");
}

// "rows 4 to 7 of each 8": the same neighbours in each block, which fits three times; "" for
// others.
std::string describe_blocks(const std::vector<Index>& marked, Index extent,
                            const std::string& name) {
  std::size_t run = 1;  // neighbours from the first one on
  while (run < marked.size() && marked[run] == marked[run - 1] + 1) ++run;
  if (run == 1 || run == marked.size()) return "";
  const Index first = marked.front(), last = marked[run - 1], block = marked[run] - first;
  if (last >= block || extent < 3 * block) return "";
  std::size_t found = 0;
  for (Index i = first; i < extent; ++i)
    if (i % block >= first && i % block <= last)
      if (found == marked.size() || marked[found++] != i) return "";
  return found < marked.size() ? ""
                               : plural(name) + " " + std::to_string(first) + " to " +
                                     std::to_string(last) + " of each " + std::to_string(block);
}

// Which indices of one axis have a marked element, in words; empty when all have, or when they
// follow no simple rule.
std::string describe_axis(const std::vector<Index>& marked, Index extent, const std::string& name) {
  const Index count = static_cast<Index>(marked.size()), first = marked.front(),
              last = marked.back();
  if (count == extent) return "";
  if (count == 1) return "only " + name + " " + std::to_string(first);
  if (last - first + 1 == count) {
    if (last == extent - 1) return "every " + name + " from " + std::to_string(first) + " on";
    return "only " + plural(name) + " " + std::to_string(first) + " to " + std::to_string(last);
  }
  const Index step = marked[1] - first;
  bool regular = count > 2 && last + step >= extent;  // the rule holds to the end of the axis
  for (Index i = 1; i < count; ++i) regular &= marked[i] == first + i * step;
  if (regular)
    return "one " + name + " in " + std::to_string(step) + ", from " + name + " " +
           std::to_string(first);
  return describe_blocks(marked, extent, name);
}

// "only batch 1, every row from 96 on"
std::string describe(const std::vector<bool>& mask, const Extents& shape,
                     const CompareOptions& options) {
  std::vector<std::vector<bool>> seen;
  for (const Index extent : shape) seen.emplace_back(extent, false);
  for (std::size_t flat = 0; flat < mask.size(); ++flat) {
    if (!mask[flat]) continue;
    const auto index = unflatten(static_cast<Index>(flat), shape);
    for (std::size_t axis = 0; axis < shape.size(); ++axis) seen[axis][index[axis]] = true;
  }
  std::string text;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    std::vector<Index> marked;
    for (Index i = 0; i < shape[axis]; ++i)
      if (seen[axis][i]) marked.push_back(i);
    const std::string part = describe_axis(marked, shape[axis], options.axes[axis]);
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

// The factor c for which got is c * want in every element, if there is one.
template <class T>
bool constant_factor(const T* got, const double* want, Index count, double scale, double* factor) {
  double dot = 0, norm = 0;
  for (Index i = 0; i < count; ++i) {
    dot += got[i] * want[i];
    norm += want[i] * want[i];
  }
  if (!(norm > 0)) return false;
  *factor = dot / norm;
  for (Index i = 0; i < count; ++i)
    if (!(std::fabs(got[i] - *factor * want[i]) <= 1e-4 * std::fabs(*factor) * scale)) return false;
  return true;
}

// The number d for which got is want + d in every element, if there is one.
template <class T>
bool constant_difference(const T* got, const double* want, Index count, double* difference) {
  *difference = got[0] - want[0];
  for (Index i = 0; i < count; ++i)
    if (!(std::fabs(got[i] - want[i] - *difference) <= 1e-4 * std::fabs(*difference))) return false;
  return true;
}

std::string number(double value, int digits = 6) {
  if (std::isnan(value)) return "NaN";  // printed as -nan where the sign is set
  std::ostringstream text;
  text.precision(digits);
  text << value;
  return text.str();
}

}  // namespace

template <class T>
T poison() noexcept {
  return std::bit_cast<T>(Payload<T>::kPoison);
}
template <class T>
bool is_poison(T value) noexcept {
  return std::bit_cast<typename Payload<T>::Bits>(value) == Payload<T>::kPoison;
}

template <class T>
T outside_value() noexcept {
  return std::bit_cast<T>(Payload<T>::kOutside);
}
template <class T>
bool is_outside_value(T value) noexcept {
  using Bits = typename Payload<T>::Bits;
  return (std::bit_cast<Bits>(value) & static_cast<Bits>(~Bits{0}) >> 1) ==
         Payload<T>::kOutside;  // a negated NaN keeps its payload
}

template <class T>
Comparison compare(const T* got, const double* want, const std::vector<Index>& shape,
                   const CompareOptions& options) {
  if (options.axes.size() != shape.size())
    throw ArgumentError("axes has " + std::to_string(options.axes.size()) +
                        " names; it must have one for each of the " + std::to_string(shape.size()) +
                        " axes");
  if (!options.blocks.empty() && options.blocks.size() != shape.size())
    throw ArgumentError("blocks has " + std::to_string(options.blocks.size()) +
                        " sizes; it must be empty or have one for each of the " +
                        std::to_string(shape.size()) + " axes");
  if (!(options.max_scaled >= 0) || !(options.max_frobenius >= 0))
    throw ArgumentError("the bounds are " + number(options.max_scaled) + " and " +
                        number(options.max_frobenius) + "; both must be at least 0");

  Index count = 1;
  for (const Index extent : shape) count *= extent;

  double squares = 0;
  for (Index i = 0; i < count; ++i) squares += want[i] * want[i];
  const double rms = count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;

  Comparison result;
  std::vector<bool> is_wrong(count), is_nan(count), is_unwritten(count);
  Index nans = 0, outside = 0, infinities = 0, unwritten = 0, first_wrong = -1;
  double error_squares = 0;
  // Of float and BFloat16; what Half loses is a part of the magnitude (oracle.hpp).
  constexpr double kLeast = std::is_same_v<T, double> ? std::numeric_limits<double>::min()
                                                      : std::numeric_limits<float>::min();
  for (Index i = 0; i < count; ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    const double scale = options.magnitude ? options.magnitude[i] : rms;
    // Below the least normal number there are fewer digits, or none. So an exact result also passes
    // where the scale is 0 (no visible key, say).
    const double scaled = error < kLeast ? 0 : error / scale;
    if (std::isnan(got[i])) {
      is_nan[i] = true;
      is_unwritten[i] = is_poison(got[i]);
      ++(is_poison(got[i]) ? unwritten : nans);
      outside += is_outside_value(got[i]);
    } else if (std::isinf(got[i])) {
      ++infinities;
    }
    is_wrong[i] = !(scaled <= options.max_scaled) || !std::isfinite(want[i]);
    if (is_wrong[i]) {
      ++result.wrong;
      if (first_wrong < 0) first_wrong = i;
    }
    // Once NaN, it stays NaN: nothing is larger. (fmax would drop it.)
    if (std::isnan(scaled) || scaled > result.scaled_max) result.scaled_max = scaled;
    error_squares += error * error;
  }
  result.frobenius = error_squares == 0 ? 0 : std::sqrt(error_squares / squares);
  result.pass = result.wrong == 0 && result.frobenius <= options.max_frobenius;

  std::string errors = "scaled max error " + number(result.scaled_max, 3) + " (bound " +
                       number(options.max_scaled, 3) + ")";
  if (options.max_frobenius < std::numeric_limits<double>::max())
    errors += ", relative Frobenius error " + number(result.frobenius, 3) + " (bound " +
              number(options.max_frobenius, 3) + ")";
  if (result.pass) {
    result.text = errors;
    return result;
  }
  if (result.wrong == 0) {
    result.text = "Every element is within its own bound, but together they are not.\n" + errors;
    return result;
  }

  const auto index = unflatten(first_wrong, shape);
  int digits = 6;  // as many as it takes to show the difference
  while (digits < 17 && number(got[first_wrong], digits) == number(want[first_wrong], digits))
    ++digits;
  const std::string pattern = describe(is_wrong, shape, options);
  std::ostringstream verdict;
  verdict << result.wrong << " of " << count << (count == 1 ? " element is" : " elements are")
          << " wrong"
          << (result.wrong == count ? ": all of them"
              : pattern.empty()     ? ""
                                    : ": " + pattern)
          << "\n";
  verdict << "first at " << at(index, shape, options) << block_of(index, shape, options) << ": got "
          << (is_poison(got[first_wrong]) ? "the old contents (never written, or added to them)"
                                          : number(got[first_wrong], digits))
          << ", expected " << number(want[first_wrong], digits);
  if (unwritten > 0) {
    const std::string where =
        unwritten < result.wrong ? describe(is_unwritten, shape, options) : "";  // said above
    verdict << "\n"
            << unwritten << (unwritten == 1 ? " element holds" : " elements hold")
            << " what was there before the call" << (where.empty() ? "" : ": " + where);
  }
  if (nans > 0) {
    const std::string where = describe(is_nan, shape, options);
    verdict << "\nNaN in " << nans << (nans == 1 ? " element" : " elements")
            << (where.empty() ? "" : ": " + where);
    if (outside > 0)
      verdict << "\n"
              << outside
              << " of them made from what lies outside of the inputs: a read beyond their end";
  }
  if (infinities > 0)
    verdict << "\ninfinite in " << infinities << (infinities == 1 ? " element" : " elements");
  if (nans + infinities + unwritten == 0) {
    double factor = 0, difference = 0, largest = 0;
    const bool differs = count > 1 && constant_difference(got, want, count, &difference);
    const std::string added = (difference < 0 ? " - " : " + ") + number(std::fabs(difference));
    for (Index i = 0; i < count; ++i)
      largest = std::fmax(largest, std::fabs(static_cast<double>(got[i])));
    if (largest <= 1e-5 * rms)
      verdict << "\nthe result is 0 everywhere" << (largest > 0 ? ", but for rounding" : "");
    else if (count > 1 && constant_factor(got, want, count, rms, &factor) &&
             std::fabs(factor - 1) > 1e-3)
      verdict << "\nthe result is " << number(factor) << " times the expected one, everywhere"
              << (differs ? "; it is also the expected one" + added : "");
    else if (differs)
      verdict << "\nthe result is the expected one" << added << ", everywhere";
  }
  result.text = verdict.str() + "\n" + errors;
  return result;
}

template <int Rank>
double frobenius_bound(double bound, const Tensor<double, Rank>& want,
                       const Tensor<double, Rank>& magnitude) {
  double squares = 0, magnitude_squares = 0;
  for (Index i = 0; i < want.size(); ++i) {
    squares += want.data()[i] * want.data()[i];
    magnitude_squares += magnitude.data()[i] * magnitude.data()[i];
  }
  return squares > 0 ? bound * std::sqrt(magnitude_squares / squares)
                     : std::numeric_limits<double>::infinity();
}
template double frobenius_bound(double, const Tensor<double, 3>&, const Tensor<double, 3>&);
template double frobenius_bound(double, const Tensor<double, 4>&, const Tensor<double, 4>&);

#define FLASH_INSTANTIATE(T)                                                      \
  template T poison<T>() noexcept;                                                \
  template bool is_poison(T) noexcept;                                            \
  template T outside_value<T>() noexcept;                                         \
  template bool is_outside_value(T) noexcept;                                     \
  template Comparison compare(const T*, const double*, const std::vector<Index>&, \
                              const CompareOptions&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
