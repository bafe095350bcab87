// Ops that change the sizes of images and volumes: resizing, sampling, channels that become pixels.
#include <array>

#include "ulp/lower/conv3d_to_conv2d.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Op;
using runtime::Step;

namespace {

std::vector<int64_t> image_shape(const Node& node, const Value& value) {
  const std::vector<int64_t> shape = shape_of(node, value);
  if (shape.size() != 4) unsupported(node, "expected images [N, C, H, W], got ", shape.size(), " dimensions");
  return shape;
}

/// How resizing moves through its input, for depth, height and width; 0 where the sizes say it.
using Steps = std::array<float, 3>;

/// The factors that PyTorch is given, one for each dimension; 0 where there is none.
std::vector<double> factors_of(const Node& node) {
  std::vector<double> factors;
  for (const char* name : {"scales", "scales_d", "scales_h", "scales_w"}) {
    if (has_arg(node, name)) factors.push_back(number_arg(node, name).value_or(0));
  }
  if (!has_arg(node, "scale_factors")) return factors;
  const graph::Argument& given = node.arg("scale_factors");
  if (given.is_none()) return factors;
  if (given.kind != graph::Argument::Kind::literal || !given.literal.isDoubleList())
    unsupported(node, "expected constant factors");
  return given.literal.toDoubleVector();
}

/// Whether PyTorch leaves the factor out: of nearest images where a size is kept or doubled, of linear ones
/// where it is kept.
bool leaves_factor_out(const Node& node, int64_t in, int64_t out) {
  if (node.is("aten::upsample_nearest2d")) return out == in || out == 2 * in;
  return out == in && (node.is("aten::upsample_bilinear2d") || node.is("aten::upsample_trilinear3d"));
}

/// PyTorch steps by 1 / factor where a factor is given: the same as by the sizes where it divides them.
Steps steps_of(const Node& node, const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
  const std::vector<double> factors = factors_of(node);
  Steps steps{};
  for (size_t i = 0; i < factors.size(); ++i) {
    const size_t d = in.size() - factors.size() + i;
    const bool whole = factors[i] * static_cast<double>(in[d]) == static_cast<double>(out[d]);
    if (factors[i] > 0 && !whole && !leaves_factor_out(node, in[d], out[d]))
      steps.at(3 - factors.size() + i) = static_cast<float>(1.0 / factors[i]);
  }
  return steps;
}

/// Between codes only where the graph rounds to codes of the same scale; elsewhere in float.
Form blend_form(Builder& builder, const Group& group, const Value* x) {
  const Form form = kept_form(builder, *group.root, x);
  if (form.type != DataType::u8) return form;
  if (group.quantize != nullptr) {
    const Form wanted = quantizer_form(builder.graph(), *group.quantize);
    if (wanted.scale == form.scale && wanted.zero_point == form.zero_point) return form;
  }
  return {builder.float_type(), form.layout};
}

Op resize_op(const Node& node) {
  if (node.is("aten::upsample_bicubic2d")) return Op::resize_bicubic;
  const bool linear = node.is("aten::upsample_bilinear2d") || node.is("aten::upsample_trilinear3d");
  return linear ? Op::resize_bilinear : Op::resize_nearest;
}

/// A step that gives images of this size.
Step resize_step(const Node& node, int64_t rows, int64_t columns, float step_h, float step_w) {
  Step step = step_of(resize_op(node), node);
  const runtime::ResizeSteps steps{step_h, step_w};
  if (step.op != Op::resize_nearest) {
    step.attributes = runtime::BilinearAttributes{rows, columns, bool_arg(node, "align_corners"), steps};
  } else {
    const bool exact = node.op().starts_with("aten::_upsample_nearest_exact");
    step.attributes = runtime::NearestAttributes{rows, columns, steps, exact};
  }
  return step;
}

void lower_resize(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  const std::vector<int64_t> out = image_shape(node, *group.result);
  const Steps steps = steps_of(node, image_shape(node, *x), out);
  Step step = resize_step(node, out[2], out[3], steps[1], steps[2]);
  Form form = kept_form(builder, node, x);
  if (step.op == Op::resize_bilinear) form = blend_form(builder, group, x);
  if (step.op == Op::resize_bicubic && form.type == DataType::u8) form = {builder.float_type(), form.layout};
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

/// Of volumes: slice by slice, then along the depth.
void lower_resize_volume(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  const std::vector<int64_t> in = shape_of(node, *x), out = shape_of(node, *group.result);
  if (in.size() != 5) unsupported(node, "expected volumes [N, C, D, H, W], got ", in.size(), " dimensions");
  const Steps steps = steps_of(node, in, out);
  Form form = kept_form(builder, node, x);
  if (resize_op(node) != Op::resize_nearest && form.type == DataType::u8) form = {builder.float_type()};
  form.layout = Layout::nhwc;
  Step slices = resize_step(node, out[3], out[4], steps[1], steps[2]);
  slices.inputs = {builder.as(node, x, form)};
  const int32_t wide = builder.emit(std::move(slices), node.output()->name + ".slices", form,
                                    {in[0], in[1], in[2], out[3], out[4]});
  builder.bind(group.result,
               along_depth(builder, node, wide, resize_step(node, out[2], 1, steps[0], 0), form));
  finish_quantize(builder, group);
}

/// Pixels at the places of a grid, in f32.
void lower_grid_sample(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "input");
  image_shape(node, *x);
  const int64_t mode = int_arg(node, "interpolation_mode"), border = int_arg(node, "padding_mode");
  if (mode < 0 || mode > 2 || border < 0 || border > 2) unsupported(node, "expected a known mode and border");
  Step step = step_of(Op::grid_sample, node);
  step.attributes = runtime::GridSampleAttributes{.mode = static_cast<kernels::GridMode>(mode),
                                                  .border = static_cast<kernels::GridBorder>(border),
                                                  .align_corners = bool_arg(node, "align_corners")};
  const Form form{DataType::f32, Layout::nhwc};
  step.inputs = {builder.as(node, x, form), builder.as(node, value_arg(node, "grid"), {})};
  emit_same(builder, group, std::move(step), form);
}

void lower_depth_to_space(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "x");
  const std::vector<int64_t> out = image_shape(node, *group.result);
  Step step = step_of(Op::depth_to_space, node);
  step.name = layer_name(node);
  step.attributes = runtime::DepthToSpaceAttributes{
      .window = {int_arg(node, "h"), int_arg(node, "w")}, .size_h = out[2], .size_w = out[3]};
  const Form form = kept_form(builder, node, x);
  step.inputs = {builder.as(node, x, form)};
  emit_same(builder, group, std::move(step), form);
}

}  // namespace

LoweringTable image_lowerings() {
  static constexpr Lowering kTable[] = {{"ulp::depth_to_space", lower_depth_to_space},
                                        {"aten::upsample_nearest2d", lower_resize},
                                        {"aten::_upsample_nearest_exact2d", lower_resize},
                                        {"aten::upsample_bilinear2d", lower_resize},
                                        {"aten::upsample_bicubic2d", lower_resize},
                                        {"aten::upsample_nearest3d", lower_resize_volume},
                                        {"aten::_upsample_nearest_exact3d", lower_resize_volume},
                                        {"aten::upsample_trilinear3d", lower_resize_volume},
                                        {"aten::grid_sampler", lower_grid_sample},
                                        {"aten::grid_sampler_2d", lower_grid_sample}};
  return kTable;
}

}  // namespace ulp::lowering
