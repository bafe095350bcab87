// Windows over images. The format pads by two words: VALID not at all; SAME so that the result has ceil(in / stride) elements,
// the odd one behind. All else is an operator before.
#include <algorithm>

#include "ulp/exchange/tflite/converters.h"

namespace ulp::exchange::tflite {

namespace {

bool is_valid(const Window& one) {
  return one.pad == 0 && one.behind() <= 0;
}

bool is_same(const Window& one) {
  const int64_t all = std::max<int64_t>(one.behind() + one.pad, 0);
  return one.out == (one.in + one.stride - 1) / one.stride && one.pad == all / 2;
}

}  // namespace

Padded padded(const Window& height, const Window& width) {
  if (is_valid(height) && is_valid(width)) return {};
  if (is_same(height) && is_same(width)) return {schema::Padding::SAME, false};
  return {schema::Padding::VALID, true};
}

Index pad_image(Builder& builder, const graph::Node& node, Index image, const Window& height,
                const Window& width, bool lowest) {
  const auto behind = [](const Window& one) { return std::max<int64_t>(one.behind(), 0); };
  const auto grown = [&](const Window& one) { return static_cast<int32_t>(one.in + one.pad + behind(one)); };
  const graph::Value& value = *node.args.at(0).value;
  Shape shape = builder.shape_of(node, value, Layout::channels_last);
  for (auto* sizes : {&shape.sizes, &shape.signature}) {
    if (sizes->size() == 3) sizes->insert(sizes->begin() + 1, 1);
    sizes->at(1) = grown(height);
    sizes->at(2) = grown(width);
  }
  const Index made = builder.like(image, shape);
  const Index pads = builder.pairs({0, 0, height.pad, behind(height), width.pad, behind(width), 0, 0});
  if (!lowest) {
    builder.emit(schema::Operation::PAD, {image, pads}, {made}, options_of(schema::PadOptionsT()));
    return made;
  }
  builder.emit(schema::Operation::PADV2, {image, pads, builder.lowest_like(image)}, {made},
               options_of(schema::PadV2OptionsT()));
  return made;
}

Index image_of(Builder& builder, const graph::Node& node, const graph::Value& value, bool integer) {
  const Index x = builder.tensor_of(node, &value, Layout::channels_last, integer);
  Shape shape = builder.shape_of(node, value, Layout::channels_last);
  if (shape.sizes.size() == 4) return x;
  if (shape.sizes.size() != 3) refuse(node, "expected images or sequences");
  for (auto* sizes : {&shape.sizes, &shape.signature}) sizes->insert(sizes->begin() + 1, 1);
  const Index image = builder.like(x, shape);
  builder.reshape(node, x, image);
  return image;
}

Windows windows_of(const Builder& builder, const graph::Node& node, const graph::Value& in,
                   const graph::Value& out, const std::vector<int64_t>& kernel,
                   const std::vector<int64_t>& stride, const std::vector<int64_t>& dilation,
                   const std::vector<int64_t>& pad) {
  const Shape from = builder.shape_of(node, in), to = builder.shape_of(node, out);
  const size_t dims = kernel.size();
  const auto window = [&](size_t d) {
    return Window{from.sizes.at(2 + d), to.sizes.at(2 + d), kernel[d], stride[d], dilation[d], pad[d]};
  };
  return dims == 1 ? Windows{{}, window(0)} : Windows{window(0), window(1)};
}

}  // namespace ulp::exchange::tflite
