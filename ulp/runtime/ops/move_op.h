// Attributes of move.
#pragma once

#include <vector>

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Sizes, strides and offsets of moves: no product of a size and a stride overflows.
inline constexpr int64_t kMaxMove = int64_t{1} << 31;

/// One dimension of the result's item as it lies in memory, and the step from element to element in the
/// memory of the input's item; 0 repeats, a negative one goes backwards.
struct MoveStride {
  int64_t size = 1;
  int64_t stride = 0;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "size", .min = 1, .max = kMaxMove}, size);
    visit({.name = "stride", .min = -kMaxMove, .max = kMaxMove}, stride);
  }
  bool operator==(const MoveStride&) const = default;
};

/// One size of a shape.
struct ItemSize {
  int64_t size = 1;

  void visit_fields(FieldVisitor& visit) { visit({.name = "size", .min = 1, .max = kMaxMove}, size); }
  bool operator==(const ItemSize&) const = default;
};

/// Element i of the result's item in memory, with i as the index of `strides` (the outermost first), is
/// element offset + the sum of index * stride of the input's item in memory.
struct MoveAttributes {
  std::vector<MoveStride> strides;
  int64_t offset = 0;
  std::vector<ItemSize> shape;  ///< of the result's item, in logical order

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "strides"}, strides, MoveStride{});
    visit({.name = "offset", .min = 0, .max = kMaxMove}, offset);
    visit({.name = "shape"}, shape, ItemSize{});
  }
  bool operator==(const MoveAttributes&) const = default;
};

}  // namespace ulp::runtime
