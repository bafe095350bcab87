// Convolutions and normalisations of ONNX files whose attributes contradict each other, or whose types differ.
#include <torch/torch.h>

#include "error_of.h"
#include "onnx_case.h"

namespace ulp::test {

TEST(ImportLayers, AnOutputShapeReplacesThePads) {
  const at::Tensor x = torch::tensor({1.F, 2.F, 3.F, 4.F}).view({1, 1, 2, 2}), bias = torch::tensor({10.F});
  const at::Tensor all = at::conv_transpose2d(x, x, {}, 2);  // 4 x 4
  const std::vector<int64_t> twos = {2, 2}, ones(4, 1);
  const auto y = [&](const std::vector<int64_t>& shape, const OnnxAttributes& more) {
    OnnxAttributes attributes = {{"strides", twos}, {"output_shape", shape}};
    attributes.insert(attributes.end(), more.begin(), more.end());
    return OnnxCase()
        .input("x", {1, 1, 2, 2})
        .tensor("w", x)
        .tensor("b", bias)
        .node("ConvTranspose", {"x", "w", "b"}, {"y"}, attributes)
        .output("y")
        .run({x});
  };
  const at::Tensor larger = at::constant_pad_nd(all, {0, 1, 0, 1}) + 10;
  EXPECT_TRUE(torch::equal(y({5, 5}, {}), larger));
  EXPECT_TRUE(torch::equal(y({5, 5}, {{"pads", ones}}), larger));
  // A smaller side loses its first column.
  const at::Tensor mixed = at::constant_pad_nd(all.slice(3, 1), {0, 0, 0, 1}) + 10;
  EXPECT_TRUE(torch::equal(y({5, 3}, {{"pads", ones}}), mixed));
}

}  // namespace ulp::test
