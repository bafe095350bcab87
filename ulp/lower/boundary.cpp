#include "ulp/lower/boundary.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "ulp/libtorch/data_types.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

/// Ids come as integers, everything else as f32.
std::optional<DataType> input_type(at::ScalarType dtype) {
  const std::optional<DataType> type = libtorch::data_type_of(dtype);
  return type == DataType::f32 || type == DataType::i32 || type == DataType::i64 ? type : std::nullopt;
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
  if (integers) copy.attributes = move_of(whole_view(tensor, info_of(builder, tensor)), Layout::plain);
  return builder.emit(std::move(copy), name, form, shape_of(reader, *result));
}

}  // namespace

void add_input(Builder& builder, const Value* input) {
  const Node& node = *input->producer;
  const std::vector<int64_t> shape = caller_shape_of(node, *input);
  const std::optional<DataType> type = input_type(input->meta->dtype);
  if (!type) unsupported(node, "expected an input of f32, i32 or i64, got ", input->meta->dtype);
  const int32_t tensor = builder.add_tensor(input->name, {*type}, shape);
  builder.plan().inputs.push_back(tensor);
  const int64_t batch = batch_of(shape);
  if (batch == 0) return builder.bind(input, tensor);
  const int32_t rows = emit_move_batch(builder, tensor, 0, input->name + ".batch_first");
  const std::vector<int64_t> order = order_with(0, batch, shape.size());
  builder.bind_view(input, permuted(whole_view(rows, info_of(builder, rows)), order));
}

void add_output(Builder& builder, const Node& reader, const Value* result) {
  Form form = builder.form_of(reader, result);
  form.layout = Layout::plain;
  const bool held = form.type == DataType::i32 || form.type == DataType::i64;
  const bool integers = result->meta && result->meta->dtype == at::kLong;
  if (!held && !are_codes(*result, form)) form = {integers ? DataType::i64 : DataType::f32};
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
