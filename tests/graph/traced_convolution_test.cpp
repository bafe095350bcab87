// Traced TorchScript calls aten::_convolution, which becomes the convolution that passes and autocast know.
#include <torch/csrc/jit/api/module.h>

#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;

/// A module that calls aten::_convolution with these numbers, as torch.jit.trace writes it.
torch::jit::Module traced_convolution(const at::Tensor& weight, int64_t dims, bool transposed) {
  torch::jit::Module model("conv");
  model.register_parameter("weight", weight, false);
  model.register_parameter("bias", torch::randn({4}), false);
  const auto each = [&](const char* number) {
    std::string list = "[";
    for (int64_t i = 0; i < dims; ++i) list += (i > 0 ? ", " : "") + std::string(number);
    return list + "]";
  };
  model.define("def forward(self, x):\n    return torch._convolution(x, self.weight, self.bias, " +
               each("2") + ", " + each("1") + ", " + each("1") + ", " + (transposed ? "True" : "False") +
               ", " + each(transposed ? "1" : "0") + ", 2, False, False, True, True)\n");
  return model;
}

TEST(TracedConvolution, BecomesAPlainOneWithTheSameBits) {
  torch::manual_seed(1);
  for (const int64_t dims : {1, 2, 3}) {
    for (const bool transposed : {false, true}) {
      std::vector<int64_t> kernel{4, 2}, image{3, 4};
      kernel.resize(2 + dims, 3);
      image.resize(2 + dims, 6);
      torch::jit::Module model = traced_convolution(torch::randn(kernel), dims, transposed);
      const auto module = ulp::capture(model, {torch::randn(image)});
      const std::string op =
          (transposed ? "aten::conv_transpose" : "aten::conv") + std::to_string(dims) + "d";
      EXPECT_EQ(count(module->graph(), op), 1) << module->graph();
      EXPECT_EQ(count(module->graph(), "aten::_convolution"), 0);
      const at::Tensor weight = model.attr("weight").toTensor();
      const at::Tensor x = torch::randn(image);
      const auto run = [&](const std::function<at::Tensor(at::Tensor)>& forward) {
        at::Tensor input = x.clone().requires_grad_();
        weight.mutable_grad() = at::Tensor();
        const at::Tensor y = forward(input);
        y.square().sum().backward();
        return Tensors{y.detach(), input.grad(), weight.grad()};
      };
      const Tensors want = run([&](const at::Tensor& in) { return model.forward({in}).toTensor(); });
      const Tensors got = run([&](const at::Tensor& in) { return module->forward(in); });
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(want[i], got[i])) << op << ' ' << i;
    }
  }
}

TEST(TracedConvolution, SaysThatAutocastReachesItNow) {
  torch::jit::Module model = traced_convolution(torch::randn({4, 2, 3, 3}), 2, false);
  const at::Tensor x = torch::randn({2, 4, 6, 6});
  const auto module = ulp::capture(model, {x});
  ASSERT_EQ(module->notes().size(), 1);
  EXPECT_SAYS(module->notes()[0], "aten::_convolution in the model and aten::conv2d in the graph");
  EXPECT_SAYS(module->notes()[0], "autocast");
  const AutocastBf16 autocast(true);
  EXPECT_EQ(model.forward({x}).toTensor().scalar_type(), at::kFloat);
  EXPECT_EQ(module->forward(x).scalar_type(), at::kBFloat16);
}

TEST(TracedConvolution, OtherModelsHaveNothingToNote) {
  torch::nn::Conv2d model(torch::nn::Conv2dOptions(2, 3, 1));
  EXPECT_TRUE(ulp::capture(model, {torch::randn({2, 2, 4, 4})})->notes().empty());
}

}  // namespace
