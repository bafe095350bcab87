// Whole numbers that follow sizes which are known later: polynomials of them, found through samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {

/// A polynomial of sizes with rational coefficients. It is asked only where its value is whole.
struct ULP_API Polynomial {
  /// numerator / denominator times the product of sizes[i] to the power of powers[i].
  struct Term {
    int64_t numerator = 0;
    int64_t denominator = 1;      ///< > 0, without a common factor
    std::vector<int32_t> powers;  ///< as many as sizes at most; no zeros at the end
    bool operator==(const Term&) const = default;
  };
  /// No two of the same powers, none of 0, in the order of powers.
  std::vector<Term> terms;

  /// The value at these sizes. Throws ulp::Error where it is not whole, where a power asks for a size that is not
  /// given, and where a number on the way does not fit 127 bits or the result does not fit 64.
  int64_t at(std::span<const int64_t> sizes) const;
  /// No size changes it.
  bool constant() const { return terms.empty() || (terms.size() == 1 && terms[0].powers.empty()); }
  bool operator==(const Polynomial&) const = default;
};

/// The sizes at which something is looked at: along each axis base, base + step, ... up to degree + 1 of them, and every
/// combination of those. A polynomial of at most these degrees follows from its values there.
struct SizeGrid {
  struct Axis {
    int64_t base = 1;
    int64_t step = 1;  ///< not 0; may be negative
    int degree = 0;
  };
  std::vector<Axis> axes;

  /// All combinations; the first is the base of every axis, and the first axis changes fastest.
  ULP_API std::vector<std::vector<int64_t>> points() const;
};

/// The polynomial through `values` at the grid's points() in their order. Throws ulp::Error for another number of
/// values, degrees beyond 2 and coefficients that do not fit 64 bits.
ULP_API Polynomial fit(const SizeGrid& grid, std::span<const int64_t> values);

/// "2*time*N + time/2 - 1" with the sizes' names; "0" for no term.
ULP_API std::string to_text(const Polynomial& polynomial, std::span<const std::string> names);

}  // namespace ulp
