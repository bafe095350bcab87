// Names of inputs and results on the way to an engine: fields of structs.
#include <gtest/gtest.h>

#include "support.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace {

using namespace ulp;
using namespace ulp::test;
namespace nn = torch::nn;

struct Frame {
  at::Tensor image, mask;
  ULP_TENSOR_FIELDS(image, mask)
};

struct Found {
  at::Tensor boxes, scores;
  ULP_TENSOR_FIELDS(boxes, scores)
};

/// Has a parameter of the name of an input, and decodes in eval mode alone.
struct FrameDetectorImpl : nn::Module {
  nn::Conv2d boxes = register_module("boxes", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
  nn::Conv2d scores = register_module("scores", nn::Conv2d(3, 2, 1));
  at::Tensor mask = register_parameter("mask", torch::full({1}, 0.5));
  std::vector<Found> forward(const Frame& frame) {
    const at::Tensor x = frame.image * frame.mask + mask;
    std::vector<Found> all{{boxes(x), scores(x)}};
    if (!is_training()) all.push_back({torch::relu(boxes(x)), scores(x).sigmoid()});
    return all;
  }
};
TORCH_MODULE(FrameDetector);

TEST(NamedResults, AnEngineTakesFieldsAndGivesThemInOrder) {
  torch::manual_seed(1);
  FrameDetector model;
  const auto frame = [](int64_t batch) {
    return Frame{torch::randn({batch, 3, 6, 6}), torch::rand({batch, 3, 6, 6})};
  };
  const auto module = ulp::capture(model, frame(2));
  module->eval();
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  ASSERT_EQ(engine.inputs().size(), 2);
  EXPECT_EQ(engine.inputs()[0].name, "image");
  EXPECT_EQ(engine.inputs()[1].name, "mask");
  const Frame given = frame(5);
  const torch::NoGradGuard no_grad;
  const auto found = module->call<std::vector<Found>>(given);
  const std::vector<at::Tensor> want = graph::flatten(found);
  const std::vector<at::Tensor> got = run_engine_all(engine, {given.image, given.mask});
  ASSERT_EQ(want.size(), 4);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(relative_error(got[i], want[i]), 1e-5) << i;
}

}  // namespace
