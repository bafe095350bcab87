// Elements that ids place, and elements in order.
#include <torch/types.h>

#include <cmath>

#include "ulp/lower/ids.h"
#include "ulp/lower/ops.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Op;
using runtime::Step;

namespace {

/// bf16 and codes stay where both sides hold them alike; everything else is written in f32.
Form scatter_form(Builder& builder, const Node& node, const Value* x, const Value* source) {
  const Form form = held_form(builder, node, x);
  if (form.type != DataType::bf16 && form.type != DataType::u8) return {};
  const bool alike =
      source != nullptr ? held_form(builder, node, source) == form : form.type == DataType::bf16;
  return alike ? form : Form{};
}

/// A number for every id, as a tensor: attributes hold no infinities.
int32_t filled_source(Builder& builder, const Node& node, const std::vector<int64_t>& shape, double value) {
  const std::vector<int64_t> item(shape.begin() + 1, shape.end());
  Step step = step_of(Op::constant, node);
  step.inputs = {builder.batch_source()};
  step.constants["value"] = builder.constant(
      node.name() + ".value", make_constant(torch::full(item, value, at::kFloat), DataType::f32));
  return builder.emit(std::move(step), node.output()->name + ".value", {}, shape);
}

kernels::ScatterMode scatter_mode_of(const Node& node) {
  using enum kernels::ScatterMode;
  if (node.is("aten::scatter_add")) return add;
  if (!node.is("aten::scatter_reduce")) return replace;
  const std::string& reduce = node.arg("reduce").literal.toStringRef();
  if (reduce == "amax") return max;
  if (reduce == "amin") return min;
  if (reduce == "prod") return multiply;
  unsupported(node, "expected a known reduction, got '", reduce, "'");
}

void lower_scatter(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value *x = value_arg(node, "self"), *ids = value_arg(node, "index");
  const std::vector<int64_t> shape = shape_of(node, *x);
  const Value* source = has_arg(node, "src") ? value_arg(node, "src") : nullptr;
  const double value = source != nullptr ? 0 : number_arg(node, "value").value_or(0);
  runtime::ScatterAttributes own{.dim = dimension_of(node, shape), .mode = scatter_mode_of(node)};
  const bool as_held = own.mode == kernels::ScatterMode::replace && std::isfinite(value);
  const Form form = as_held ? scatter_form(builder, node, x, source) : Form{};
  const auto read = [&](const Value* one) {
    return form.type == DataType::f32 ? exact_numbers(builder, node, one) : builder.as(node, one, form);
  };
  Step step = step_of(Op::scatter, node);
  step.inputs = {read(x), ids_tensor(builder, node, ids, shape[static_cast<size_t>(own.dim)])};
  if (source != nullptr) {
    step.inputs.push_back(read(source));
  } else if (std::isfinite(value)) {
    own.value = static_cast<float>(value);
  } else {
    step.inputs.push_back(filled_source(builder, node, shape_of(node, *ids), value));
  }
  const bool extreme = own.mode == kernels::ScatterMode::max || own.mode == kernels::ScatterMode::min;
  own.integers = makes_integers(node) && own.mode != kernels::ScatterMode::replace && !extreme;
  step.attributes = own;
  emit_same(builder, group, std::move(step), form);
}

void lower_sort(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  runtime::SortAttributes own{.dim = dimension_of(node, shape_of(node, *x))};
  const bool first_few = node.is("aten::topk");
  own.descending = bool_arg(node, first_few ? "largest" : "descending");
  if (first_few) own.kept = int_arg(node, "k");
  const bool places_only = node.is("aten::argsort");
  const Value* places = places_only ? node.output() : node.output(1);
  const auto is_read = [&](const Value* value) { return !builder.graph().users(value).empty(); };
  if (first_few && own.kept < 1) unsupported(node, "expected at least one element");
  const bool integers = holds_integers(builder, node, x);
  const Form form = integers ? Form{} : held_form(builder, node, x);
  Step step = step_of(Op::sort, node);
  step.inputs = {integers ? exact_numbers(builder, node, x) : builder.as(node, x, form)};
  const bool values_only = !places_only && !is_read(places);
  own.places = !values_only;
  step.attributes = own;
  const Value* made = values_only ? node.output() : places;
  const Form made_form = values_only ? form : Form{DataType::i64};
  const int32_t sorted = builder.emit(step, made->name, made_form, shape_of(node, *made));
  builder.bind(made, sorted);
  if (places_only || values_only || !is_read(node.output())) return;
  // The places say which elements they are: cheaper than to sort again.
  Step pick = step_of(Op::gather, node);
  pick.attributes = runtime::GatherAttributes{.dim = own.dim, .each = true};
  pick.inputs = {step.inputs[0], sorted};
  const Value* values = node.output();
  builder.bind(values, builder.emit(std::move(pick), values->name, form, shape_of(node, *values)));
}

}  // namespace

LoweringTable scatter_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::scatter.src", lower_scatter},
                                        {"aten::scatter.value", lower_scatter},
                                        {"aten::scatter_add", lower_scatter},
                                        {"aten::scatter_reduce", lower_scatter},
                                        {"aten::sort", lower_sort},
                                        {"aten::argsort", lower_sort},
                                        {"aten::topk", lower_sort}};
  return kTable;
}

}  // namespace ulp::lowering
