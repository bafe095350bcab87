// What writing and reading of coded tensors share. Internal.
#pragma once

#include <string>

#include "ulp/prune/storage/element_type.h"
#include "ulp/prune/storage/encoded_tensor.h"
#include "ulp/prune/storage/position_streams.h"

namespace ulp::prune {

inline constexpr size_t kMostEntries = 256;

/// The byte of forms of a coded tensor.
struct Forms {
  PositionForm positions;
  bool codebook = false;
  Narrow narrow = Narrow::none;
  uint8_t byte() const;
  /// Throws CodesProblem for a byte that byte() never gives.
  static Forms of(uint8_t byte);
};

/// Bits of the codes of so many entries: 0 for one.
inline int code_bits(size_t entries) {
  return std::bit_width(entries - 1);
}

/// As rows of the first dimension.
Grid grid_of(const std::vector<int64_t>& shape, uint64_t elements);

/// The account's words for the forms; `entries` of the codebook.
void describe(TensorAccount& account, const Forms& forms, size_t entries);

/// decode_tensor() that throws CodesProblem.
DecodedTensor decode_codes(std::span<const std::byte> bytes, uint64_t most_bytes);
/// read_account() that throws CodesProblem.
TensorAccount account_codes(std::span<const std::byte> bytes);

}  // namespace ulp::prune
