// Layers of ONNX files whose attributes or sizes contradict each other or those of runtimes, or whose types
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

/// With auto_pad the output is as long as the input times the strides, which runtimes miss by shorter windows.
TEST(ImportLayers, TransposedWindowsShorterThanTheirStridesAreRefused) {
  for (const char* pad : {"SAME_UPPER", "SAME_LOWER"}) {
    OnnxCase file;
    file.input("x", {1, 1, 4}).tensor("w", torch::ones({1, 1, 2}));
    file.node("ConvTranspose", {"x", "w"}, {"y"},
              {{"auto_pad", std::string(pad)}, {"strides", std::vector<int64_t>{3}}});
    EXPECT_ERROR(file.output("y").import(), "got one of 2 with a stride of 3, by which runtimes differ");
  }
}

TEST(ImportLayers, AnOutputShapeOfAFreeSizeIsRefused) {
  OnnxCase file;
  file.input("x", {1, 1, -1}).tensor("w", torch::ones({1, 1, 3}));
  file.node("ConvTranspose", {"x", "w"}, {"y"}, {{"output_shape", std::vector<int64_t>{6}}}).output("y");
  EXPECT_ERROR(file.import(), "expected an input whose sizes are numbers, for an output_shape");
}

TEST(ImportLayers, StatesOfAnotherBatchAreRefused) {
  OnnxCase file;
  file.input("x", {2, -1, 3}).tensor("w", torch::ones({1, 8, 3})).tensor("r", torch::ones({1, 8, 2}));
  file.tensor("h", torch::ones({1, 5, 2}))
      .node("LSTM", {"x", "w", "r", "", "", "h"}, {"y"}, {{"hidden_size", 2}});
  EXPECT_ERROR(file.output("y").import(), "(LSTM): expected states of [1, 2, 2] as input 5, got [1, 5, 2]");
}

TEST(ImportLayers, TheFirstInputMayBeANumber) {
  OnnxCase file;
  file.input("a", {}).input("x", {-1, 3}).node("Add", {"x", "a"}, {"y"}).output("y");
  const at::Tensor x = torch::randn({4, 3});
  EXPECT_TRUE(file.run({torch::tensor(2.0F), x}).equal(x + 2));
}

TEST(ImportLayers, PlacesOfKnownNumbersThatAreNot0) {
  const at::Tensor mask = torch::tensor({{1, 0, 2}, {0, 0, 3}});
  OnnxCase file;
  file.input("x", {-1, 3}).tensor("mask", mask).node("NonZero", {"mask"}, {"places"});
  file.node("Cast", {"places"}, {"numbers"}, {{"to", 1}}).tensor("turn", torch::tensor({3, 2}));
  file.node("Reshape", {"numbers", "turn"}, {"columns"}).node("MatMul", {"x", "columns"}, {"y"}).output("y");
  const at::Tensor x = torch::randn({4, 3});
  const at::Tensor places = torch::nonzero(mask).t().to(torch::kFloat).reshape({3, 2});
  EXPECT_LE(share_off(file.run({x}), x.matmul(places)), 1e-6);
  OnnxCase computed;
  computed.input("x", {2, 3}).node("NonZero", {"x"}, {"y"}).output("y");
  EXPECT_ERROR(computed.import(),
               "(NonZero): expected input 0, 'x', to follow from constants and sizes alone");
}

}  // namespace ulp::test
