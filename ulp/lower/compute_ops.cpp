// conv, linear and add: one step each with everything that is fused to it.
#include <algorithm>

#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

bool read_as_f32(const graph::Graph& graph, const Value* value) {
  return std::ranges::all_of(graph.users(value), [](const Node* user) {
    return user->kind() == Node::Kind::output || user->is("aten::softmax") || user->is("aten::_softmax");
  });
}

namespace {

DataType output_type(Builder& builder, const Group& group, DataType input_type, bool u8_result) {
  if (is_curve(group.activation)) return DataType::f32;
  if (input_type == DataType::u8) return u8_result ? DataType::u8 : DataType::f32;
  if (group.quantize != nullptr || read_as_f32(builder.graph(), group.result)) {
    return DataType::f32;
  }
  return input_type;
}

/// Weight and bias of a layer whose input is held as `x`.
void add_constants(Builder& builder, const Node& node, const Form& x, Step& step) {
  if (x.type == DataType::u8) {
    add_quantized_constants(builder, node, x.scale, step);
  } else {
    add_float_constants(builder, node, x.type, step);
  }
}

/// Every op that computes has the attribute.
void set_activation(Step& step, Activation activation) {
  const auto set = [&](auto& own) {
    if constexpr (requires { own.activation; }) own.activation = activation;
  };
  std::visit(set, step.attributes);
}

/// The form a layer reads its input in: 8 bits when both input and weight are, else the inner float type.
Form input_form(Builder& builder, const Node& node, const Value* x, Layout layout) {
  Form form = builder.form_of(node, x);
  form.layout = layout;
  if (form.type == DataType::u8 && is_quantized_constant(builder.graph(), value_arg(node, "weight")))
    return form;
  return {builder.float_type(), layout};
}

}  // namespace

std::string layer_name(const Node& node) {
  return node.scope.empty() ? node.name() : node.scope;
}

void finish_quantize(Builder& builder, const Group& group) {
  if (group.quantize == nullptr) return;
  const Form form = quantizer_form(builder.graph(), *group.quantize);
  const Value* codes = group.quantize->output();
  builder.bind(codes, builder.as(*group.quantize, group.result, form, codes->name));
}

void emit_compute(Builder& builder, const Group& group, Step step, DataType input_type, Layout layout) {
  const Node& node = *group.root;
  const bool u8_residual =
      group.residual == nullptr || builder.form_of(node, group.residual).type == DataType::u8;
  Form form{DataType::f32, layout};
  form.type = output_type(builder, group, input_type, group.quantize != nullptr && u8_residual);
  if (form.type == DataType::u8) {
    form = quantizer_form(builder.graph(), *group.quantize);
    form.layout = layout;
  }
  if (group.residual != nullptr) {
    Form residual = form;
    if (form.type == DataType::u8) {
      residual = builder.form_of(node, group.residual);
      residual.layout = layout;
    }
    step.inputs.push_back(builder.as(node, group.residual, residual));
  }
  set_activation(step, group.activation);
  const bool u8 = form.type == DataType::u8;
  const Value* made = u8 ? group.quantize->output() : group.result;
  builder.bind(made, builder.emit(std::move(step), made->name, form, shape_of(node, *group.result)));
  if (!u8) finish_quantize(builder, group);
}

namespace {

void lower_conv(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  const std::vector<int64_t> shape = shape_of(node, *x);
  if (shape.size() != 4)
    unsupported(node, "expected an input [N, C, H, W], got ", shape.size(), " dimensions");
  const graph::Argument& padding = node.arg("padding");
  if (padding.kind == graph::Argument::Kind::literal && padding.literal.isString()) {
    unsupported(node, "expected the padding as numbers, got '", padding.literal.toStringRef(), "'");
  }
  Step step{.op = runtime::Op::conv, .name = layer_name(node)};
  const Form form = input_form(builder, node, x, Layout::nhwc);
  add_constants(builder, node, form, step);
  const std::vector<int64_t>& kernel = builder.plan().constants.at(step.constants.at("weight")).shape;
  step.attributes =
      runtime::ConvAttributes{.window = make_window({kernel[2], kernel[3]}, pair_arg(node, "stride"),
                                                    pair_arg(node, "padding"), pair_arg(node, "dilation")),
                              .groups = int_arg(node, "groups")};
  step.inputs = {builder.as(node, x, form)};
  emit_compute(builder, group, std::move(step), form.type, Layout::nhwc);
}

void lower_linear(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  if (shape_of(node, *x).size() < 2)
    unsupported(node, "expected an input [N, ..., features], got 1 dimension");
  Step step{.op = runtime::Op::linear, .name = layer_name(node)};
  const bool coded = is_coded_weight(builder.graph(), value_arg(node, "weight"));
  const Form form = coded ? Form{DataType::f32, Layout::plain} : input_form(builder, node, x, Layout::plain);
  if (coded) {
    add_coded_weight(builder, node, step);
    add_float_constant(builder, node, "bias", "bias", step);
  } else {
    add_constants(builder, node, form, step);
  }
  step.inputs = {builder.as(node, x, form)};
  emit_compute(builder, group, std::move(step), form.type, Layout::plain);
}

void lower_linear_dynamic(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "x");
  if (shape_of(node, *x).size() < 2)
    unsupported(node, "expected an input [N, ..., features], got 1 dimension");
  Step step{.op = runtime::Op::dynamic_linear, .name = layer_name(node)};
  step.attributes = runtime::DynamicLinearAttributes{.per_tensor = bool_arg(node, "per_tensor")};
  add_dynamic_constants(builder, node, step);
  step.inputs = {builder.as(node, x, {DataType::f32, Layout::plain})};
  emit_compute(builder, group, std::move(step), DataType::f32, Layout::plain);
}

/// The operand of a sum that is a constant of one item's shape, and the other one; null where there is none.
struct ConstantSum {
  const Value* x = nullptr;
  const Value* addend = nullptr;
};

ConstantSum constant_sum(const graph::Graph& graph, const Node& node) {
  if (!node.arg("other").is_value() || number_arg(node, "alpha") != 1.0) return {};
  const Value *a = node.arg("self").value, *b = node.arg("other").value;
  if (graph.attribute_tensor(a).defined()) std::swap(a, b);
  const at::Tensor addend = graph.attribute_tensor(b);
  if (!addend.defined() || addend.dim() == 0) return {};
  const std::vector<int64_t> shape = shape_of(node, *a);
  std::vector<int64_t> item(shape.begin() + 1, shape.end());
  if (addend.dim() == static_cast<int64_t>(shape.size())) item.insert(item.begin(), 1);
  return addend.sizes() == at::IntArrayRef(item) ? ConstantSum{a, b} : ConstantSum{};
}

}  // namespace

bool has_add_step(const graph::Graph& graph, const Node& node) {
  return is_plain_add(node) || constant_sum(graph, node).x != nullptr;
}

namespace {

void lower_constant_sum(Builder& builder, const Group& group, const ConstantSum& sum) {
  const Node& node = *group.root;
  Step step = step_of(runtime::Op::add, node);
  runtime::Constant constant = make_constant(builder.graph().attribute_tensor(sum.addend), DataType::f32);
  const size_t rank = shape_of(node, *sum.x).size();
  if (constant.shape.size() == rank) constant.shape.erase(constant.shape.begin());
  step.constants["addend"] = builder.constant(sum.addend->producer->target(), std::move(constant));
  const Form form{DataType::f32, Layout::plain};
  step.inputs = {builder.as(node, sum.x, form)};
  emit_same(builder, group, std::move(step), form);
}

void lower_add(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const ConstantSum with_constant = constant_sum(builder.graph(), node);
  if (with_constant.x != nullptr) return lower_constant_sum(builder, group, with_constant);
  const Value* a = node.arg("self").value;
  const Value* b = node.arg("other").value;
  const Form form_a = builder.form_of(node, a), form_b = builder.form_of(node, b);
  const Layout layout = inner_layout(shape_of(node, *group.result).size());
  Step step = step_of(runtime::Op::add, node);
  if (group.quantize != nullptr && form_a.type == DataType::u8 && form_b.type == DataType::u8) {
    for (const Value* value : {a, b}) {
      Form form = builder.form_of(node, value);
      form.layout = layout;
      step.inputs.push_back(builder.as(node, value, form));
    }
    emit_compute(builder, group, std::move(step), DataType::u8, layout);
    return;
  }
  // The engine adds tensors of one type.
  const DataType type = group.quantize != nullptr || read_as_f32(builder.graph(), group.result)
                            ? DataType::f32
                            : builder.float_type();
  for (const Value* value : {a, b}) step.inputs.push_back(builder.as(node, value, {type, layout}));
  emit_compute(builder, group, std::move(step), type, layout);
}

}  // namespace

LoweringTable compute_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::conv2d", lower_conv},
                                        {"aten::linear", lower_linear},
                                        {"aten::add", lower_add},
                                        {"ulp::linear_dynamic", lower_linear_dynamic}};
  return kTable;
}

}  // namespace ulp::lowering
