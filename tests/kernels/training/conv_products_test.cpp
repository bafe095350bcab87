// Convolutions of a training step on every instruction set: the bits of their chains of multiply-adds, and
// LibTorch's numbers.
#include "ulp/kernels/training/conv_products.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/helpers.h"
#include "sixteen_lanes.h"

namespace ulp::kernels {
namespace {

constexpr float kBehind = 4321.0F;

/// A drawn convolution.
struct DrawnConv {
  StepConv conv;
  int64_t batch = 1;
  std::string text() const {
    const StepConv& c = conv;
    std::string made;
    for (const int64_t one : {batch, c.in_channels, c.in_height, c.in_width, c.out_channels, c.out_height,
                              c.out_width, c.kernel_height, c.kernel_width, c.stride_height, c.stride_width,
                              c.pad_height, c.pad_width, c.dilation_height, c.dilation_width, c.groups})
      made += std::to_string(one) + ' ';
    return made;
  }
};

DrawnConv draw_conv(std::mt19937& random, bool depthwise) {
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  while (true) {
    DrawnConv made;
    StepConv& c = made.conv;
    made.batch = draw(1, 3);
    c.groups = draw(0, 2) == 0 ? draw(1, 4) : 1;
    c.in_channels = c.groups * draw(1, draw(0, 1) == 0 ? 5 : 40);
    c.out_channels = c.groups * draw(1, draw(0, 1) == 0 ? 5 : 70);
    if (depthwise) c.groups = c.in_channels = c.out_channels = draw(2, 75);
    c.in_height = draw(1, 12);
    c.in_width = draw(1, draw(0, 9) == 0 ? 70 : 14);
    c.kernel_height = draw(1, 4);
    c.kernel_width = draw(1, 4);
    c.stride_height = draw(1, 3);
    c.stride_width = draw(1, 3);
    c.pad_height = draw(0, 3);
    c.pad_width = draw(0, 3);
    c.dilation_height = draw(1, 3);
    c.dilation_width = draw(1, 3);
    if (draw(0, 2) == 0) c.stride_height = c.stride_width = c.dilation_height = c.dilation_width = 1;
    if (draw(0, 4) == 0) c.kernel_height = c.kernel_width = 1;
    if (draw(0, 4) == 0) c.pad_height = c.pad_width = 0;
    const int64_t down = c.in_height + 2 * c.pad_height - c.dilation_height * (c.kernel_height - 1) - 1;
    const int64_t across = c.in_width + 2 * c.pad_width - c.dilation_width * (c.kernel_width - 1) - 1;
    if (down < 0 || across < 0) continue;
    c.out_height = down / c.stride_height + 1;
    c.out_width = across / c.stride_width + 1;
    return made;
  }
}

/// [N, C, H, W] -> rows of pixels, `stride` apart.
std::vector<float> to_rows(const at::Tensor& images, int64_t stride) {
  const at::Tensor last = images.permute({0, 2, 3, 1}).contiguous();
  const int64_t channels = images.size(1), pixels = images.numel() / channels;
  std::vector<float> made(static_cast<size_t>(pixels * stride), kBehind);
  for (int64_t p = 0; p < pixels; ++p)
    std::copy_n(last.const_data_ptr<float>() + p * channels, channels, made.data() + p * stride);
  return made;
}
at::Tensor from_rows(const std::vector<float>& rows, int64_t stride, at::IntArrayRef sizes) {
  const at::Tensor last = torch::empty({sizes[0], sizes[2], sizes[3], sizes[1]});
  for (int64_t p = 0; p < last.numel() / sizes[1]; ++p) {
    std::copy_n(rows.data() + p * stride, sizes[1], last.data_ptr<float>() + p * sizes[1]);
    for (int64_t j = sizes[1]; j < stride; ++j)
      EXPECT_EQ(rows[static_cast<size_t>(p * stride + j)], kBehind) << "behind pixel " << p;
  }
  return last.permute({0, 3, 1, 2}).contiguous();
}

/// All that the kernels give for a convolution.
struct ConvResults {
  at::Tensor y, relu, dx, added, dw;
};

/// `parts`: in so many pieces of units, the last one first.
void in_pieces(int64_t units, int64_t parts, const std::function<void(int64_t, int64_t)>& run) {
  for (int64_t p = parts - 1; p >= 0; --p) run(units * p / parts, units * (p + 1) / parts);
}

struct ConvOperands {
  at::Tensor x, w, g, bias;
};

ConvResults run_conv(const ConvProductOps& ops, const DrawnConv& drawn, const ConvOperands& of,
                     int64_t parts) {
  const StepConv& c = drawn.conv;
  const int64_t batch = drawn.batch, x_stride = c.in_channels + 3, y_stride = c.out_channels + 5;
  const auto x = to_rows(of.x, x_stride), g = to_rows(of.g, y_stride);
  std::vector<float> y(g.size(), kBehind), dx(x.size(), kBehind), added = x;
  const StepImages xs{x.data(), x_stride}, gs{g.data(), y_stride};
  const float* weights = of.w.const_data_ptr<float>();
  ConvResults made;
  made.dw = torch::full_like(of.w, 0.5);
  std::vector<float> packed, reversed, products;
  const int64_t w_stride = c.out_channels + 1;
  if (c.depthwise()) {
    packed.resize(static_cast<size_t>(c.taps() * w_stride), NAN);
    products = packed;
    for (int64_t t = 0; t < c.taps(); ++t) {
      for (int64_t k = 0; k < c.out_channels; ++k)
        packed[static_cast<size_t>(t * w_stride + k)] = weights[k * c.taps() + t];
    }
  } else {
    packed.resize(static_cast<size_t>(packed_conv_floats(c)), NAN);
    reversed.resize(static_cast<size_t>(packed_conv_input_floats(c)), NAN);
    products.resize(packed.size(), NAN);
    pack_conv_forward(c, weights, contiguous_weight_steps(c), packed.data(), conv_pack_units(c) / 2,
                      conv_pack_units(c));
    pack_conv_forward(c, weights, contiguous_weight_steps(c), packed.data(), 0, conv_pack_units(c) / 2);
    pack_conv_input(c, weights, contiguous_weight_steps(c), reversed.data(), 0, 1);
    pack_conv_input(c, weights, contiguous_weight_steps(c), reversed.data(), 1, conv_pack_input_units(c));
  }
  const auto forward = [&](const StepConvResult& result) {
    in_pieces(c.depthwise() ? batch : conv_forward_units(c, batch), parts, [&](int64_t b, int64_t e) {
      if (c.depthwise()) return ops.depthwise_forward(c, xs, packed.data(), w_stride, result, b, e);
      ops.forward(c, batch, xs, packed.data(), result, b, e);
    });
  };
  const auto backward = [&](const StepConvResult& result) {
    in_pieces(c.depthwise() ? batch : conv_input_units(c, batch), parts, [&](int64_t b, int64_t e) {
      if (c.depthwise()) return ops.depthwise_input(c, gs, packed.data(), w_stride, result, b, e);
      ops.input_gradient(c, batch, gs, reversed.data(), result, b, e);
    });
  };
  const float* bias = of.bias.const_data_ptr<float>();
  forward({y.data(), y_stride, nullptr, false, false});
  made.y = from_rows(y, y_stride, of.g.sizes());
  forward({y.data(), y_stride, bias, false, true});
  made.relu = from_rows(y, y_stride, of.g.sizes());
  backward({dx.data(), x_stride, nullptr, false, false});
  made.dx = from_rows(dx, x_stride, of.x.sizes());
  backward({added.data(), x_stride, nullptr, true, false});
  made.added = from_rows(added, x_stride, of.x.sizes());
  if (c.depthwise()) {
    in_pieces((c.in_channels + 15) / 16, parts, [&](int64_t b, int64_t e) {
      ops.depthwise_weight(c, batch, xs, gs, products.data(), w_stride, b, e);
    });
    for (int64_t t = 0; t < c.taps(); ++t) {
      for (int64_t k = 0; k < c.out_channels; ++k)
        made.dw.data_ptr<float>()[k * c.taps() + t] += products[static_cast<size_t>(t * w_stride + k)];
    }
  } else {
    in_pieces(conv_weight_units(c), parts,
              [&](int64_t b, int64_t e) { ops.weight_gradient(c, batch, xs, gs, products.data(), b, e); });
    unpack_conv_weights(c, products.data(), true, made.dw.data_ptr<float>(), contiguous_weight_steps(c), 0,
                        conv_pack_units(c));
  }
  return made;
}

void expect_near(const at::Tensor& made, const at::Tensor& exact, double terms, const char* name,
                 const std::string& text) {
  const double largest = exact.abs().max().item<double>() + 1e-3;
  EXPECT_LE((made.to(torch::kDouble) - exact).abs().max().item<double>(),
            std::ldexp(terms + 64, -24) * largest)
      << name << " of " << text;
}

/// LibTorch's numbers in float64, and the same bits everywhere.
void expect_conv(const DrawnConv& drawn) {
  const StepConv& c = drawn.conv;
  ConvOperands of;
  of.x = torch::randn({drawn.batch, c.in_channels, c.in_height, c.in_width});
  of.w = torch::randn({c.out_channels, c.group_inputs(), c.kernel_height, c.kernel_width});
  of.g = torch::randn({drawn.batch, c.out_channels, c.out_height, c.out_width});
  of.bias = torch::randn({c.out_channels});
  const at::Tensor x = of.x.to(torch::kDouble).requires_grad_(), w = of.w.to(torch::kDouble).requires_grad_();
  const at::Tensor y = torch::conv2d(x, w, {}, {c.stride_height, c.stride_width}, {c.pad_height, c.pad_width},
                                     {c.dilation_height, c.dilation_width}, c.groups);
  ASSERT_EQ(y.sizes(), of.g.sizes()) << drawn.text();
  y.backward(of.g.to(torch::kDouble));
  const ConvResults plain = run_conv(conv_product_ops(Isa::portable), drawn, of, 1);
  const auto window = static_cast<double>(c.taps() * c.group_inputs());
  expect_near(plain.y, y.detach(), window, "y", drawn.text());
  expect_near(plain.relu, torch::relu(y.detach() + of.bias.to(torch::kDouble).view({-1, 1, 1})), window,
              "relu", drawn.text());
  expect_near(plain.dx, x.grad(), static_cast<double>(c.taps() * c.group_outputs()), "dx", drawn.text());
  expect_near(plain.added, x.grad() + x.detach(), static_cast<double>(c.taps() * c.group_outputs()),
              "dx added", drawn.text());
  expect_near(plain.dw, w.grad() + 0.5, static_cast<double>(drawn.batch * c.out_height * c.out_width), "dw",
              drawn.text());
  std::vector<std::pair<std::string, const ConvProductOps*>> all = {
      {"emulated", &test::sixteen_lane_convs()}};
  for (const Isa isa : available_isas()) all.emplace_back(to_string(isa), &conv_product_ops(isa));
  for (const auto& [name, ops] : all) {
    const ConvResults same = run_conv(*ops, drawn, of, 3);
    EXPECT_TRUE(torch::equal(plain.y, same.y)) << name << ' ' << drawn.text();
    EXPECT_TRUE(torch::equal(plain.relu, same.relu)) << name << ' ' << drawn.text();
    EXPECT_TRUE(torch::equal(plain.dx, same.dx)) << name << ' ' << drawn.text();
    EXPECT_TRUE(torch::equal(plain.added, same.added)) << name << ' ' << drawn.text();
    EXPECT_TRUE(torch::equal(plain.dw, same.dw)) << name << ' ' << drawn.text();
  }
}

TEST(ConvProducts, RandomConvolutionsAreLibTorchsAndTheSameBitsEverywhere) {
  std::mt19937 random(1);
  torch::manual_seed(1);
  for (int i = 0; i < 150; ++i) expect_conv(draw_conv(random, false));
}

TEST(ConvProducts, DepthwiseConvolutions) {
  std::mt19937 random(2);
  torch::manual_seed(2);
  for (int i = 0; i < 60; ++i) expect_conv(draw_conv(random, true));
}

/// A square convolution with stride 1 or 2 and padding that keeps the size.
DrawnConv square_conv(int64_t batch, int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride) {
  DrawnConv made;
  made.batch = batch;
  StepConv& c = made.conv;
  c.in_channels = in;
  c.out_channels = out;
  c.in_height = c.in_width = size;
  c.kernel_height = c.kernel_width = kernel;
  c.stride_height = c.stride_width = stride;
  c.pad_height = c.pad_width = kernel / 2;
  c.out_height = c.out_width = (size - 1) / stride + 1;
  return made;
}

TEST(ConvProducts, SizesThatComeInSeveralBlocksAndImages) {
  torch::manual_seed(3);
  expect_conv(square_conv(2, 33, 20, 33, 3, 1));  // rows in blocks
  expect_conv(square_conv(1, 2, 3, 600, 3, 2));   // wide images: blocks side by side
  expect_conv(square_conv(300, 5, 7, 2, 3, 1));   // several images a block, and a last one of fewer
  expect_conv(square_conv(70, 40, 36, 4, 1, 1));  // pixels alone
  expect_conv(square_conv(1, 600, 3, 7, 7, 1));   // a window of 29,400 numbers
}

TEST(ConvProducts, SaysWhatFits) {
  EXPECT_TRUE(conv_fits(square_conv(1, 668, 2, 7, 7, 1).conv));
  EXPECT_FALSE(conv_fits(square_conv(1, 669, 2, 7, 7, 1).conv));  // 32,781 numbers
  EXPECT_FALSE(conv_fits(square_conv(1, 2, 669, 7, 7, 1).conv));  // of the gradient
  EXPECT_FALSE(conv_fits(square_conv(1, 1, 2, 17, 17, 1).conv));  // 289 taps
}

}  // namespace
}  // namespace ulp::kernels
