// Shared by the tests of what the library does on a GPU.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

namespace ulp::test {

/// Skips where there is no GPU; elsewhere asks LibTorch for the same bits each time.
class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA";
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setFloat32MatmulPrecision("highest");
    at::globalContext().setAllowTF32CuDNN(false);
    torch::manual_seed(1);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

/// The largest difference, as a share of the largest magnitude expected.
inline double distance(const at::Tensor& expected, const at::Tensor& got) {
  const at::Tensor a = expected.detach().cpu().to(at::kDouble), b = got.detach().cpu().to(at::kDouble);
  return ((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).item<double>();
}

/// A convolution with a norm, and two linear layers; images of 3 x 8 x 8 to 4 classes.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("middle", middle);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor pooled = torch::relu(norm(conv(x))).mean({2, 3});
    return head(torch::relu(middle(pooled)));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 32, 3).padding(1)};
  torch::nn::BatchNorm2d norm{32};
  torch::nn::Linear middle{32, 64}, head{64, 4};
};
TORCH_MODULE(SmallNet);

/// 64 images whose class is the quarter that is brightest, and the classes.
inline std::pair<at::Tensor, at::Tensor> bright_corners() {
  at::Tensor x = torch::randn({64, 3, 8, 8}) * 0.3;
  const at::Tensor classes = torch::arange(64) % 4;
  for (int64_t i = 0; i < 64; ++i) x[i][i % 4 % 3].add_(i % 4 == 3 ? -1 : 1);
  return {x.to(at::kCUDA), classes.to(at::kCUDA)};
}

}  // namespace ulp::test
