// Ops that keep the type of their input: activations that stand alone, pooling, reshapes; softmax;
// and the quantize and dequantize nodes that are not part of another step.
#include <algorithm>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::PoolAttributes;
using runtime::PoolWindow;
using runtime::Step;

namespace {

const Value* image_arg(const Node& node) {
  const Value* x = value_arg(node, "self");
  const std::vector<int64_t> shape = shape_of(node, *x);
  if (shape.size() != 4)
    unsupported(node, "expected an input [N, C, H, W], got ", shape.size(), " dimensions");
  return x;
}

/// Means are taken in float; those of codes are an op of their own in a quantized graph.
Form mean_form(Builder& builder, const Node& node, const Value* x) {
  const Form held = kept_form(builder, node, x);
  return held.type == DataType::u8 ? Form{builder.float_type(), held.layout} : held;
}

void emit_mean(Builder& builder, const Group& group, Step step, const Value* x) {
  const Form form = mean_form(builder, *group.root, x);
  step.inputs = {builder.as(*group.root, x, form)};
  emit_same(builder, group, std::move(step), form);
}

PoolWindow pool_window(const Node& node, Pair dilation) {
  const Pair kernel = pair_arg(node, "kernel_size");
  return {make_window(kernel, pair_arg(node, "stride", kernel), pair_arg(node, "padding"), dilation),
          bool_arg(node, "ceil_mode")};
}

PoolWindow whole_windows(const Node& node, const std::vector<int64_t>& in, Pair out) {
  if (out.h < 1 || out.w < 1 || in[2] % out.h != 0 || in[3] % out.w != 0) {
    unsupported(node, "expected an output size that divides the input's ", in[2], " x ", in[3], ", got ",
                out.h, " x ", out.w);
  }
  const int64_t h = in[2] / out.h, w = in[3] / out.w;
  return {{.kernel_h = h, .kernel_w = w, .stride_h = h, .stride_w = w}};
}

}  // namespace

Step step_of(runtime::Op op, const Node& node) {
  return {.op = op, .name = node.name()};
}

Form kept_form(Builder& builder, const Node& node, const Value* x) {
  Form form = builder.form_of(node, x);
  form.layout = inner_layout(shape_of(node, *x).size());
  if (form.type != DataType::u8) form = {builder.float_type(), form.layout};
  return form;
}

Form read_form(Builder& builder, const Node& node, const Value* x, Layout layout) {
  Form form = builder.form_of(node, x);
  if (form.type == DataType::i32 || form.type == DataType::i64) {
    unsupported(node, "expected numbers, got the integers of '", x->name, "'");
  }
  form.layout = layout;
  return form;
}

Form float_form(Builder& builder, const Node& node, const Value* x, Layout layout) {
  const Form form = read_form(builder, node, x, layout);
  return form.type == DataType::u8 ? Form{builder.float_type(), layout} : form;
}

DataType result_type(Builder& builder, const Value* made) {
  const bool whole = made->meta && !at::isFloatingType(made->meta->dtype);
  return whole || read_as_f32(builder, made) ? DataType::f32 : builder.float_type();
}

Form result_form(Builder& builder, const Group& group, Layout layout) {
  Form form{result_type(builder, group.result), layout};
  if (group.quantize != nullptr) {
    form = quantizer_form(builder.graph(), *group.quantize);
    form.layout = layout;
  }
  return form;
}

void emit_same(Builder& builder, const Group& group, Step step, const Form& form) {
  const Node& node = *group.root;
  const bool u8 = form.type == DataType::u8 && group.quantize != nullptr;
  const Value* made = u8 ? group.quantize->output() : group.result;
  builder.bind(made, builder.emit(std::move(step), made->name, form, shape_of(node, *group.result)));
  if (!u8) finish_quantize(builder, group);
}

void lower_activation(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::optional<Activation> activation = activation_of(node);
  if (!activation) unsupported(node, "expected bounds [0, inf] or [0, 6]");
  const Value* x = node.args.at(0).value;
  if (is_smooth_activation(*activation) && builder.float_type() != DataType::f32)
    return lower_pointwise(builder, group);
  Form form = kept_form(builder, node, x);
  form.layout = builder.layout_of(node, x);
  // A bound other than 0 is seldom a multiple of the scale.
  if (is_smooth_activation(*activation) || (*activation != Activation::relu && form.type == DataType::u8)) {
    form = {DataType::f32, builder.form_of(node, x).layout};
  }
  Step step = step_of(runtime::Op::relu, node);
  step.attributes = runtime::ActivationAttributes{*activation};
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

void lower_flatten(Builder& builder, const Group& group, runtime::Op op) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  // A reshape moves bytes only: any type and layout will do as it is.
  Form form = builder.form_of(node, x);
  Step step = step_of(op, node);
  step.inputs = {builder.as(node, x, form)};
  form.layout = Layout::plain;
  emit_same(builder, group, std::move(step), form);
}

namespace {

void lower_max_pool(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = image_arg(node);
  Step step = step_of(runtime::Op::max_pool, node);
  step.attributes = PoolAttributes{pool_window(node, pair_arg(node, "dilation"))};
  const Form form = kept_form(builder, node, x);
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

void lower_avg_pool(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = image_arg(node);
  if (!node.arg("divisor_override").is_none()) unsupported(node, "expected no divisor_override");
  Step step = step_of(runtime::Op::avg_pool, node);
  PoolWindow window = pool_window(node, {1, 1});
  window.count_include_pad = bool_arg(node, "count_include_pad");
  step.attributes = PoolAttributes{window};
  emit_mean(builder, group, std::move(step), x);
}

void lower_global_pool(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = image_arg(node);
  const Pair out = pair_arg(node, "output_size");
  if (out.h == 1 && out.w == 1) {
    emit_mean(builder, group, step_of(runtime::Op::global_avg_pool, node), x);
    return;
  }
  Step step = step_of(runtime::Op::avg_pool, node);
  step.attributes = PoolAttributes{whole_windows(node, shape_of(node, *x), out)};
  emit_mean(builder, group, std::move(step), x);
}

void lower_mean(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const auto rank = static_cast<int64_t>(shape_of(node, *x).size());
  std::vector<int64_t> dims;
  if (has_arg(node, "dim") && !node.arg("dim").is_none()) dims = ints_arg(node, "dim");
  for (int64_t& dim : dims) dim += dim < 0 ? rank : 0;
  std::ranges::sort(dims);
  if (rank == 3 && dims == std::vector<int64_t>{1} && !bool_arg(node, "keepdim")) {
    return lower_token_mean(builder, group);
  }
  if (rank != 4 || dims != std::vector<int64_t>{2, 3}) return lower_reduce(builder, group);
  if (bool_arg(node, "keepdim")) {
    emit_mean(builder, group, step_of(runtime::Op::global_avg_pool, node), x);
    return;
  }
  const Form form = mean_form(builder, node, x);
  const std::vector<int64_t> shape = shape_of(node, *x);
  Step pool = step_of(runtime::Op::global_avg_pool, node);
  pool.inputs = {builder.as(node, x, form)};
  Step flatten = step_of(runtime::Op::flatten, node);
  flatten.inputs = {
      builder.emit(std::move(pool), node.output()->name + ".pool", form, {shape[0], shape[1], 1, 1})};
  emit_same(builder, group, std::move(flatten), {form.type, Layout::plain});
}

/// Codes to codes of another scale.
void lower_average_codes(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "q");
  const Form in = kept_form(builder, node, x);
  if (in.type != DataType::u8 || shape_of(node, *x).size() != 4) {
    unsupported(node, "expected codes of images that the graph quantized");
  }
  const Form out = codes_form(builder.graph(), node, "result_scale", "result_zero_point",
                              node.output()->meta->dtype == at::kChar);
  Step step = step_of(runtime::Op::global_avg_pool, node);
  if (!ints_arg(node, "kernel_size").empty()) {
    step.op = runtime::Op::avg_pool;
    PoolAttributes attributes{pool_window(node, {1, 1})};
    attributes.window.count_include_pad = bool_arg(node, "count_include_pad");
    if (node.arg("rounding").literal.toStringRef() == "half_away")
      attributes.rounding = runtime::MeanRounding::half_away;
    step.attributes = attributes;
  }
  step.inputs = {builder.as(node, x, in)};
  emit_same(builder, group, std::move(step), out);
}

void lower_softmax(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const auto rank = static_cast<int64_t>(shape_of(node, *x).size());
  const int64_t dim = int_arg(node, "dim");
  if (rank < 2 || (dim != rank - 1 && dim != -1)) {
    unsupported(node, "expected a dimension other than the batch, got ", dim);
  }
  Step step = step_of(runtime::Op::softmax, node);
  const bool log = node.is("aten::log_softmax") || node.is("aten::_log_softmax");
  const Form form{log ? DataType::f32 : result_type(builder, group.result), Layout::plain};
  step.attributes = runtime::SoftmaxAttributes{log};
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

void lower_quantize(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  if (x == nullptr) unsupported(node, "expected to quantize a tensor of the graph");
  Form form = quantizer_form(builder.graph(), node);
  form.layout = builder.layout_of(node, x);
  // A reshape keeps plain order; codes of this scale that are there already stay where they are.
  const Form held = builder.form_of(node, x);
  if (held.type == DataType::u8 && held.scale == form.scale && held.zero_point == form.zero_point)
    form = held;
  if (form == held && builder.is_view(x)) return builder.alias(node.output(), x);
  builder.bind(node.output(), builder.as(node, x, form, node.output()->name));
}

void lower_dequantize(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  if (is_quantized_constant(builder.graph(), node.output())) return;  // read by the layer it belongs to
  const Value* codes = value_arg(node, "q");
  const Form form = builder.form_of(node, codes);
  const auto is = [&](const char* name, double wanted) {
    const at::Tensor given = builder.graph().attribute_tensor(value_arg(node, name));
    return given.defined() && given.numel() == 1 && given.to(at::kDouble).item<double>() == wanted;
  };
  const auto may_be = [&](at::ScalarType type) { return !codes->meta || codes->meta->dtype == type; };
  const bool same_zero = (may_be(at::kByte) && is("zero_point", form.zero_point)) ||
                         (may_be(at::kChar) && is("zero_point", form.zero_point - 128));
  if (form.type != DataType::u8 || !is("scale", form.scale) || !same_zero) {
    unsupported(node, "expected the scale and the zero point of the ulp::quantize before it");
  }
  builder.alias(node.output(), codes);
}

}  // namespace

LoweringTable simple_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::hardtanh", lower_activation},
                                        {"aten::clamp", lower_activation},
                                        {"aten::clamp_min", lower_activation},
                                        {"aten::max_pool2d", lower_max_pool},
                                        {"aten::avg_pool2d", lower_avg_pool},
                                        {"aten::adaptive_avg_pool2d", lower_global_pool},
                                        {"aten::mean", lower_mean},
                                        {"ulp::average_codes", lower_average_codes},
                                        {"aten::softmax", lower_softmax},
                                        {"aten::_softmax", lower_softmax},
                                        {"aten::log_softmax", lower_softmax},
                                        {"aten::_log_softmax", lower_softmax},
                                        {"ulp::quantize", lower_quantize},
                                        {"ulp::dequantize", lower_dequantize}};
  return kTable;
}

}  // namespace ulp::lowering
