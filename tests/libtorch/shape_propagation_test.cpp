// Runs for shapes: what LibTorch says of sizes, types, layouts and errors, and no numbers.
#include "ulp/libtorch/shape_propagation.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <random>

namespace ulp::libtorch {
namespace {

using Call = std::function<at::Tensor()>;

/// In the place of an error of oneDNN, which has no kernel for some shapes that LibTorch lets pass.
constexpr const char* kByOneDnn = "oneDNN";

/// The result, or the first line of the error.
std::pair<at::Tensor, std::string> outcome_of(const Call& call) {
  try {
    return {call(), ""};
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return {{}, text.substr(0, text.find('\n'))};
  } catch (const std::exception&) {
    return {{}, kByOneDnn};
  }
}

void expect_same_shape(const Call& call) {
  const auto [expected, refused] = outcome_of(call);
  if (refused == kByOneDnn) return;
  std::pair<at::Tensor, std::string> got;
  {
    const ShapePropagation shapes;
    got = outcome_of(call);
  }
  EXPECT_EQ(got.second, refused);
  ASSERT_EQ(got.first.defined(), expected.defined());
  if (!expected.defined()) return;
  EXPECT_EQ(got.first.sizes(), expected.sizes());
  EXPECT_EQ(got.first.strides(), expected.strides());
  EXPECT_EQ(got.first.scalar_type(), expected.scalar_type());
  EXPECT_EQ(got.first.requires_grad(), expected.requires_grad());
  // What they read afterwards is LibTorch's again.
  EXPECT_TRUE(call().equal(expected));
}

TEST(ShapePropagation, DrawnConvolutionsHaveLibTorchsShapesAndErrors) {
  std::mt19937 random(4);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  torch::manual_seed(1);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const int64_t dims = draw(1, 3), groups = draw(1, 3), ins = groups * draw(1, 8),
                  outs = groups * draw(1, 8);
    const bool transposed = draw(0, 2) == 0, wrong = draw(0, 9) == 0, last = draw(0, 3) == 0 && dims == 2;
    std::vector<int64_t> x{draw(1, 3), ins + (wrong ? 1 : 0)},
        kernel{transposed ? ins : outs, (transposed ? outs : ins) / groups};
    std::vector<int64_t> stride, padding, dilation, more;
    for (int64_t d = 0; d < dims; ++d) {
      x.push_back(draw(1, 9));
      kernel.push_back(draw(1, 4));
      stride.push_back(draw(1, 3));
      padding.push_back(draw(0, 2));
      dilation.push_back(draw(1, 2));
      more.push_back(transposed ? draw(0, std::max(stride.back(), dilation.back()) - 1) : 0);
    }
    at::Tensor input = torch::randn(x), weight = torch::randn(kernel);
    if (last) input = input.contiguous(at::MemoryFormat::ChannelsLast);
    if (draw(0, 1) == 0) weight.requires_grad_();
    std::optional<at::Tensor> bias;
    if (draw(0, 1) == 0) bias = torch::randn({outs});
    const Call call = [&] {
      return at::convolution(input, weight, bias, stride, padding, dilation, transposed, more, groups);
    };
    refused += outcome_of(call).first.defined() ? 0 : 1;
    expect_same_shape(call);
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 200);
}

TEST(ShapePropagation, ProductsHaveLibTorchsShapesAndErrors) {
  torch::manual_seed(2);
  const at::Tensor a = torch::randn({80, 70}), b = torch::randn({70, 90}).requires_grad_(),
                   bias = torch::randn({90}), c = torch::randn({3, 80, 70}), d = torch::randn({3, 70, 90});
  expect_same_shape([&] { return at::mm(a, b); });
  expect_same_shape([&] { return at::mm(a, b.t()); });
  expect_same_shape([&] { return at::addmm(bias, a, b); });
  expect_same_shape([&] { return at::addmm(bias, a, b, 0.5, 2); });
  expect_same_shape([&] { return at::bmm(c, d); });
  expect_same_shape([&] { return at::baddbmm(bias, c, d); });
  expect_same_shape([&] { return at::linear(c, b.t(), bias); });
  expect_same_shape([&] { return at::matmul(c, b); });
  expect_same_shape([&] { return at::matmul(a, bias); });
  expect_same_shape([&] { return at::mm(a, b.detach().to(at::kDouble)); });
  expect_same_shape([&] { return at::einsum("bij,jk->bik", {c, b}); });
}

TEST(ShapePropagation, LeavesNumbersOutAndSizesIn) {
  const at::Tensor wide = torch::ones({80, 80}), few = torch::ones({3, 3}),
                   image = torch::ones({1, 8, 20, 20}), kernel = torch::ones({8, 8, 3, 3});
  const ShapePropagation shapes;
  EXPECT_TRUE(at::mm(wide, wide).eq(0).all().item<bool>());
  EXPECT_TRUE(at::conv2d(image, kernel).eq(0).all().item<bool>());
  EXPECT_TRUE(at::mm(few, few).eq(3).all().item<bool>());
  EXPECT_TRUE(wide.mul(2).eq(2).all().item<bool>());
  {
    const ShapePropagation again;
    EXPECT_TRUE(at::mm(wide, wide).eq(0).all().item<bool>());
  }
  EXPECT_TRUE(at::mm(wide, wide).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace ulp::libtorch
