#include "ulp/prune/storage/encoded_tensor_parts.h"

namespace ulp::prune {
namespace {

constexpr int kCodebookBit = 2, kNarrowBit = 3, kGapBit = 5;

}  // namespace

uint8_t Forms::byte() const {
  const int gaps = positions.kind == Positions::gaps ? positions.gap_bits - 1 : 0;
  return static_cast<uint8_t>(static_cast<int>(positions.kind) | (codebook ? 1 << kCodebookBit : 0) |
                              static_cast<int>(narrow) << kNarrowBit | gaps << kGapBit);
}

Forms Forms::of(uint8_t byte) {
  Forms forms;
  forms.positions.kind = static_cast<Positions>(byte & 3);
  if (forms.positions.kind == Positions::gaps) forms.positions.gap_bits = (byte >> kGapBit) + 1;
  forms.codebook = (byte >> kCodebookBit & 1) != 0;
  forms.narrow = static_cast<Narrow>(byte >> kNarrowBit & 3);
  const bool gaps = forms.positions.kind == Positions::gaps;
  if (forms.byte() != byte || forms.narrow > Narrow::f16 ||
      (gaps && forms.positions.gap_bits < kFewestGapBits))
    throw CodesProblem{"unknown forms " + std::to_string(byte)};
  return forms;
}

Grid grid_of(const std::vector<int64_t>& shape, uint64_t elements) {
  if (elements == 0 || shape.size() < 2) return {1, elements};
  const auto rows = static_cast<uint64_t>(shape[0]);
  return {rows, elements / rows};
}

void describe(TensorAccount& account, const Forms& forms, size_t entries) {
  account.positions = enum_name(forms.positions.kind);
  if (forms.positions.kind == Positions::gaps)
    account.positions += " of " + std::to_string(forms.positions.gap_bits) + " bits";
  account.values = forms.narrow == Narrow::bf16  ? "BF16"
                   : forms.narrow == Narrow::f16 ? "F16"
                                                 : account.dtype;
  if (forms.codebook) {
    account.values = std::to_string(entries) + " numbers " + account.values + " in " +
                     std::to_string(code_bits(entries)) + " bits";
  }
}

}  // namespace ulp::prune
