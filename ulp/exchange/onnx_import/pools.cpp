// Pooling.
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Windows of a pool with its padding, and how many there are along each dimension.
struct PoolWindows {
  Window window;
  Sizes counts;
  bool ceil = false;
};

/// By ceil_mode the last window may reach past the padding behind, but begins inside of what lies before it.
PoolWindows pool_windows(const Call& call, const Tensor& x) {
  PoolWindows pool{.window = window_of(call, x, call.attribute("kernel_shape", Sizes())),
                   .counts = {},
                   .ceil = call.attribute("ceil_mode", int64_t{0}) != 0};
  const Window& window = pool.window;
  const bool automatic = call.attribute("auto_pad", "NOTSET").starts_with("SAME");
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    const int64_t size = x.size(static_cast<int64_t>(d) + 2), stride = window.strides[d];
    if (automatic && window.dilations[d] != 1)
      call.refuse(
          "expected pads as numbers for a pool with dilations, by which runtimes differ, got auto_pad");
    const int64_t room = size + window.before[d] + window.behind[d] - reach_of(window, d);
    if (room < 0) call.refuse("expected windows that fit into their input, got a size of ", size);
    int64_t count = (pool.ceil ? room + stride - 1 : room) / stride + 1;
    if (pool.ceil && (count - 1) * stride >= size + window.before[d]) --count;
    pool.counts.push_back(count);
  }
  return pool;
}

/// Whether LibTorch counts the same windows: it pads both sides equally, by half of the window at most.
bool is_usual(const PoolWindows& pool) {
  const Window& window = pool.window;
  bool usual = window.even();
  for (size_t d = 0; d < window.kernel.size(); ++d) usual = usual && 2 * window.before[d] <= window.kernel[d];
  return usual;
}

/// LibTorch walks through the padding for the largest of every window.
void check_walk(const Call& call, const Tensor& x, const PoolWindows& pool) {
  constexpr int64_t kLongestWalk = 1024;
  for (size_t d = 0; d < pool.window.before.size() && is_usual(pool); ++d) {
    const int64_t most = std::max(kLongestWalk, x.size(static_cast<int64_t>(d) + 2));
    if (pool.window.before[d] > most)
      call.refuse("expected pads of at most ", most, ", got ", pool.window.before[d]);
  }
}

/// The padding behind, or what is left out there, with which the windows fill the input.
Sizes behind_last(const PoolWindows& pool, const Tensor& x) {
  Sizes behind = pool.window.behind;
  for (size_t d = 0; d < behind.size() && pool.ceil; ++d) {
    const int64_t end = (pool.counts[d] - 1) * pool.window.strides[d] + reach_of(pool.window, d);
    behind[d] = end - pool.window.before[d] - x.size(static_cast<int64_t>(d) + 2);
  }
  return behind;
}

Tensor largest_of(const Tensor& x, const Window& window, bool ceil) {
  const auto& [kernel, strides, dilations, before, behind] = window;
  switch (kernel.size()) {
    case 1:
      return at::max_pool1d(x, kernel, strides, before, dilations, ceil);
    case 2:
      return at::max_pool2d(x, kernel, strides, before, dilations, ceil);
    default:
      return at::max_pool3d(x, kernel, strides, before, dilations, ceil);
  }
}

/// The padding is no number of the image: nothing is smaller.
Tensor largest_by(const Tensor& x, const PoolWindows& pool) {
  if (is_usual(pool)) return largest_of(x, pool.window, pool.ceil);
  Window window = pool.window;
  window.behind = behind_last(pool, x);
  const Tensor wide = padded(x, window, -std::numeric_limits<double>::infinity());
  return largest_of(wide, window, /*ceil=*/false);
}

/// With their places in all of the input, counted by rows; by columns of each plane where storage_order is 1.
void largest_with_places(Call& call, const Tensor& x, const PoolWindows& pool) {
  if (x.dim() != 4 || !is_usual(pool))
    call.refuse("expected places of images, with equal pads of at most half a window");
  const auto& [kernel, strides, dilations, before, behind] = pool.window;
  auto [values, places] = at::max_pool2d_with_indices(x, kernel, strides, before, dilations, pool.ceil);
  if (call.attribute("storage_order", int64_t{0}) != 0)
    places =
        at::add(at::mul(at::remainder(places, x.size(3)), x.size(2)), at::div(places, x.size(3), "floor"));
  const int64_t planes = x.size(0) * x.size(1), size = x.size(2) * x.size(3);
  const Tensor first = at::mul(at::arange(planes, at::TensorOptions(at::kLong)), size);
  call.set(values, 0);
  call.set(at::add(places, at::reshape(first, {x.size(0), x.size(1), 1, 1})), 1);
}

void max_pool(Call& call) {
  const Tensor x = call.x(0);
  PoolWindows pool = pool_windows(call, x);
  check_walk(call, x, pool);
  if (call.wants(1)) return largest_with_places(call, x, pool);
  if (!at::isFloatingType(x.scalar_type())) {
    if (c10::elementSize(x.scalar_type()) > 2) call.refuse("expected floats or codes, got ", x.scalar_type());
    return call.set(largest_by(x.to(at::kFloat), pool).to(x.scalar_type()));
  }
  call.set(largest_by(x, pool));
}

Tensor average(const Tensor& x, const Window& window, bool ceil, bool with_padding) {
  switch (window.kernel.size()) {
    case 1:
      return at::avg_pool1d(x, window.kernel, window.strides, window.before, ceil, with_padding);
    case 2:
      return at::avg_pool2d(x, window.kernel, window.strides, window.before, ceil, with_padding);
    default: {
      // LibTorch has none of 16 bits.
      const at::ScalarType type = x.scalar_type();
      const Tensor wide = at::isReducedFloatingType(type) ? x.to(at::kFloat) : x;
      const Tensor mean =
          at::avg_pool3d(wide, window.kernel, window.strides, window.before, ceil, with_padding);
      return wide.scalar_type() == type ? mean : mean.to(type);
    }
  }
}

/// Means over windows without padding; of spread ones, as a convolution of each channel with equal numbers.
Tensor plain_average(const Tensor& x, const Window& window) {
  const bool spread = std::ranges::any_of(window.dilations, [](int64_t one) { return one != 1; });
  if (!spread) return average(x, window, /*ceil=*/false, /*with_padding=*/true);
  int64_t count = 1;
  Sizes sizes = {x.size(1), 1};
  for (const int64_t size : window.kernel) {
    count *= size;
    sizes.push_back(size);
  }
  const Tensor weight = at::full(sizes, 1.0 / static_cast<double>(count), x.options());
  const Sizes none(window.kernel.size(), 0);
  switch (window.kernel.size()) {
    case 1:
      return at::conv1d(x, weight, {}, window.strides, none, window.dilations, x.size(1));
    case 2:
      return at::conv2d(x, weight, {}, window.strides, none, window.dilations, x.size(1));
    default:
      return at::conv3d(x, weight, {}, window.strides, none, window.dilations, x.size(1));
  }
}

void average_pool(Call& call) {
  const Tensor x = call.x(0);
  const PoolWindows pool = pool_windows(call, x);
  const bool with_padding = call.attribute("count_include_pad", int64_t{0}) != 0;
  const bool spread = std::ranges::any_of(pool.window.dilations, [](int64_t one) { return one != 1; });
  if (is_usual(pool) && !spread) return call.set(average(x, pool.window, pool.ceil, with_padding));
  Window window = pool.window;
  window.behind = behind_last(pool, x);
  Window around = window;
  const Tensor sums = plain_average(padded(x, window, 0), window);
  // What counts are the image, or the image and its padding, but nothing behind that.
  bool past = false;
  for (size_t d = 0; d < around.behind.size(); ++d) past = past || around.behind[d] > pool.window.behind[d];
  if (with_padding && !past) return call.set(sums);
  Tensor counted = at::ones_like(x);
  if (with_padding) {
    Window declared = pool.window;
    for (size_t d = 0; d < around.behind.size(); ++d) {
      declared.behind[d] = std::min(declared.behind[d], around.behind[d]);
      around.behind[d] -= declared.behind[d];
      around.before[d] = 0;
    }
    counted = padded(counted, declared, 1);
  }
  Tensor share = plain_average(padded(counted, around, 0), window);
  if (spread) share = at::masked_fill(share, at::eq(share, 0), 1);  // windows that miss the image
  call.set(at::div(sums, share));
}

/// (sum of |x|^p)^(1 / p) over windows.
void lp_pool(Call& call) {
  const Tensor x = call.x(0);
  const PoolWindows pool = pool_windows(call, x);
  const auto p = static_cast<double>(call.attribute("p", int64_t{2}));
  Window window = pool.window;
  window.behind = behind_last(pool, x);
  double count = 1;
  for (const int64_t size : window.kernel) count *= static_cast<double>(size);
  const Tensor powers = padded(at::pow(at::abs(x), p), window, 0);
  call.set(at::pow(at::mul(plain_average(powers, window), count), 1 / p));
}

void global_lp(Call& call) {
  const Tensor x = call.x(0);
  if (x.dim() < 3) call.refuse("expected an input of 3 dimensions or more, got ", x.dim());
  Sizes dims(static_cast<size_t>(x.dim()) - 2);
  std::iota(dims.begin(), dims.end(), 2);
  const auto p = static_cast<double>(call.attribute("p", int64_t{2}));
  call.set(at::linalg_vector_norm(x, p, dims, /*keepdim=*/true));
}

void global_average(Call& call) {
  const Tensor x = call.x(0);
  switch (x.dim()) {
    case 3:
      return call.set(at::adaptive_avg_pool1d(x, 1));
    case 4:
      return call.set(at::adaptive_avg_pool2d(x, {1, 1}));
    case 5:
      return call.set(at::adaptive_avg_pool3d(x, {1, 1, 1}));
    default:
      call.refuse("expected an input of 3 to 5 dimensions, got ", x.dim());
  }
}

void global_max(Call& call) {
  const Tensor x = call.x(0);
  switch (x.dim()) {
    case 3:
      return call.set(std::get<0>(at::adaptive_max_pool1d(x, 1)));
    case 4:
      return call.set(std::get<0>(at::adaptive_max_pool2d(x, {1, 1})));
    case 5:
      return call.set(std::get<0>(at::adaptive_max_pool3d(x, {1, 1, 1})));
    default:
      call.refuse("expected an input of 3 to 5 dimensions, got ", x.dim());
  }
}

}  // namespace

ConverterTable pool_table() {
  static constexpr Converter kTable[] = {
      {"MaxPool", max_pool, pooled}, {"AveragePool", average_pool, pooled}, {"LpPool", lp_pool, pooled},
      {"GlobalLpPool", global_lp},   {"GlobalAveragePool", global_average}, {"GlobalMaxPool", global_max}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
