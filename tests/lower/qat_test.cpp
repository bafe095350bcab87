// A network that was trained quantized runs in the engine like one that was quantized after training.
#include "ulp/quant/qat/qat.h"

#include <gtest/gtest.h>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

TEST(Qat, TheConvertedModelLowersToTheSameSteps) {
  torch::manual_seed(8);
  auto model = models::make_model("resnet20", {.in_channels = 3, .num_classes = 10, .image_size = 32});
  randomize_batch_norms(*model);
  const auto module = captured(model, torch::randn({2, 3, 32, 32}));
  auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  auto qat = quant::prepare_qat(module, quant::Recipe::x86_int8());
  const torch::NoGradGuard no_grad;
  prepared->forward(torch::randn({4, 3, 32, 32}));
  qat->freeze_batch_norm();
  for (int i = 0; i < 3; ++i) qat->forward(torch::randn({4, 3, 32, 32}));
  qat->eval();
  const auto converted = quant::convert_qat(qat);
  const runtime::Plan plan = lower(*converted);
  EXPECT_EQ(listing(plan), listing(lower(*quant::convert(prepared))));
  const at::Tensor x = torch::randn({8, 3, 32, 32});
  runtime::Engine engine(plan);
  const double engine_error = relative_error(run_engine(engine, x), module->forward(x));
  const double training_error = relative_error(qat->forward(x), module->forward(x));
  EXPECT_LT(training_error, 0.2);
  EXPECT_LT(engine_error, 1.25 * training_error);
}

}  // namespace
}  // namespace ulp::test
