// Where the stored elements of a sparse tensor are, in four forms.
#pragma once

#include "ulp/base/enum_names.h"

namespace ulp::prune {

/// How positions of stored elements are written. Elements are counted in row-major order.
enum class Positions : uint8_t {
  dense,    ///< every element is stored
  bitmask,  ///< one bit an element
  /// The count of zeros before each stored element, in few bits (Han, Mao and Dally 2016, "Deep compression",
  /// section 2). The largest code is the filler: so many zeros, and no element. The paper stores a value with
  /// a filler, we do not.
  gaps,
  /// The column of each in 16 bits, and for each row where it ends in 32; a row is an index of the first dimension.
  csr
};

inline constexpr int kFewestGapBits = 2, kMostGapBits = 8;

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::Positions> {
  static constexpr std::array<Word<prune::Positions>, 4> list = {
      {{prune::Positions::dense, "dense", "every element is stored"},
       {prune::Positions::bitmask, "bitmask", "one bit an element"},
       {prune::Positions::gaps, "gaps", "zeros before each stored element, in few bits"},
       {prune::Positions::csr, "csr", "columns in 16 bits, ends of rows in 32"}}};
};
