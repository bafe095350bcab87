// Transposed convolutions of sequences and volumes in quantization-aware training: the bits of the converted
// graph.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <random>

#include "ulp/graph/capture/capture.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"

namespace ulp::quant {
namespace {

namespace nn = torch::nn;

/// Numbers for each dimension.
template <size_t D>
struct UpShape {
  std::array<int64_t, D> kernel, stride, padding, more, dilation;
  int64_t groups = 1;

  explicit UpShape(std::mt19937& random) {
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<unsigned>(high - low + 1));
    };
    for (size_t d = 0; d < D; ++d) {
      kernel[d] = draw(1, D == 1 ? 5 : 3);
      stride[d] = draw(1, D == 1 ? 4 : 2);
      dilation[d] = draw(1, 2);
      padding[d] = draw(0, std::min<int64_t>(2, dilation[d] * (kernel[d] - 1)));
      more[d] = draw(0, std::max(stride[d], dilation[d]) - 1);
    }
    groups = draw(1, 2);
  }
  nn::ConvTransposeOptions<D> options(int64_t in, int64_t out) const {
    const auto all = [](const std::array<int64_t, D>& numbers) { return torch::ExpandingArray<D>(numbers); };
    return nn::ConvTransposeOptions<D>(in, out, all(kernel))
        .stride(all(stride))
        .padding(all(padding))
        .output_padding(all(more))
        .dilation(all(dilation))
        .groups(groups);
  }
};

/// A convolution, the transposed one with what may stand behind it, another convolution.
template <typename Conv, typename Up, typename Norm, size_t D>
nn::Sequential decoder(std::mt19937& random) {
  nn::Sequential model(Conv(nn::ConvOptions<D>(3, 4, 3).padding(1)), nn::ReLU(),
                       Up(UpShape<D>(random).options(4, 6)));
  if (random() % 2 == 0) model->push_back(Norm(6));
  if (random() % 2 == 0) model->push_back(nn::ReLU());
  model->push_back(Conv(nn::ConvOptions<D>(6, 2, 1)));
  return model;
}

nn::Sequential drawn_decoder(bool volumes, std::mt19937& random) {
  return volumes ? decoder<nn::Conv3d, nn::ConvTranspose3d, nn::BatchNorm3d, 3>(random)
                 : decoder<nn::Conv1d, nn::ConvTranspose1d, nn::BatchNorm1d, 1>(random);
}

at::Tensor drawn_items(bool volumes, int64_t n) {
  return volumes ? torch::randn({n, 3, 4, 5, 3}) : torch::randn({n, 3, 11});
}

TEST(QatOfTransposed, SequencesAndVolumesHaveTheBitsOfTheConvertedGraph) {
  std::mt19937 random(12);
  for (int draw = 0; draw < 24; ++draw) {
    const bool volumes = draw % 3 == 2;
    SCOPED_TRACE(testing::Message() << "draw " << draw);
    torch::manual_seed(draw);
    nn::Sequential model = drawn_decoder(volumes, random);
    const auto folding = random() % 2 == 0 ? BatchNormFolding::fast : BatchNormFolding::exact;
    const auto qat =
        prepare_qat(capture(model, {drawn_items(volumes, 2)}), Recipe::x86_int8(), {.folding = folding});
    EXPECT_EQ(qat->parameters().size(), model->parameters().size());
    EXPECT_EQ(std::ranges::count_if(qat->report().changes,
                                    [](const std::string& line) { return line.starts_with("2"); }),
              1);
    torch::optim::SGD optimizer(qat->parameters(), 0.02);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (qat->forward(drawn_items(volumes, 4)) - 0.3).square().mean().backward();
      EXPECT_GT(model->parameters()[2].grad().abs().sum().item<double>(), 0);  // the transposed weight
      optimizer.step();
    }
    qat->eval();
    const auto converted = convert_qat(qat);
    const torch::NoGradGuard no_grad;
    const at::Tensor x = drawn_items(volumes, 5);
    const at::Tensor trained = qat->forward(x), integers = converted->forward(x);
    EXPECT_TRUE(trained.equal(integers)) << (trained - integers).abs().max();
    EXPECT_TRUE(converted->parameters().empty());
  }
}

/// In float the joined phases are LibTorch's transposed convolution.
TEST(QatOfTransposed, WithoutRoundingTheResultIsLibTorchs) {
  std::mt19937 random(13);
  for (int draw = 0; draw < 24; ++draw) {
    const bool volumes = draw % 3 == 2;
    SCOPED_TRACE(testing::Message() << "draw " << draw);
    torch::manual_seed(draw);
    nn::Sequential model = drawn_decoder(volumes, random);
    model->eval();
    const at::Tensor x = drawn_items(volumes, 3);
    const auto captured = capture(model, {x});
    const auto qat = prepare_qat(captured, Recipe::x86_int8());
    qat->set_fake_quant_enabled(false);
    qat->eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor want = model->forward(x);
    EXPECT_TRUE(torch::allclose(qat->forward(x), want, 1e-4, 1e-5));
  }
}

}  // namespace
}  // namespace ulp::quant
