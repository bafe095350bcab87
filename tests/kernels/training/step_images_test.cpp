// Loops over images of a training step: the bits of the plain ones on every instruction set, statistics
// beside float64, and what pools do with equal numbers and NaN.
#include "ulp/kernels/training/step_images.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/helpers.h"

namespace ulp::kernels {
namespace {

class StepImagesTest : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(All, StepImagesTest, ::testing::ValuesIn(available_isas()), test::isa_name);

/// Rows that lie a multiple of 16 apart, as the arena has them.
struct PixelRows {
  int64_t rows, width, stride;
  std::vector<float> data;
  PixelRows(int64_t rows, int64_t width, uint32_t seed, float low = -1, float high = 1)
      : rows(rows),
        width(width),
        stride((width + 15) / 16 * 16),
        data(test::random_floats(rows * stride, seed, low, high)) {}
  StepRows all() const { return {data.data(), rows, width, stride}; }
  /// The numbers of the columns that count.
  std::vector<float> numbers() const {
    std::vector<float> made;
    for (int64_t r = 0; r < rows; ++r)
      made.insert(made.end(), data.begin() + r * stride, data.begin() + r * stride + width);
    return made;
  }
};

/// All that batch norm gives, forward and backward.
struct NormNumbers {
  std::vector<float> mean, variance, unbiased, y, dx, dw, db;
};

NormNumbers run_norm(const StepImageOps& ops, const PixelRows& x, const PixelRows& g, int64_t parts,
                     const std::vector<float>& weight, const std::vector<float>& bias, NormFinish relu) {
  const int64_t padded = x.stride, rows = x.rows / parts;
  std::vector<double> moments(static_cast<size_t>(parts * 2 * padded)), sums(moments);
  std::vector<float> norm(static_cast<size_t>(StepNormRows::kRows * padded)),
      means(static_cast<size_t>(2 * padded));
  const auto part = [&](const PixelRows& of, int64_t p) {
    return StepRows{of.data.data() + p * rows * of.stride, rows, of.width, of.stride};
  };
  for (int64_t p = 0; p < parts; ++p) ops.norm_moments(part(x, p), moments.data() + p * 2 * padded);
  const StepNormRows statistics{norm.data(), padded};
  ops.norm_join(moments.data(), 2 * padded, parts, rows, x.width, 1e-3F, weight.data(), bias.data(),
                statistics);
  PixelRows y = x, dx = x;
  ops.norm_apply(x.all(), statistics, nullptr, relu, y.data.data());
  for (int64_t p = 0; p < parts; ++p)
    ops.norm_gradient_sums(part(g, p), x.data.data() + p * rows * x.stride, statistics, relu,
                           sums.data() + p * 2 * padded);
  NormNumbers made;
  made.dw.assign(static_cast<size_t>(x.width), 0.25F);
  made.db.resize(static_cast<size_t>(x.width));
  ops.norm_gradient_join(sums.data(), 2 * padded, parts, static_cast<double>(x.rows), statistics, x.width,
                         means.data(), padded, true, made.dw.data(), false, made.db.data());
  ops.norm_gradient(g.all(), x.data.data(), statistics, relu, means.data(), padded, dx.data.data());
  const auto row = [&](const float* from) { return std::vector<float>(from, from + x.width); };
  made.mean = row(statistics.mean());
  made.variance = row(statistics.variance());
  made.unbiased = row(statistics.unbiased());
  made.y = y.numbers();
  made.dx = dx.numbers();
  return made;
}

TEST_P(StepImagesTest, BatchNormIsLibTorchsAndTheSameBitsEverywhere) {
  for (const auto& [rows, parts] : {std::pair<int64_t, int64_t>{2, 1}, {130, 2}, {300, 1}, {1000, 5}}) {
    for (const int64_t width : {1, 5, 16, 37}) {
      for (const NormFinish finish : {NormFinish::none, NormFinish::relu, NormFinish::relu6}) {
        const bool relu = finish != NormFinish::none;
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width) + " finish " +
                     std::to_string(static_cast<int>(finish)));
        // A mean far from 0: differences of squares would have no digits left.
        const PixelRows x(rows, width, 1, 999, 1001), g(rows, width, 2);
        const std::vector<float> weight = test::random_floats(width, 3, 0.5, 2),
                                 bias = test::random_floats(width, 4);
        const NormNumbers made = run_norm(step_image_ops(GetParam()), x, g, parts, weight, bias, finish);
        const NormNumbers plain = run_norm(step_image_ops(Isa::portable), x, g, parts, weight, bias, finish);
        for (const auto of : {&NormNumbers::mean, &NormNumbers::variance, &NormNumbers::unbiased,
                              &NormNumbers::y, &NormNumbers::dx, &NormNumbers::dw, &NormNumbers::db})
          EXPECT_EQ(made.*of, plain.*of);
        const auto wide = [](std::vector<float> values, at::IntArrayRef sizes) {
          return torch::from_blob(values.data(), sizes).to(torch::kDouble);
        };
        const at::Tensor exact_x = wide(x.numbers(), {rows, width}).requires_grad_();
        const at::Tensor w = wide(weight, {width}).requires_grad_(), b = wide(bias, {width}).requires_grad_();
        at::Tensor y = torch::batch_norm(exact_x, w, b, {}, {}, true, 0, 1e-3, false);
        if (relu) y = finish == NormFinish::relu ? torch::relu(y) : torch::relu6(y);
        y.backward(wide(g.numbers(), {rows, width}));
        const auto expect_near = [&](const std::vector<float>& values, const at::Tensor& exact,
                                     double bound) {
          EXPECT_LE((wide(values, exact.sizes()) - exact).abs().max().item<double>(), bound);
        };
        const at::Tensor variance = exact_x.detach().var(0, false);
        // The mean is rounded to 2^-15 of 1000; two rows may be nearly equal.
        expect_near(made.mean, exact_x.detach().mean(0), 0x1p-14);
        expect_near(made.variance, variance, 0x1p-20 * variance.max().item<double>() + 0x1p-28);
        if (rows < 100) continue;
        const double scale = 2 / std::sqrt(variance.min().item<double>());
        expect_near(made.y, y.detach(), 0x1p-14 * scale);
        if (relu) continue;  // numbers at the kink fall on both sides
        expect_near(made.db, b.grad(), std::ldexp(static_cast<double>(rows), -24));
        expect_near(made.dw, w.grad() + 0.25, 0x1p-14 * static_cast<double>(rows) * scale);
        expect_near(made.dx, exact_x.grad(), 0x1p-13 * scale * scale);
      }
    }
  }
}

TEST_P(StepImagesTest, PoolsChooseAsLibTorchDoes) {
  const StepImageOps& ops = step_image_ops(GetParam());
  StepPool pool;
  pool.in_height = 7;
  pool.in_width = 8;
  pool.channels = 19;
  pool.kernel_height = pool.kernel_width = 3;
  pool.stride_height = pool.stride_width = 2;
  pool.pad_height = pool.pad_width = 1;
  pool.out_height = 4;
  pool.out_width = 4;
  const int64_t batch = 2, stride = 32;
  at::Tensor x = torch::randint(3, {batch, pool.channels, 7, 8}).to(torch::kFloat);  // many equal numbers
  x[0][0][2][3] = NAN;
  x[0][0][2][4] = NAN;
  x[1][3].fill_(-INFINITY);
  const at::Tensor last = x.permute({0, 2, 3, 1}).contiguous(), expected_x = x.clone().requires_grad_();
  std::vector<float> rows(static_cast<size_t>(batch * 7 * 8 * stride)),
      y(static_cast<size_t>(batch * 16 * stride)), places(y), dx(rows);
  for (int64_t p = 0; p < batch * 56; ++p)
    std::copy_n(last.const_data_ptr<float>() + p * pool.channels, pool.channels, rows.data() + p * stride);
  ops.max_pool(pool, {rows.data(), stride}, y.data(), places.data(), stride, 0, batch);
  const at::Tensor expected = torch::max_pool2d(expected_x, 3, 2, 1);
  const at::Tensor g = torch::randn(expected.sizes());
  expected.backward(g);
  const at::Tensor gradients = g.permute({0, 2, 3, 1}).contiguous(),
                   values = expected.detach().permute({0, 2, 3, 1}).contiguous(),
                   slopes = expected_x.grad().permute({0, 2, 3, 1}).contiguous();
  std::vector<float> gs(y.size());
  for (int64_t p = 0; p < batch * 16; ++p) {
    for (int64_t c = 0; c < pool.channels; ++c) {
      const float made = y[static_cast<size_t>(p * stride + c)];
      const float wanted = values.const_data_ptr<float>()[p * pool.channels + c];
      EXPECT_TRUE(made == wanted || (std::isnan(made) && std::isnan(wanted))) << p << ' ' << c;
      gs[static_cast<size_t>(p * stride + c)] = gradients.const_data_ptr<float>()[p * pool.channels + c];
    }
  }
  ops.max_pool_gradient(pool, {gs.data(), stride}, places.data(), dx.data(), stride, 0, batch);
  for (int64_t p = 0; p < batch * 56; ++p) {
    for (int64_t c = 0; c < pool.channels; ++c)
      EXPECT_NEAR(dx[static_cast<size_t>(p * stride + c)],
                  slopes.const_data_ptr<float>()[p * pool.channels + c], 1e-5)
          << p << ' ' << c;
  }
}

TEST_P(StepImagesTest, AveragesHaveTheSameBitsEverywhere) {
  StepPool pool;
  pool.in_height = 5;
  pool.in_width = 9;
  pool.channels = 21;
  pool.out_height = 3;
  pool.out_width = 4;
  pool.adaptive = true;
  const PixelRows x(2 * 45, 21, 5), g(2 * 12, 21, 6);
  std::vector<std::vector<float>> values, slopes;
  for (const Isa isa : {GetParam(), Isa::portable}) {
    PixelRows y = g, dx = x;
    step_image_ops(isa).average_pool(pool, {x.data.data(), x.stride}, y.data.data(), y.stride, 0, 2);
    step_image_ops(isa).average_pool_gradient(pool, {g.data.data(), g.stride}, dx.data.data(), dx.stride, 0,
                                              2);
    values.push_back(y.numbers());
    slopes.push_back(dx.numbers());
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(slopes[0], slopes[1]);
}

TEST_P(StepImagesTest, OrdersOfNumbersGoThereAndBack) {
  const StepImageOps& ops = step_image_ops(GetParam());
  const int64_t batch = 2, channels = 5, height = 3, width = 4, stride = 16;
  for (const int64_t row : {width, width * height, width * height * channels}) {
    const PixelRows images(batch * channels * height * width / row, row, 7);
    std::vector<float> pixels(static_cast<size_t>(batch * height * width * stride));
    ops.to_pixels(images.all(), height, width, channels, pixels.data(), stride, 0, batch);
    const std::vector<float> dense = images.numbers();
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t p = 0; p < height * width; ++p)
          EXPECT_EQ(pixels[static_cast<size_t>((n * height * width + p) * stride + c)],
                    dense[static_cast<size_t>((n * channels + c) * height * width + p)]);
      }
    }
    PixelRows back = images;
    std::fill(back.data.begin(), back.data.end(), 0.0F);
    ops.from_pixels({pixels.data(), stride}, height, width, channels, back.data.data(), back.width,
                    back.stride, 0, batch);
    EXPECT_EQ(back.numbers(), dense);
  }
}

}  // namespace
}  // namespace ulp::kernels
