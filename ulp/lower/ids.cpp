#include "ulp/lower/ids.h"

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

}  // namespace ulp::lowering
