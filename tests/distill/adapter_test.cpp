// Adapters: what joins a student's values with wider or narrower ones of its teacher.
#include "ulp/distill/adapter.h"

#include "networks.h"

namespace ulp::distill::tests {
namespace {

std::vector<int64_t> joined(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  const at::Tensor student = torch::randn(from);
  return make_adapter(student, torch::randn(to), "here")->forward(student).sizes().vec();
}

std::string refused(const at::Tensor& from, const at::Tensor& to) {
  return test::error_of([&] { make_adapter(from, to, "layer1 and layer2"); });
}

TEST(Adapter, IsALinearLayerOrAConvolutionOfOneByOne) {
  EXPECT_EQ(joined({3, 4}, {3, 7}), (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(joined({3, 6, 4}, {3, 6, 7}), (std::vector<int64_t>{3, 6, 7}));
  EXPECT_EQ(joined({3, 4, 8, 8}, {3, 7, 8, 8}), (std::vector<int64_t>{3, 7, 8, 8}));
  const auto conv = make_adapter(torch::randn({3, 4, 8, 8}), torch::randn({3, 7, 8, 8}), "here");
  EXPECT_EQ(conv->parameters()[0].sizes(), (std::vector<int64_t>{7, 4, 1, 1}));
  const at::Tensor x = torch::randn({2, 4, 8, 8});
  EXPECT_TRUE(torch::allclose(conv->forward(x), at::conv2d(x, conv->parameters()[0], conv->parameters()[1])));
  EXPECT_EQ(conv->forward(x.to(torch::kBFloat16)).scalar_type(), at::kFloat);
}

/// The smaller image of both is what is compared, in each dimension.
TEST(Adapter, LargerImagesAreAveraged) {
  EXPECT_EQ(joined({3, 4, 8, 8}, {3, 7, 4, 4}), (std::vector<int64_t>{3, 7, 4, 4}));
  EXPECT_EQ(joined({3, 4, 4, 4}, {3, 7, 8, 8}), (std::vector<int64_t>{3, 7, 4, 4}));
  const at::Tensor teacher = torch::randn({3, 7, 8, 6});
  EXPECT_TRUE(pooled_to(teacher, torch::randn({3, 4, 8, 6})).is_same(teacher));
  EXPECT_TRUE(pooled_to(teacher, torch::randn({3, 4, 9, 9})).is_same(teacher));
  const at::Tensor pooled = pooled_to(teacher, torch::randn({3, 4, 4, 6}));
  EXPECT_TRUE(torch::allclose(pooled, at::avg_pool2d(teacher, {2, 1})));
  const at::Tensor rows = torch::randn({3, 4});
  EXPECT_TRUE(pooled_to(rows, torch::randn({3, 2})).is_same(rows));
}

TEST(Adapter, ShapesThatNothingJoinsAreRefusedByBoth) {
  const auto floats = [](const std::vector<int64_t>& shape) { return torch::randn(shape); };
  const std::string ranks = refused(floats({3, 4, 8, 8}), floats({3, 4}));
  EXPECT_SAYS(ranks, "at layer1 and layer2");
  EXPECT_SAYS(ranks, "got shapes [3, 4, 8, 8] of the student and [3, 4] of the teacher");
  EXPECT_SAYS(refused(floats({3, 5, 4}), floats({3, 6, 4})), "[3, 5, 4] of the student and [3, 6, 4]");
  EXPECT_SAYS(refused(floats({3, 4}), floats({2, 4})), "[3, 4] of the student and [2, 4]");
  EXPECT_SAYS(refused(floats({3}), floats({3})), "got shapes [3]");
  EXPECT_SAYS(refused(floats({3, 4, 2, 2, 2}), floats({3, 5, 2, 2, 2})), "[3, 4, 2, 2, 2]");
  EXPECT_SAYS(refused(torch::zeros({3, 4}, torch::kLong), floats({3, 5})), "got shapes");
}

}  // namespace
}  // namespace ulp::distill::tests
