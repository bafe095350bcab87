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

/// Whether the work, which makes one number of a product, is told that the number was left out.
bool are_read(const std::function<void(const at::Tensor&)>& work) {
  const at::Tensor wide = torch::ones({80, 80});
  const ShapePropagation shapes;
  try {
    work(at::mm(wide, wide));
  } catch (const c10::Error&) {
    // As of the inverse of zeros.
  }
  return shapes.numbers_were_read();
}

TEST(ShapePropagation, SaysWhetherNumbersThatWereLeftOutAreRead) {
  using T = const at::Tensor&;
  EXPECT_FALSE(are_read([](T y) { y.relu().sum({1}); }));
  EXPECT_FALSE(are_read([](T) { torch::ones({3}).sum().item(); }));
  EXPECT_FALSE(are_read([](T y) { torch::zeros(y.sizes()).any().item(); }));
  EXPECT_TRUE(are_read([](T y) { y.relu().sum().item(); }));
  EXPECT_TRUE(are_read([](T y) { at::linalg_inv(y); }));
  EXPECT_TRUE(are_read([](T y) { at::linalg_cholesky(y); }));
  EXPECT_TRUE(are_read([](T y) { y.gt(0).nonzero(); }));
  EXPECT_TRUE(are_read([](T y) { torch::ones({80, 80}).index({y.gt(0)}); }));
  EXPECT_TRUE(are_read([](T y) { y.view({-1}).narrow(0, 3, 1).is_nonzero(); }));
  EXPECT_TRUE(are_read([](T y) { at::equal(at::cat({torch::ones({2, 80}), y}), torch::ones({82, 80})); }));
  EXPECT_TRUE(are_read([](T y) { at::_unique2(at::split(y, 40)[1]); }));
  EXPECT_TRUE(are_read([](T y) { at::embedding(torch::ones({2, 3}), y.sub(1).to(at::kLong)); }));
  EXPECT_TRUE(are_read([](T y) {
    at::Tensor other = torch::ones({80, 80});
    other.select(0, 3).copy_(y.select(0, 0));
    other.sum().item();
  }));
  EXPECT_TRUE(are_read([](T y) { at::conv1d(y.unsqueeze(0), torch::ones({80, 80, 1})).max().item(); }));
  EXPECT_TRUE(are_read([](T y) { at::mm(y.slice(0, 0, 2), y.slice(1, 0, 2)).max().item(); }));
}

TEST(ShapePropagation, WorkThatReadsNumbersIsDoneAgainWithThem) {
  const at::Tensor wide = torch::ones({80, 80});
  int times = 0;
  double read = 0;
  with_shapes([&] { at::mm(wide, wide), ++times; });
  EXPECT_EQ(times, 1);
  with_shapes([&] { read = at::mm(wide, wide).max().item<double>(), ++times; });
  EXPECT_EQ(times, 3);
  EXPECT_EQ(read, 80);
  at::Tensor inverse;
  with_shapes([&] { inverse = at::linalg_inv(at::mm(torch::eye(80), torch::eye(80))); });
  EXPECT_TRUE(inverse.equal(torch::eye(80)));
  EXPECT_THROW(with_shapes([&] { at::mm(wide, torch::ones({3, 3})), ++times; }), c10::Error);
  const ShapePropagation outer;
  with_shapes([&] { read = at::mm(wide, wide * 2).max().item<double>(); });
  EXPECT_EQ(read, 160);
  EXPECT_TRUE(outer.numbers_were_read());
}

}  // namespace
}  // namespace ulp::libtorch
