// Convolutions and normalisations of ONNX files whose attributes contradict each other, or whose types
// differ.
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

TEST(ImportLayers, StatisticsOfABatchOfHalvesAreFloats) {
  torch::manual_seed(7);
  const at::Tensor x = (torch::randn({4, 3, 5}) * 2 + 3).to(torch::kHalf), scale = torch::rand({3}) + 0.5,
                   bias = torch::randn({3}), mean = torch::randn({3}), var = torch::rand({3}) + 0.5;
  const auto module =
      OnnxCase()
          .input("x", {4, 3, 5}, torch::kHalf)
          .tensor("scale", scale)
          .tensor("bias", bias)
          .tensor("mean", mean)
          .tensor("var", var)
          .node("BatchNormalization", {"x", "scale", "bias", "mean", "var"},
                {"y", "running_mean", "running_var"}, {{"training_mode", int64_t{1}}, {"momentum", 0.75F}})
          .output("y")
          .output("running_mean")
          .output("running_var")
          .import();
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> results = module->forward_all({x});
  const at::Tensor wide = x.to(torch::kDouble), of_batch = wide.mean({0, 2}),
                   spread = (wide - of_batch.view({3, 1})).square().mean({0, 2});
  const at::Tensor right =
      (wide - of_batch.view({3, 1})) * (scale / (spread + 1e-5).sqrt()).view({3, 1}) + bias.view({3, 1});
  EXPECT_EQ(results.at(0).scalar_type(), torch::kHalf);
  EXPECT_LE(share_off(results[0], right), 0x1p-11 * 1.01);
  // In the type of the statistics, without a rounding to halves.
  EXPECT_EQ(results.at(1).scalar_type(), torch::kFloat);
  EXPECT_LE(share_off(results[1], mean * 0.75 + of_batch * 0.25), 1e-6);
  EXPECT_EQ(results.at(2).scalar_type(), torch::kFloat);
  EXPECT_LE(share_off(results[2], var * 0.75 + spread * 0.25), 1e-6);
}

}  // namespace ulp::test
