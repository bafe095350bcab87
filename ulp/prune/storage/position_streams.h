// Positions (positions.h) as streams. Internal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/prune/storage/bytes.h"
#include "ulp/prune/storage/entropy_coder.h"
#include "ulp/prune/storage/positions.h"

namespace ulp::prune {

/// A tensor as rows and columns: a row is an index of the first dimension; one row where it has fewer than
/// two.
struct Grid {
  uint64_t rows = 1, columns = 0;
  uint64_t elements() const { return rows * columns; }
};

/// How positions are written.
struct PositionForm {
  Positions kind = Positions::dense;
  int gap_bits = 0;  ///< of gaps, 2..8
  bool operator==(const PositionForm&) const = default;
};

/// False for csr with rows of more than 65,536 elements, or more than 2^32 - 1 elements stored.
ULP_API bool can_hold(const PositionForm& form, const Grid& grid, uint64_t stored);

/// Appends the positions, which rise. Dense ones take no bytes.
ULP_API void put_positions(Bytes& out, std::span<const int64_t> positions, const PositionForm& form,
                           const Grid& grid, EntropyCoder coder);

/// One byte an element, 1 where it is stored; `stored` of them are. Throws CodesProblem for what
/// put_positions() does not write. Takes at most eight bytes an element.
ULP_API std::vector<uint8_t> take_positions(ByteReader& reader, uint64_t stored, const PositionForm& form,
                                            const Grid& grid);

/// Passes over them without decoding.
void skip_positions(ByteReader& reader, uint64_t stored, const PositionForm& form, const Grid& grid);

}  // namespace ulp::prune
