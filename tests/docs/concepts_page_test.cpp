// The samples of docs/concepts.md: an engine file that contexts run, and a model in pieces.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "concepts/contexts.includes.h"
#include "concepts/pieces.includes.h"
#include "in_temporary_folder.h"
#include "ulp/ulp.h"

namespace {

struct Layer : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 3));
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x); }
};

TEST(ConceptsPage, AContextRunsTheEngine) {
  const ulp::docs::InTemporaryFolder here;
  auto captured = ulp::capture(*std::make_shared<Layer>(), {torch::randn({2, 4})});
  ulp::lower(*captured).save("model.ulp");
  const int64_t batch = 2;
  const std::array<float, 8> x{};
  std::array<float, 6> y{};
  const std::array<const void*, 1> inputs = {x.data()};
  const std::array<void*, 1> outputs = {y.data()};
#include "concepts/contexts.inc"
  EXPECT_EQ(context.threads(), 1);
  EXPECT_NE(y[0], 0) << "the bias";
}

TEST(ConceptsPage, AModelRunsInPieces) {
  auto captured = ulp::capture(*std::make_shared<Layer>(), {torch::randn({2, 4})});
  const at::Tensor images = torch::randn({2, 4});
#include "concepts/pieces.inc"
  EXPECT_TRUE(torch::allclose(results.at(0), captured->forward(images)));
}

}  // namespace
