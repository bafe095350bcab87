// Attributes of attention.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// What a query gets that sees no key: where the mask, and what is hidden because it comes later, leave none.
enum class BlindQueries : uint8_t {
  zeros,
  nan,  ///< as the softmax of nothing but -infinity
  mean  ///< of all values, later ones too: as the softmax of equal numbers
};

}  // namespace ulp::runtime

namespace ulp {

template <>
struct EnumNames<runtime::BlindQueries> {
  using enum runtime::BlindQueries;
  static constexpr std::array<Word<runtime::BlindQueries>, 3> list = {
      {{zeros, "zeros"}, {nan, "nan"}, {mean, "mean"}}};
};

}  // namespace ulp

namespace ulp::runtime {

/// How the heads of an attention step look.
struct AttentionAttributes {
  int64_t heads = 1;
  float scale = 1.0F;   ///< of the products of queries and keys
  bool causal = false;  ///< query i sees keys 0 to i
  /// Above 0: the keys and values of a run stay with the context, so many rows, and its queries see those of earlier
  /// runs, too. Causal only.
  int64_t kept = 0;
  BlindQueries blind = BlindQueries::zeros;
  int64_t kv_heads = 0;  ///< of keys and values, shared by heads of queries; 0: as many as `heads`
  int64_t window = 0;    ///< above 0: of the keys up to its own a query sees the last so many. Causal only.
  float softcap = 0;     ///< above 0: scores become softcap * tanh(score / softcap) before the mask

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "heads", .min = 1}, heads);
    visit({.name = "scale", .min = -kLargestFloat, .max = kLargestFloat}, scale);
    visit({.name = "causal"}, causal);
    visit({.name = "kept", .min = 0}, kept);
    visit({.name = "blind"}, blind);
    visit({.name = "kv_heads", .min = 0}, kv_heads);
    visit({.name = "window", .min = 0}, window);
    visit({.name = "softcap", .min = 0, .max = kLargestFloat}, softcap);
  }
  bool operator==(const AttentionAttributes&) const = default;
};

}  // namespace ulp::runtime
