// Convolutions and pooling of volumes by the steps that images have: what they do along the depth becomes
// channels of a convolution, or a pooling of its own.
#include "ulp/lower/conv3d_to_conv2d.h"

#include <array>

#include "ulp/lower/ops.h"

namespace ulp::lowering {

using graph::Node;
using graph::SizeExpr;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Op;
using runtime::PoolAttributes;
using runtime::PoolWindow;
using runtime::Step;

namespace {

/// One number for each of depth, height and width.
using Triple = std::array<int64_t, 3>;

Triple triple_arg(const Node& node, const char* name, std::optional<Triple> fallback = {}) {
  const std::vector<int64_t> values = ints_arg(node, name);
  if (values.empty() && fallback) return *fallback;
  if (values.size() == 1) return {values[0], values[0], values[0]};
  if (values.size() != 3)
    unsupported(node, "expected '", name, "' to hold 1 or 3 numbers, got ", values.size());
  return {values[0], values[1], values[2]};
}

std::vector<int64_t> volume_shape(const Node& node, const Value& x) {
  const std::vector<int64_t> shape = shape_of(node, x);
  if (shape.size() != 5)
    unsupported(node, "expected an input [N, C, D, H, W], got ", shape.size(), " dimensions");
  return shape;
}

/// The view's items in other sizes.
std::vector<SizeExpr> sizes(const StridedView& view, const std::vector<int64_t>& items) {
  std::vector<SizeExpr> all = {first_size_of(view)};
  for (const int64_t size : items) all.push_back({0, 1, size});
  return all;
}

StridedView view_of(Builder& builder, int32_t tensor) {
  return whole_view(tensor, builder.plan().tensors[static_cast<size_t>(tensor)]);
}

/// A window along the depth.
struct Depth {
  int64_t kernel, stride, padding, dilation;
  bool changes_nothing() const { return kernel == 1 && stride == 1 && padding == 0; }
};

/// Slices of zeros before the first and behind the last.
int32_t padded(Builder& builder, const Node& node, int32_t x, int64_t slices, const Form& form) {
  if (slices == 0) return x;
  runtime::PadAttributes attributes;
  attributes.sides.resize(4);
  attributes.sides[1] = {slices, slices};
  Step step = step_of(Op::pad, node);
  step.attributes = std::move(attributes);
  step.inputs = {x};
  const std::vector<int64_t> shape = builder.plan().output_shape(step);
  return builder.emit(std::move(step), node.output()->name + ".padded", form, shape);
}

/// [N, C, D, H, W] -> [N, groups * kernel * C / groups, D', H, W]: each slice of the result has the slices of
/// its window in the channels, group by group.
int32_t taps_as_channels(Builder& builder, const Node& node, int32_t x, const Depth& depth, int64_t groups,
                         const Form& form) {
  if (depth.changes_nothing()) return x;
  const int64_t reach = depth.dilation * (depth.kernel - 1) + 1;
  const StridedView whole = view_of(builder, padded(builder, node, x, depth.padding, form));
  std::optional<StridedView> taps = windows(whole, 2, reach, depth.stride);
  if (taps) taps = narrowed(*taps, 5, 0, depth.kernel, depth.dilation);
  if (!taps) unsupported(node, "expected a window that fits the padded depth");
  const auto size = [&](size_t d) { return *size_of(*taps, d); };
  const int64_t channels = size(1);
  const std::optional<StridedView> split =
      reshaped(*taps, sizes(*taps, {groups, channels / groups, size(2), size(3), size(4), depth.kernel}));
  if (!split) unsupported(node, "expected channels that divide by the groups");
  const std::optional<StridedView> joined =
      reshaped(permuted(*split, {0, 1, 6, 2, 3, 4, 5}),
               sizes(*split, {channels * depth.kernel, size(2), size(3), size(4)}));
  return builder.emit_view(node, joined.value(), Layout::nhwc, node.output()->name + ".taps");
}

/// [O, C, kd, kh, kw] -> [O, kd * C, kh, kw].
at::Tensor taps_in_channels(const at::Tensor& weight) {
  return weight.permute({0, 2, 1, 3, 4}).flatten(1, 2).contiguous();
}

void lower_conv3d(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  volume_shape(node, *x);
  const graph::Argument& padding = node.arg("padding");
  if (padding.kind == graph::Argument::Kind::literal && padding.literal.isString())
    unsupported(node, "expected the padding as numbers, got '", padding.literal.toStringRef(), "'");
  const std::vector<SizeExpr>& kernel = value_arg(node, "weight")->meta.value().sizes;
  const Triple stride = triple_arg(node, "stride"), pad = triple_arg(node, "padding"),
               dilation = triple_arg(node, "dilation");
  Step step{.op = Op::conv, .name = layer_name(node)};
  const Form form = layer_form(builder, node, x, Layout::nhwc);
  add_layer_constants(builder, node, form, step, taps_in_channels);
  step.attributes = runtime::ConvAttributes{
      .window = make_window({kernel[3].offset, kernel[4].offset}, {stride[1], stride[2]}, {pad[1], pad[2]},
                            {dilation[1], dilation[2]}),
      .groups = int_arg(node, "groups")};
  const Depth depth{kernel[2].offset, stride[0], pad[0], dilation[0]};
  step.inputs = {
      taps_as_channels(builder, node, builder.as(node, x, form), depth, int_arg(node, "groups"), form)};
  emit_compute(builder, group, std::move(step), form.type, Layout::nhwc);
}

/// Codes stay codes where the largest is picked; means are taken in float.
Form pooled_form(Builder& builder, const Node& node, const Value* x, Op op) {
  Form form = kept_form(builder, node, x);
  if (op == Op::avg_pool && form.type == DataType::u8) form = {builder.float_type()};
  form.layout = Layout::nhwc;
  return form;
}

/// Slice by slice, then along the depth: extremes and means of boxes are those of their sides.
void lower_pool(Builder& builder, const Group& group, Op op) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  volume_shape(node, *x);
  const Triple kernel = triple_arg(node, "kernel_size"), stride = triple_arg(node, "stride", kernel),
               pad = triple_arg(node, "padding");
  const Triple dilation = op == Op::max_pool ? triple_arg(node, "dilation") : Triple{1, 1, 1};
  PoolWindow slice{make_window({kernel[1], kernel[2]}, {stride[1], stride[2]}, {pad[1], pad[2]},
                               {dilation[1], dilation[2]}),
                   bool_arg(node, "ceil_mode")};
  PoolWindow depth{make_window({kernel[0], 1}, {stride[0], 1}, {pad[0], 0}, {dilation[0], 1}),
                   slice.ceil_mode};
  if (op == Op::avg_pool) {
    if (!node.arg("divisor_override").is_none()) unsupported(node, "expected no divisor_override");
    slice.count_include_pad = depth.count_include_pad = bool_arg(node, "count_include_pad");
  }
  const Form form = pooled_form(builder, node, x, op);
  int32_t made = builder.as(node, x, form);
  const auto is_one = [](const PoolWindow& w) {
    return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1;
  };
  if (!is_one(slice) || is_one(depth)) {
    Step step = step_of(op, node);
    step.attributes = PoolAttributes{slice};
    step.inputs = {made};
    const std::vector<int64_t> shape = builder.plan().output_shape(step);
    made = builder.emit(std::move(step), node.output()->name + ".slices", form, shape);
  }
  if (!is_one(depth)) {
    Step step = step_of(op, node);
    step.attributes = PoolAttributes{depth};
    made = along_depth(builder, node, made, std::move(step), form);
  }
  builder.bind(group.result, made);
  finish_quantize(builder, group);
}

void lower_max_pool3d(Builder& builder, const Group& group) {
  lower_pool(builder, group, Op::max_pool);
}

void lower_avg_pool3d(Builder& builder, const Group& group) {
  lower_pool(builder, group, Op::avg_pool);
}

}  // namespace

int32_t along_depth(Builder& builder, const Node& node, int32_t volume, Step step, const Form& form) {
  const std::string name = node.output()->name;
  const std::vector<int64_t> shape = builder.plan().tensors[static_cast<size_t>(volume)].shape;
  const int64_t rest = shape[1] * shape[3] * shape[4];
  const StridedView whole = permuted(view_of(builder, volume), {0, 3, 4, 1, 2});
  const StridedView column = reshaped(whole, sizes(whole, {rest, shape[2], 1})).value();
  step.inputs = {builder.emit_view(node, column, Layout::nhwc, name + ".depth")};
  const std::vector<int64_t> made_shape = builder.plan().output_shape(step);
  const int32_t made = builder.emit(std::move(step), name + ".along_depth", form, made_shape);
  const StridedView columns = view_of(builder, made);
  const StridedView pixels =
      reshaped(columns, sizes(columns, {shape[3], shape[4], shape[1], made_shape[2]})).value();
  return builder.emit_view(node, permuted(pixels, {0, 3, 4, 1, 2}), Layout::nhwc, name);
}

LoweringTable volume_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::conv3d", lower_conv3d},
                                        {"aten::max_pool3d", lower_max_pool3d},
                                        {"aten::avg_pool3d", lower_avg_pool3d}};
  return kTable;
}

}  // namespace ulp::lowering
