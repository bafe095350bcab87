// How often capture runs a model.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {
namespace {

namespace nn = torch::nn;

/// A deep network that counts its runs.
struct Deep : nn::Module {
  int layers, runs = 0;
  nn::ModuleList norms, linears;
  nn::Dropout drop{nullptr};
  Deep(int depth, int64_t width) : layers(depth) {
    for (int i = 0; i < depth; ++i) {
      linears->push_back(nn::Linear(width, width));
      norms->push_back(nn::LayerNorm(nn::LayerNormOptions({width})));
    }
    register_module("linears", linears);
    register_module("norms", norms);
    drop = register_module("drop", nn::Dropout(0.1));
  }
  at::Tensor forward(at::Tensor x) {
    ++runs;
    for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
      const at::Tensor y = norms[i]->as<nn::LayerNorm>()->forward(x);
      x = x + drop(torch::gelu(linears[i]->as<nn::Linear>()->forward(y)));
    }
    return x;
  }
};

TEST(CaptureRuns, DeepNetworksRunTenTimesAtMost) {
  for (const int64_t width : {4, 32, 128}) {
    Deep model(120, width);  // 600 calls
    const auto graph = ulp::capture(model, {torch::randn({4, width})});
    EXPECT_LE(model.runs, 10) << width;
    EXPECT_GE(graph->graph().nodes().size(), 600U);
    const at::Tensor x = torch::randn({3, width});
    graph->eval();
    model.eval();
    EXPECT_TRUE(torch::equal(graph->forward(x), model.forward(x)));
  }
}

/// What bends far from the example is found as before.
TEST(CaptureRuns, FewRunsStillMeetNumbersThatBend) {
  struct Bent : Deep {
    int64_t limit = 0;
    using Deep::Deep;
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = Deep::forward(x);
      return y.slice(0, 0, std::min(y.size(0), limit));
    }
  };
  for (const int64_t limit : {8, 16}) {
    Bent model(60, 4);
    model.limit = limit;
    const std::string error = test::error_of([&] { ulp::capture(model, {torch::randn({4, 4})}); });
    EXPECT_TRUE(test::contains(error, "not linear in the batch size")) << error;
  }
}

}  // namespace
}  // namespace ulp::graph
