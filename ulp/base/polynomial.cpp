#include "ulp/base/polynomial.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ulp/base/error.h"

namespace ulp {
namespace {

using Wide = __int128;

constexpr int kMostDegree = 2;

Wide product(Wide a, Wide b, const char* where) {
  Wide result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    fail(where, "expected numbers of at most 127 bits, got larger ones");
  return result;
}

Wide sum(Wide a, Wide b, const char* where) {
  Wide result = 0;
  if (__builtin_add_overflow(a, b, &result))
    fail(where, "expected numbers of at most 127 bits, got larger ones");
  return result;
}

Wide common_factor(Wide a, Wide b) {
  if (a < 0) a = -a;
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

int64_t narrow(Wide value, const char* where) {
  if (value < std::numeric_limits<int64_t>::min() || value > std::numeric_limits<int64_t>::max())
    fail(where, "expected a number of at most 64 bits, got a larger one");
  return static_cast<int64_t>(value);
}

/// A fraction in its lowest terms with a positive denominator.
struct Fraction {
  Wide numerator = 0, denominator = 1;

  static Fraction of(Wide numerator, Wide denominator) {
    if (denominator < 0) numerator = -numerator, denominator = -denominator;
    const Wide factor = std::max<Wide>(1, common_factor(numerator, denominator));
    return {numerator / factor, denominator / factor};
  }
  Fraction times(const Fraction& other) const {
    return of(product(numerator, other.numerator, kFit), product(denominator, other.denominator, kFit));
  }
  Fraction plus(const Fraction& other) const {
    return of(
        sum(product(numerator, other.denominator, kFit), product(other.numerator, denominator, kFit), kFit),
        product(denominator, other.denominator, kFit));
  }

  static constexpr const char* kFit = "base.fit";
};

/// binomial(t, k) with t = (x - base) / step, as the factors of 1, x and x^2.
std::array<std::array<Fraction, kMostDegree + 1>, kMostDegree + 1> binomials(const SizeGrid::Axis& axis) {
  const Wide base = axis.base, step = axis.step;
  const Wide square = step * step;
  return {{{Fraction{1, 1}, Fraction{}, Fraction{}},
           {Fraction::of(-base, step), Fraction::of(1, step), Fraction{}},
           // (x - base) (x - base - step) / (2 step^2)
           {Fraction::of(base * (base + step), 2 * square), Fraction::of(-(2 * base + step), 2 * square),
            Fraction::of(1, 2 * square)}}};
}

/// An index of every axis, counted like the digits of a number whose first digit is the lowest.
class Counter {
 public:
  explicit Counter(const SizeGrid& grid) : grid_(grid), at_(grid.axes.size(), 0) {}
  const std::vector<int>& at() const { return at_; }
  /// False after the last.
  bool next() {
    for (size_t i = 0; i < at_.size(); ++i) {
      if (++at_[i] <= grid_.axes[i].degree) return true;
      at_[i] = 0;
    }
    return false;
  }

 private:
  const SizeGrid& grid_;
  std::vector<int> at_;
};

/// Values at the points -> the factors of the products of binomials: differences along each axis.
std::vector<Wide> differences(const SizeGrid& grid, std::span<const int64_t> values) {
  std::vector<Wide> result(values.begin(), values.end());
  size_t stride = 1;
  for (const SizeGrid::Axis& axis : grid.axes) {
    const auto length = static_cast<size_t>(axis.degree) + 1;
    for (size_t pass = 1; pass < length; ++pass) {
      for (size_t i = result.size(); i-- > 0;) {
        if (i / stride % length >= pass) result[i] = sum(result[i], -result[i - stride], Fraction::kFit);
      }
    }
    stride *= length;
  }
  return result;
}

std::vector<int32_t> without_zeros_at_the_end(std::vector<int> powers) {
  while (!powers.empty() && powers.back() == 0) powers.pop_back();
  return {powers.begin(), powers.end()};
}

}  // namespace

int64_t Polynomial::at(std::span<const int64_t> sizes) const {
  constexpr const char* kWhere = "base.Polynomial";
  Wide numerator = 0, denominator = 1;
  for (const Term& term : terms) {
    Wide value = term.numerator;
    if (term.powers.size() > sizes.size())
      fail(kWhere, "expected at least ", term.powers.size(), " sizes, got ", sizes.size());
    for (size_t i = 0; i < term.powers.size(); ++i) {
      for (int32_t power = 0; power < term.powers[i]; ++power) value = product(value, sizes[i], kWhere);
    }
    numerator =
        sum(product(numerator, term.denominator, kWhere), product(value, denominator, kWhere), kWhere);
    denominator = product(denominator, term.denominator, kWhere);
    const Wide factor = std::max<Wide>(1, common_factor(numerator, denominator));
    numerator /= factor;
    denominator /= factor;
  }
  if (denominator != 1) fail(kWhere, "expected sizes at which it is whole, got others");
  return narrow(numerator, kWhere);
}

std::vector<std::vector<int64_t>> SizeGrid::points() const {
  std::vector<std::vector<int64_t>> result;
  Counter counter(*this);
  do {
    std::vector<int64_t> point;
    for (size_t i = 0; i < axes.size(); ++i) point.push_back(axes[i].base + counter.at()[i] * axes[i].step);
    result.push_back(std::move(point));
  } while (counter.next());
  return result;
}

Polynomial fit(const SizeGrid& grid, std::span<const int64_t> values) {
  size_t count = 1;
  for (const SizeGrid::Axis& axis : grid.axes) {
    if (axis.degree < 0 || axis.degree > kMostDegree)
      fail(Fraction::kFit, "expected degrees of at most ", kMostDegree, ", got ", axis.degree);
    count *= static_cast<size_t>(axis.degree) + 1;
  }
  if (values.size() != count) fail(Fraction::kFit, "expected ", count, " values, got ", values.size());
  const std::vector<Wide> factors = differences(grid, values);
  Polynomial result;
  Counter powers(grid);
  do {
    Fraction coefficient;
    size_t index = 0;
    Counter binomial(grid);
    do {
      Fraction part{factors[index++], 1};
      for (size_t i = 0; i < grid.axes.size() && part.numerator != 0; ++i) {
        const auto row = static_cast<size_t>(binomial.at()[i]), column = static_cast<size_t>(powers.at()[i]);
        part = part.times(binomials(grid.axes[i])[row][column]);
      }
      coefficient = coefficient.plus(part);
    } while (binomial.next());
    if (coefficient.numerator == 0) continue;
    result.terms.push_back({narrow(coefficient.numerator, Fraction::kFit),
                            narrow(coefficient.denominator, Fraction::kFit),
                            without_zeros_at_the_end(powers.at())});
  } while (powers.next());
  std::ranges::sort(result.terms, {}, &Polynomial::Term::powers);
  return result;
}

std::string to_text(const Polynomial& polynomial, std::span<const std::string> names) {
  std::string text;
  for (auto term = polynomial.terms.rbegin(); term != polynomial.terms.rend(); ++term) {
    const bool negative = term->numerator < 0;
    std::string factors;
    for (size_t i = 0; i < term->powers.size(); ++i) {
      for (int32_t power = 0; power < term->powers[i]; ++power)
        factors += (factors.empty() ? "" : "*") + (i < names.size() ? names[i] : std::string("?"));
    }
    const uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(term->numerator)
                                        : static_cast<uint64_t>(term->numerator);
    if (factors.empty() || magnitude != 1)
      factors = std::to_string(magnitude) + (factors.empty() ? "" : "*") + factors;
    if (term->denominator != 1) factors += "/" + std::to_string(term->denominator);
    if (text.empty()) {
      text = (negative ? "-" : "") + factors;
    } else {
      text += (negative ? " - " : " + ") + factors;
    }
  }
  return text.empty() ? "0" : text;
}

}  // namespace ulp
