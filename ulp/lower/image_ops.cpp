// Ops that change the sizes of images: resizing, channels that become pixels.
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Op;
using runtime::Step;

namespace {

std::vector<int64_t> image_shape(const Node& node, const Value& value) {
  const std::vector<int64_t> shape = shape_of(node, value);
  if (shape.size() != 4) unsupported(node, "expected images [N, C, H, W], got ", shape.size(), " dimensions");
  return shape;
}

/// PyTorch steps by 1 / factor where a factor is given: the same as by the sizes where it divides them.
void expect_factors_of_sizes(const Node& node, const std::vector<int64_t>& in,
                             const std::vector<int64_t>& out) {
  std::vector<double> factors;
  for (const char* name : {"scales_h", "scales_w"}) {
    if (has_arg(node, name)) factors.push_back(number_arg(node, name).value_or(0));
  }
  if (has_arg(node, "scale_factors")) {
    const graph::Argument& given = node.arg("scale_factors");
    if (given.kind == graph::Argument::Kind::literal && given.literal.isDoubleList()) {
      factors = given.literal.toDoubleVector();
    }
  }
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] != 0 && factors[i] * static_cast<double>(in[i + 2]) != static_cast<double>(out[i + 2])) {
      unsupported(node, "expected a factor that gives whole sizes, got ", factors[i], " of ", in[i + 2]);
    }
  }
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

void lower_resize(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  const bool bilinear = node.is("aten::upsample_bilinear2d");
  const std::vector<int64_t> out = image_shape(node, *group.result);
  expect_factors_of_sizes(node, image_shape(node, *x), out);
  Step step = step_of(bilinear ? Op::resize_bilinear : Op::resize_nearest, node);
  if (bilinear) {
    step.attributes = runtime::BilinearAttributes{out[2], out[3], bool_arg(node, "align_corners")};
  } else {
    step.attributes = runtime::NearestAttributes{out[2], out[3]};
  }
  const Form form = bilinear ? blend_form(builder, group, x) : kept_form(builder, node, x);
  step.inputs = {builder.as(node, x, form)};
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
                                        {"aten::upsample_bilinear2d", lower_resize}};
  return kTable;
}

}  // namespace ulp::lowering
