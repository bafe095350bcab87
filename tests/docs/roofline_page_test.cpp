// The sample of docs/roofline.md: the steps of a small engine below the roof.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>

#include "roofline/roofline.includes.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace {

TEST(RooflinePage, TheStepsOfAnEngineHaveTheirBounds) {
  torch::nn::Sequential model(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 8));
  model->eval();
  ulp::runtime::Engine engine(ulp::lower(*ulp::capture(model, {torch::zeros({2, 64})})), {.threads = 1});
  const int64_t batch = 2;
  const at::Tensor x = ulp::random_input(engine.inputs().front(), batch), y = torch::empty({batch, 8});
  const void* inputs[] = {x.const_data_ptr()};
  void* outputs[] = {y.mutable_data_ptr()};
  std::ostringstream text;
  std::streambuf* const shown = std::cout.rdbuf(text.rdbuf());
#include "roofline/roofline.inc"
  std::cout.rdbuf(shown);
  EXPECT_NE(text.str().find(" % of it"), std::string::npos) << text.str();
}

}  // namespace
