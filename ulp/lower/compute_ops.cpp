// conv, linear and add: one step each with everything that is fused to it.
#include <algorithm>

#include "ulp/lower/binary_graph.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

/// True for ops that compute element by element or over rows and gain nothing from narrow operands.
bool computes_in_f32(const Node& node) {
  return is_pointwise(node) || is_move(node) ||
         is_any(node, {"aten::softmax", "aten::_softmax", "aten::mean", "aten::cat"}) ||
         std::ranges::any_of(reduce_lowerings(), [&](const Lowering& row) { return node.is(row.op); });
}

/// True for results, for ops whose steps read f32 only, and for those behind which no layer comes any more.
bool takes_f32(Builder& builder, const Node* user) {
  if (user->kind() == Node::Kind::output || user->is("ulp::quantize")) return true;
  if (user->is("aten::linear")) return is_coded_weight(builder.graph(), value_arg(*user, "weight"));
  if (computes_in_f32(*user)) {
    return std::ranges::all_of(user->outputs(),
                               [&](const auto& made) { return read_as_f32(builder, made.get()); });
  }
  return makes_bits(*user) ||
         is_any(*user, {"aten::log_softmax", "aten::_log_softmax", "aten::cumsum", "aten::lstm", "aten::gru",
                        "ulp::lstm_dynamic", "ulp::gru_dynamic", "ulp::linear_dynamic"});
}

}  // namespace

bool read_as_f32(Builder& builder, const Value* value) {
  if (const auto known = builder.f32_values().find(value); known != builder.f32_values().end())
    return known->second;
  const std::vector<Node*> users = builder.graph().users(value);
  const bool all = std::ranges::all_of(users, [&](const Node* user) { return takes_f32(builder, user); });
  return builder.f32_values()[value] = all;
}

namespace {

/// `type`: of a result that is no code and that nobody wants in f32.
DataType output_type(Builder& builder, const Group& group, DataType type) {
  if (type == DataType::u8) return group.quantize != nullptr ? DataType::u8 : DataType::f32;
  return read_as_f32(builder, group.result) ? DataType::f32 : type;
}

/// The form in which a step adds its residual: as it is held, where the kernel widens it.
Form residual_form(Builder& builder, const Group& group, const Step& step, Layout layout) {
  const Node& node = *group.root;
  const bool widens =
      step.op == runtime::Op::conv ||
      (step.op == runtime::Op::linear && !is_coded_weight(builder.graph(), value_arg(node, "weight")));
  return widens ? read_form(builder, node, group.residual, layout) : Form{DataType::f32, layout};
}

/// Every op that computes has the attribute.
void set_activation(Step& step, Activation activation) {
  const auto set = [&](auto& own) {
    if constexpr (requires { own.activation; }) own.activation = activation;
  };
  std::visit(set, step.attributes);
}

}  // namespace

Form layer_form(Builder& builder, const Node& node, const Value* x, Layout layout) {
  Form form = builder.form_of(node, x);
  form.layout = layout;
  if (form.type == DataType::u8 && is_quantized_constant(builder.graph(), value_arg(node, "weight")))
    return form;
  return {builder.float_type(), layout};
}

namespace {

/// Images of one to three channels, the model's inputs, stay in f32: their windows are too short for products of
/// bf16, which the kernels would widen again.
Form image_form(Builder& builder, const Node& node, const Value* x, int64_t channels) {
  Form form = layer_form(builder, node, x, Layout::nhwc);
  constexpr int64_t kFew = 3;
  const bool held = builder.form_of(node, x).type == DataType::f32;
  if (held && form.type == DataType::bf16 && channels <= kFew) form.type = DataType::f32;
  return form;
}

}  // namespace

void add_layer_constants(Builder& builder, const Node& node, const Form& x, Step& step, ShapeWeight shape) {
  if (x.type == DataType::u8) {
    add_quantized_constants(builder, node, x.scale, step, shape);
  } else {
    add_float_constants(builder, node, x.type, step, shape);
  }
}

std::string layer_name(const Node& node) {
  return node.scope.empty() ? node.name() : node.scope;
}

void finish_quantize(Builder& builder, const Group& group) {
  if (group.quantize == nullptr) return;
  Form form = quantizer_form(builder.graph(), *group.quantize);
  form.layout = builder.layout_of(*group.quantize, group.result);
  const Value* codes = group.quantize->output();
  builder.bind(codes, builder.as(*group.quantize, group.result, form, codes->name));
}

void emit_compute(Builder& builder, const Group& group, Step step, DataType type, Layout layout) {
  const Node& node = *group.root;
  Form form{output_type(builder, group, type), layout};
  if (form.type == DataType::u8) {
    form = quantizer_form(builder.graph(), *group.quantize);
    form.layout = layout;
  }
  if (group.residual != nullptr) {
    const Form residual = residual_form(builder, group, step, layout);
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
  const Form form = image_form(builder, node, x, shape[1]);
  add_layer_constants(builder, node, form, step);
  const std::vector<int64_t>& kernel = builder.plan().constants.at(step.constants.at("weight")).shape;
  step.attributes =
      runtime::ConvAttributes{.window = make_window({kernel[2], kernel[3]}, pair_arg(node, "stride"),
                                                    pair_arg(node, "padding"), pair_arg(node, "dilation")),
                              .groups = int_arg(node, "groups")};
  step.inputs = {builder.as(node, x, form)};
  const DataType type = form.type == DataType::u8 ? form.type : builder.float_type();
  emit_compute(builder, group, std::move(step), type, Layout::nhwc);
}

void lower_linear(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  if (shape_of(node, *x).size() < 2)
    unsupported(node, "expected an input [N, ..., features], got 1 dimension");
  Step step{.op = runtime::Op::linear, .name = layer_name(node)};
  const bool coded = is_coded_weight(builder.graph(), value_arg(node, "weight"));
  const Form form = coded ? Form{DataType::f32, Layout::plain} : layer_form(builder, node, x, Layout::plain);
  if (coded) {
    add_coded_weight(builder, node, step);
    add_float_constant(builder, node, "bias", "bias", step);
  } else {
    add_layer_constants(builder, node, form, step);
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
  // Integers are looked at: f32 does not hold all of them.
  if (node.output()->meta && at::isIntegralType(node.output()->meta->dtype, false)) return {};
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
  const Form form{result_type(builder, group.result), Layout::plain};
  runtime::Constant constant = make_constant(builder.graph().attribute_tensor(sum.addend), form.type);
  const size_t rank = shape_of(node, *sum.x).size();
  if (constant.shape.size() == rank) constant.shape.erase(constant.shape.begin());
  step.constants["addend"] = builder.constant(sum.addend->producer->target(), std::move(constant));
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
  const Layout layout = builder.layout_of(node, a);
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
  const DataType type =
      group.quantize != nullptr || read_as_f32(builder, group.result) ? DataType::f32 : builder.float_type();
  // Others are widened as they are read.
  const bool alike = form_a.type == type && form_b.type == type;
  if (!alike && group.activation == Activation::none) return lower_pointwise(builder, group);
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
