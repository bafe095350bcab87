// What LibTorch refuses while a graph runs is one line that names the node.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {
namespace {

struct SmallImpl : torch::nn::Module {
  SmallImpl() {
    inner = register_module("inner", torch::nn::Sequential(torch::nn::Conv2d(2, 3, 1), torch::nn::ReLU()));
  }
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  torch::nn::Sequential inner{nullptr};
};

TEST(RunErrors, ADtypeThatDoesNotFitNamesTheNodeInOneLine) {
  auto model = std::make_shared<SmallImpl>();
  const auto captured = capture(model, {torch::randn({2, 2, 4, 4})});
  captured->to(torch::kDouble);
  const std::string text = error_of([&] { captured->forward(torch::randn({2, 2, 4, 4})); });
  EXPECT_TRUE(text.starts_with("[graph.run] expected ")) << text;
  EXPECT_SAYS(text, ", got ");
  EXPECT_SAYS(text, ": node aten::conv2d 'conv2d' in inner.0: ");
  EXPECT_SAYS(text, "type");
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_EQ(text.find("Exception raised from"), std::string::npos) << text;
  EXPECT_EQ(graph::running_node(), nullptr);
  EXPECT_EQ(captured->forward(torch::randn({2, 2, 4, 4}, torch::kDouble)).scalar_type(), torch::kDouble);
}

}  // namespace
}  // namespace ulp::test
