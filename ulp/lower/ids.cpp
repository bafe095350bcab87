#include "ulp/lower/ids.h"

#include "ulp/lower/match.h"
#include "ulp/lower/ops.h"
#include "ulp/runtime/ops/pointwise_op.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;

namespace {

void expect_integers(const Node& reader, const Value* value, DataType held, int64_t size) {
  if (held == DataType::i32 || held == DataType::i64) return;
  const bool whole = value->meta && at::isIntegralType(value->meta->dtype, false);
  if (!whole || held != DataType::f32) {
    unsupported(reader, "expected '", value->name, "' to hold integers, got ", to_string(held));
  }
  if (size > kExactInFloat) {
    unsupported(reader, "expected computed ids of at most ", kExactInFloat, " rows, got ", size);
  }
}

}  // namespace

int64_t dimension_of(const Node& node, const std::vector<int64_t>& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t dim = int_arg(node, "dim");
  dim += dim < 0 ? rank : 0;
  if (dim < 1 || dim >= rank) {
    unsupported(node, "expected another dimension of '", value_arg(node, "self")->name,
                "' than the batch, got ", int_arg(node, "dim"));
  }
  return dim;
}

bool holds_integers(Builder& builder, const Node& reader, const Value* value) {
  const DataType type = builder.form_of(reader, value).type;
  return type == DataType::i32 || type == DataType::i64;
}

Form held_form(Builder& builder, const Node& reader, const Value* value) {
  Form form = builder.form_of(reader, value);
  form.layout = Layout::plain;
  return form;
}

int32_t ids_tensor(Builder& builder, const Node& reader, const Value* value, int64_t size) {
  const Form form = held_form(builder, reader, value);
  expect_integers(reader, value, form.type, size);
  return builder.as(reader, value, form.type == DataType::f32 ? Form{DataType::i64} : form);
}

int32_t ids_tensor(Builder& builder, const Node& reader, const Value* value, const StridedView& view,
                   int64_t size) {
  const StridedView plain = builder.laid_out(reader, view);
  const runtime::TensorInfo held = builder.plan().tensors[static_cast<size_t>(plain.tensor)];
  expect_integers(reader, value, held.type, size);
  if (held.type != DataType::f32) return plain.tensor;
  const std::string name = reader.output()->name + ".ids";
  return builder.emit({.op = runtime::Op::convert, .name = name, .inputs = {plain.tensor}}, name,
                      {DataType::i64}, held.shape);
}

int32_t exact_numbers(Builder& builder, const Node& reader, const Value* value) {
  if (!holds_integers(builder, reader, value)) return builder.as(reader, value, {});
  runtime::PointwiseText program;
  program.functions.push_back({kernels::PointwiseOp::add,
                               {{.kind = runtime::PointwiseOperand::Kind::input},
                                {.kind = runtime::PointwiseOperand::Kind::number}}});
  runtime::Step step = step_of(runtime::Op::pointwise, reader);
  step.attributes = runtime::PointwiseAttributes{.program = std::move(program), .exact_inputs = 1};
  step.inputs = {builder.as(reader, value, held_form(builder, reader, value))};
  return builder.emit(std::move(step), value->name + ".f32", {}, shape_of(reader, *value));
}

bool makes_integers(const Node& node) {
  const std::optional<graph::TensorMeta>& made = node.output()->meta;
  return made && (made->dtype == at::kInt || made->dtype == at::kLong);
}

void look_at_integers(Builder& builder, const Node& node, const Value* value) {
  const Form form = builder.form_of(node, value);
  if (form.type != DataType::f32) return;
  runtime::PointwiseText program;
  program.functions.push_back(
      {kernels::PointwiseOp::exact, {{.kind = runtime::PointwiseOperand::Kind::input}}});
  runtime::Step step = step_of(runtime::Op::pointwise, node);
  step.attributes = runtime::PointwiseAttributes{.program = std::move(program)};
  step.inputs = {builder.as(node, value, form)};
  builder.bind_instead(value,
                       builder.emit(std::move(step), value->name + ".exact", form, shape_of(node, *value)));
}

}  // namespace ulp::lowering
