#include "ulp/lower/boundary.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "ulp/libtorch/data_types.h"
#include "ulp/runtime/ops/pointwise_op.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

constexpr std::array kInputTypes = {DataType::f32, DataType::i32, DataType::i64, DataType::u8};

/// Truth values and uint8 come as bytes, ids as integers, everything else as f32.
std::optional<DataType> input_type(at::ScalarType dtype) {
  if (dtype == at::kBool) return DataType::u8;
  const std::optional<DataType> type = libtorch::data_type_of(dtype);
  return type && std::ranges::count(kInputTypes, *type) > 0 ? type : std::nullopt;
}

bool is_rows(const graph::SizeExpr& size) {
  return size.numerator > 1 && size == graph::SizeExpr{size.numerator, 1, 0};
}

/// Rows of dimension 0 for each item of the batch, where that is several.
int64_t rows_an_item(const Value& value) {
  const bool rows = value.meta && !value.meta->sizes.empty() && is_rows(value.meta->sizes[0]);
  return rows ? value.meta->sizes[0].numerator : 1;
}

/// The only dimension whose size is not a number, where it is several rows for each item of the batch.
std::optional<size_t> dimension_of_rows(const Value& value) {
  std::optional<size_t> found;
  for (size_t d = 0; value.meta && d < value.meta->sizes.size(); ++d) {
    if (value.meta->sizes[d].constant()) continue;
    if (found || !is_rows(value.meta->sizes[d])) return std::nullopt;
    found = d;
  }
  return found;
}

/// The caller's sizes, with the batch as dimension 0 where that is rows of it.
std::vector<int64_t> sizes_for_caller(const Node& node, const Value& value) {
  return rows_an_item(value) > 1 ? shape_of(node, value) : caller_shape_of(node, value);
}

int64_t batch_of(const std::vector<int64_t>& shape) {
  return std::ranges::find(shape, runtime::kBatch) - shape.begin();
}

/// The order of dimensions in which dimension `from` stands at `to`.
std::vector<int64_t> order_with(int64_t from, int64_t to, size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), int64_t{0});
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return order;
}

const runtime::TensorInfo& info_of(Builder& builder, int32_t tensor) {
  return builder.plan().tensors[static_cast<size_t>(tensor)];
}

int32_t emit_move_batch(Builder& builder, int32_t tensor, int64_t to, const std::string& name) {
  const Form form{info_of(builder, tensor).type, Layout::plain, info_of(builder, tensor).scale,
                  info_of(builder, tensor).zero_point};
  Step step{.op = runtime::Op::move_batch, .name = name, .inputs = {tensor}};
  step.attributes = runtime::MoveBatchAttributes{.to = to};
  const std::vector<int64_t> shape = builder.plan().output_shape(step);
  return builder.emit(std::move(step), name, form, shape);
}

/// Bytes of the caller as truth values, 0 and 1, which steps compute in f32: every byte but 0 is true.
int32_t emit_truth(Builder& builder, int32_t tensor, const std::string& name) {
  using Operand = runtime::PointwiseOperand;
  const Operand byte{.kind = Operand::Kind::input, .index = 0, .number = 0};
  const Operand zero{.kind = Operand::Kind::number, .index = 0, .number = 0};
  runtime::PointwiseText program{{{kernels::PointwiseOp::ne, {byte, zero}}}};
  Step step{.op = runtime::Op::pointwise, .name = name, .inputs = {tensor}};
  step.attributes = runtime::PointwiseAttributes{std::move(program), 0};
  const std::vector<int64_t> shape = info_of(builder, tensor).shape;
  return builder.emit(std::move(step), name, {DataType::f32}, shape);
}

/// Whether the graph has codes there, too: those that are dequantized are numbers in it.
bool are_codes(const Value& result, const Form& held) {
  const bool bytes = result.meta && (result.meta->dtype == at::kByte || result.meta->dtype == at::kChar);
  return held.type == DataType::u8 && (bytes || result.producer->is("ulp::quantize"));
}

/// A result that has the batch first.
int32_t output_tensor(Builder& builder, const Node& reader, const Value* result, const Form& form) {
  const int32_t tensor = builder.as(reader, result, form);
  const runtime::Plan& plan = builder.plan();
  const auto is_in = [&](const std::vector<int32_t>& list) { return std::ranges::count(list, tensor) > 0; };
  if (!is_in(plan.inputs) && !is_in(plan.outputs)) return tensor;
  const bool integers = form.type == DataType::i32 || form.type == DataType::i64;
  const std::string name = result->name + ".copy";
  Step copy{.op = integers ? runtime::Op::move : runtime::Op::convert, .name = name, .inputs = {tensor}};
  runtime::TensorInfo item = info_of(builder, tensor);
  item.times = 1;  // the step sees rows
  if (integers) copy.attributes = move_of(whole_view(tensor, item), Layout::plain);
  return builder.emit(std::move(copy), name, form, shape_of(reader, *result));
}

/// Rows of the batch as they lie for the caller: steps of time may stand before it, as in [time * batch,
/// features], and other dimensions before both, as in [words, batch * time].
int32_t emit_result_rows(Builder& builder, const Node& reader, const Value* result, size_t dim,
                         const Form& form) {
  StridedView view = joined(builder.view_of(reader, result));
  const std::vector<Piece> pieces = view.dims.at(dim);
  const auto batch = std::ranges::find_if(pieces, &Piece::is_batch) - pieces.begin();
  if (batch == static_cast<std::ptrdiff_t>(pieces.size()))
    unsupported(reader, "expected '", result->name, "' to have the batch in its rows");
  if (batch == 0 && dim == 0) return output_tensor(builder, reader, result, form);
  // [batch, dimensions before, rows before..., rows behind..., others]
  const bool ahead = batch > 0, behind = batch + 1 < static_cast<std::ptrdiff_t>(pieces.size());
  const auto place = view.dims.begin() + static_cast<std::ptrdiff_t>(dim);
  std::vector<std::vector<Piece>> rows;
  if (ahead) rows.emplace_back(pieces.begin(), pieces.begin() + batch);
  if (behind) rows.emplace_back(pieces.begin() + batch + 1, pieces.end());
  view.dims.insert(view.dims.erase(place), rows.begin(), rows.end());
  view.dims.insert(view.dims.begin(), {pieces[static_cast<size_t>(batch)]});
  const auto kept = static_cast<int64_t>(dim);
  const int32_t items = builder.emit_view_as(reader, view, form, result->name + ".batch_first");
  const int32_t moved = emit_move_batch(builder, items, kept + (ahead ? 1 : 0), result->name + ".in_order");
  return builder.emit_rows(moved, behind ? 1 : 0, result->name, kept);
}

}  // namespace

void add_input(Builder& builder, const Value* input) {
  const Node& node = *input->producer;
  const std::vector<int64_t> shape = sizes_for_caller(node, *input);
  const std::optional<DataType> type = input_type(input->meta->dtype);
  if (!type) {
    unsupported(node, "expected an input of float32, int32, int64, uint8 or bool, got ", input->meta->dtype,
                ": cast it before the model, or inside of it to the type that it is read in");
  }
  const int32_t tensor = builder.add_tensor(input->name, {*type}, shape, rows_an_item(*input));
  builder.plan().inputs.push_back(tensor);
  const int64_t batch = batch_of(shape);
  const bool truth = input->meta->dtype == at::kBool;
  if (batch == 0)
    return builder.bind(input, truth ? emit_truth(builder, tensor, input->name + ".truth") : tensor);
  int32_t rows = emit_move_batch(builder, tensor, 0, input->name + ".batch_first");
  if (truth) rows = emit_truth(builder, rows, input->name + ".truth");
  const std::vector<int64_t> order = order_with(0, batch, shape.size());
  builder.bind_view(input, permuted(whole_view(rows, info_of(builder, rows)), order));
}

void add_output(Builder& builder, const Node& reader, const Value* result) {
  Form form = builder.form_of(reader, result);
  form.layout = Layout::plain;
  const bool held = form.type == DataType::i32 || form.type == DataType::i64;
  const bool integers = result->meta && result->meta->dtype == at::kLong;
  if (!held && !are_codes(*result, form)) form = {integers ? DataType::i64 : DataType::f32};
  if (const std::optional<size_t> rows = dimension_of_rows(*result)) {
    builder.plan().outputs.push_back(emit_result_rows(builder, reader, result, *rows, form));
    return;
  }
  const std::vector<int64_t> shape = caller_shape_of(*result->producer, *result);
  const int64_t batch = batch_of(shape);
  if (batch == 0) {
    builder.plan().outputs.push_back(output_tensor(builder, reader, result, form));
    return;
  }
  const StridedView rows = permuted(builder.view_of(reader, result), order_with(batch, 0, shape.size()));
  const int32_t tensor = builder.emit_view_as(reader, rows, form, result->name + ".batch_first");
  builder.plan().outputs.push_back(emit_move_batch(builder, tensor, batch, result->name));
}

}  // namespace ulp::lowering
