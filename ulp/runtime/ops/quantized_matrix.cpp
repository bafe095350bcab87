#include "ulp/runtime/ops/quantized_matrix.h"

#include "ulp/runtime/ops/kernel_args.h"

namespace ulp::runtime {

bool has_coded_weight(const StepView& view) {
  const Constant* weight = view.constant("weight");
  return weight != nullptr && (weight->type == DataType::i8 || weight->type == DataType::u8);
}

QuantizedMatrix coded_matrix(const StepView& view, int64_t columns) {
  const Constant& weight = *view.constant("weight");
  const bool nibbles = weight.type == DataType::u8;
  const size_t rank = weight.shape.size();
  if (rank != 3 && (rank != 2 || nibbles)) {
    view.fail("expected a coded 'weight' of 3 dimensions, or of 2 in i8, got ", shape_text(weight.shape));
  }
  QuantizedMatrix matrix;
  matrix.bits = nibbles ? 4 : 8;
  matrix.rows = weight.shape[0];
  matrix.groups = rank == 3 ? weight.shape[1] : 1;
  matrix.group = weight.shape.back() * (nibbles ? 2 : 1);
  const int64_t stored = matrix.groups * matrix.group;
  matrix.columns = columns < 1 ? stored : columns;
  if (matrix.columns > stored || matrix.columns <= stored - matrix.group) {
    view.fail("expected a coded 'weight' of ", matrix.columns, " columns, got ", matrix.groups, " groups of ",
              matrix.group);
  }
  std::vector<int64_t> parts = {matrix.rows};
  if (rank == 3) parts.push_back(matrix.groups);
  view.expect_finite("weight_scale", parts);
  matrix.codes = reinterpret_cast<const uint8_t*>(weight.bytes.data());
  if (const Constant* zero = view.constant("weight_zero")) {
    if (!nibbles) view.fail("'weight_zero' is for 4-bit codes");
    view.expect_constant("weight_zero", DataType::u8, parts);
    matrix.zero = reinterpret_cast<const uint8_t*>(zero->bytes.data());
  }
  if (view.constant("weight_minimum") != nullptr) {
    if (!nibbles) view.fail("'weight_minimum' is for 4-bit codes");
    if (matrix.zero != nullptr) view.fail("expected 'weight_zero' or 'weight_minimum', got both");
    view.expect_finite("weight_minimum", parts);
  }
  return matrix;
}

QuantizedMatrix coded_matrix_with_scales(const StepView& view, int64_t columns) {
  QuantizedMatrix matrix = coded_matrix(view, columns);
  matrix.scale = floats_of(*view.constant("weight_scale"));
  if (const Constant* minimum = view.constant("weight_minimum")) matrix.minimum = floats_of(*minimum);
  return matrix;
}

}  // namespace ulp::runtime
