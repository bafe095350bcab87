// The reference networks through quantization-aware training: one step in train mode, and then the converted
// graph's result is that of the training graph.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ulp/graph/capture/capture.h"
#include "ulp/models/registry.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::quant {
namespace {

struct QatCase {
  const char* model;
  BatchNormFolding folding;
  bool same_bits;  // not where a batch norm that stays float is folded by convert alone
};

class QatModels : public testing::TestWithParam<QatCase> {};

TEST_P(QatModels, TrainAndConvertToTheSameResult) {
  const QatCase& expected = GetParam();
  torch::manual_seed(3);
  const auto images = [] { return torch::randn({4, 3, 32, 32}) + 0.2; };
  const auto model = models::make_model(expected.model);
  auto qat = prepare_qat(capture(*model, {images()}), Recipe::x86_int8(), {.folding = expected.folding});
  const auto before = model->named_parameters(), after = qat->named_parameters();
  for (const auto& p : before) EXPECT_TRUE(after[p.key()].is_same(p.value())) << p.key();

  torch::optim::SGD optimizer(qat->parameters(), 1e-3);
  qat->forward(images()).square().mean().backward();
  for (const auto& p : before) {
    EXPECT_TRUE(p.value().grad().defined() && at::isfinite(p.value().grad()).all().item<bool>()) << p.key();
  }
  optimizer.step();

  qat->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = images(), trained = qat->forward(x), converted = convert_qat(qat)->forward(x);
  if (expected.same_bits) {
    EXPECT_TRUE(trained.equal(converted)) << (trained - converted).abs().max();
  } else {
    const double noise = (trained - converted).square().sum().item<double>();
    EXPECT_LT(noise, 1e-3 * trained.square().sum().item<double>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, QatModels,
                         testing::Values(QatCase{"mlp", BatchNormFolding::fast, true},
                                         QatCase{"lenet5", BatchNormFolding::fast, true},
                                         QatCase{"resnet20", BatchNormFolding::exact, true},
                                         QatCase{"mobilenet_v2", BatchNormFolding::fast, true},
                                         QatCase{"shufflenet_v2_x1_0", BatchNormFolding::exact, true},
                                         QatCase{"unet", BatchNormFolding::fast, true}),
                         [](const auto& info) { return info.param.model; });

}  // namespace
}  // namespace ulp::quant
