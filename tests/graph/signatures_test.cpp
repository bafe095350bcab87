// Signatures of forward beside those that take constant references.
#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;

TEST(Signatures, TensorsByReference) {
  struct One : torch::nn::Module {
    at::Tensor forward(at::Tensor& x) {
      x = x * 2;
      return x + 1;
    }
  } one;
  struct Two : torch::nn::Module {
    at::Tensor forward(at::Tensor& x, at::Tensor y) {
      x = x + y;
      return x.relu();
    }
  } two;
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3, 4}), before = x.clone();
  const auto of_one = ulp::capture(one, Tensors{x});
  const auto of_two = ulp::capture(two, Tensors{x, y});
  EXPECT_TRUE(torch::equal(x, before));
  EXPECT_TRUE(torch::equal(of_one->forward(x), x * 2 + 1));
  EXPECT_TRUE(torch::equal(of_two->forward(Tensors{x, y}), (x + y).relu()));
}

TEST(Signatures, AListByReference) {
  struct Sum : torch::nn::Module {
    at::Tensor forward(std::vector<at::Tensor>& parts) {
      parts.push_back(parts[0] * 2);
      return parts[0] + parts[1] + parts.back();
    }
  } model;
  const at::Tensor x = torch::randn({3, 4}), y = torch::randn({3, 4});
  const auto graph = ulp::capture(model, Tensors{x, y});
  EXPECT_TRUE(torch::equal(graph->forward(Tensors{x, y}), x + y + x * 2));
}

}  // namespace
