// A cut network goes on through quantization and lowering as any other.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"
#include "ulp/quant/qat/qat.h"
#include "ulp/quant/quantize.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {
namespace {

class CutEngine : public testing::TestWithParam<const char*> {};

TEST_P(CutEngine, RunsInFloatAndInInt8) {
  torch::manual_seed(1);
  const auto model = models::make_model(GetParam(), {.num_classes = 5});
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 2; ++i) model->forward(torch::randn({4, 3, 32, 32}));
  model->eval();
  const Captured module = capture(*model, {torch::randn({2, 3, 32, 32})});
  const auto groups = prune::groups(module->graph());
  const Captured small = prune::remove_units(*module, groups, some_units(groups, 0.5, 2)).module;
  small->eval();
  const at::Tensor x = torch::randn({3, 3, 32, 32});
  runtime::Engine engine(lower(*small, {}), {.threads = 1});
  expect_near(small->forward(x), run_engine(engine, x), 1e-3, "float engine");
  const auto prepared = quant::prepare(small, quant::Recipe::x86_int8());
  prepared->forward(x);
  const Captured converted = quant::convert(prepared);
  runtime::Engine int8(lower(*converted, {}), {.threads = 1});
  const at::Tensor want = converted->forward(x), got = run_engine(int8, x);
  EXPECT_LE((want - got).norm().item<double>(), 0.1 * want.norm().item<double>());
}

TEST(CutQuantized, ObserversAndFakeQuantizersKeepTheirChannelsByName) {
  const auto model = models::make_model("lenet5", {.num_classes = 5});
  const Captured module = capture(*model, {torch::randn({2, 3, 32, 32})});
  for (const bool qat : {false, true}) {
    Captured prepared = quant::prepare(module, quant::Recipe::x86_int8());
    if (qat) prepared = quant::prepare_qat(module, quant::Recipe::x86_int8());
    const auto groups = prune::groups(prepared->graph());
    EXPECT_TRUE(groups.groups.empty()) << words(groups);
    ASSERT_FALSE(groups.obstacles.empty());
    for (const prune::Obstacle& obstacle : groups.obstacles)
      EXPECT_NE(obstacle.reason.find("keeps its channels"), std::string::npos);
    EXPECT_NE(words(groups).find("module '"), std::string::npos) << words(groups);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CutEngine,
                         testing::Values("lenet5", "resnet20", "mobilenet_v2", "shufflenet_v2_x1_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ulp::test
