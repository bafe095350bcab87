// Attributes of matmul.
#pragma once

#include <vector>

#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/ops/move_op.h"

namespace ulp::runtime {

/// A dimension of the result outside of the matrices, and the steps of both sides along it in elements; 0
/// where a side is the same matrix again.
struct MatmulLoop {
  int64_t size = 1, a = 0, b = 0;

  void visit_fields(FieldVisitor& visit) {
    const auto stride = [](const char* name) {
      return FieldInfo{.name = name, .min = -kMaxMove, .max = kMaxMove};
    };
    visit({.name = "size", .min = 1, .max = kMaxMove}, size);
    visit(stride("a"), a);
    visit(stride("b"), b);
  }
  bool operator==(const MatmulLoop&) const = default;
};

/// How a matrix lies in an item of its tensor, in elements.
struct MatmulSide {
  int64_t offset = 0, row = 0, column = 1;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "offset", .min = 0, .max = kMaxMove}, offset);
    visit({.name = "row", .min = -kMaxMove, .max = kMaxMove}, row);
    visit({.name = "column", .min = -kMaxMove, .max = kMaxMove}, column);
  }
  bool operator==(const MatmulSide&) const = default;
};

/// y[loops][rows][columns] = a[rows][inner] b[inner][columns], where the sides may lie in any strided way.
struct MatmulAttributes {
  std::vector<MatmulLoop> loops;
  MatmulSide a, b;
  int64_t rows = 1, inner = 1, columns = 1;
  std::vector<ItemSize> shape;  ///< of the result's item, in logical order

  void visit_fields(FieldVisitor& visit) {
    const auto size = [](const char* name) { return FieldInfo{.name = name, .min = 1, .max = kMaxMove}; };
    visit({.name = "loops"}, loops, MatmulLoop{});
    visit({.name = "a"}, a);
    visit({.name = "b"}, b);
    visit(size("rows"), rows);
    visit(size("inner"), inner);
    visit(size("columns"), columns);
    visit({.name = "shape"}, shape, ItemSize{});
  }
  bool operator==(const MatmulAttributes&) const = default;
};

}  // namespace ulp::runtime
