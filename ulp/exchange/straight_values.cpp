#include "ulp/exchange/straight_values.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace ulp::exchange {

namespace {

/// Tensors with more numbers are tables, no sizes.
constexpr int64_t kMostNumbers = 1024;
/// Whole numbers beyond are limits ("to the end"), no sizes.
constexpr int64_t kLargestSize = int64_t{1} << 40;

int64_t batch_of(const std::vector<at::Tensor>& examples, const graph::CaptureOptions& options) {
  for (size_t i = 0; i < examples.size(); ++i) {
    if (options.batch_dims.at(i) >= 0) return examples[i].size(options.batch_dims[i]);
  }
  return 0;
}

}  // namespace

std::string FreeAxis::text_of(int64_t size) const {
  return (name.empty() ? "the batch" : "'" + name + "'") + " is " + std::to_string(size);
}

std::vector<FreeAxis> free_axes(const std::vector<at::Tensor>& examples,
                                const graph::CaptureOptions& options) {
  std::vector<FreeAxis> axes;
  if (const int64_t batch = batch_of(examples, options); batch > 0)
    axes.push_back({.name = "",
                    .base = batch,
                    .smallest = std::max(options.batch_range.min, FreeAxis{}.smallest),
                    .largest = std::min(options.batch_range.max, FreeAxis{}.largest)});
  for (const graph::FreeSize& free : options.free) {
    const bool known =
        std::ranges::any_of(axes, [&](const FreeAxis& axis) { return axis.name == free.name; });
    const int64_t size = examples.at(free.input).size(free.dim);
    const int64_t step = std::max<int64_t>(free.multiple, 1);
    if (known || size - 2 * step < free.min) continue;
    axes.push_back({.name = free.name,
                    .base = size,
                    .step = -step,
                    .smallest = std::max<int64_t>(free.min, 1),
                    .largest = std::max(size, free.max)});
  }
  return axes;
}

std::vector<at::Tensor> zeros_along(const std::vector<at::Tensor>& examples,
                                    const graph::CaptureOptions& options, const FreeAxis& axis,
                                    int64_t steps) {
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < examples.size(); ++i) {
    std::vector<int64_t> sizes = examples[i].sizes().vec();
    // Where inputs have multiples of one size, each keeps its factor.
    const auto move = [&](int64_t dim) {
      int64_t& size = sizes[static_cast<size_t>(dim)];
      size += steps * axis.step * size / axis.base;
    };
    if (axis.name.empty() && options.batch_dims.at(i) >= 0) move(options.batch_dims[i]);
    for (const graph::FreeSize& free : options.free) {
      if (free.input == i && free.name == axis.name) move(free.dim);
    }
    all.push_back(at::zeros(sizes, examples[i].scalar_type()));
  }
  return all;
}

std::vector<int64_t> probed_sizes(const FreeAxis& axis) {
  std::vector<int64_t> sizes;
  const auto add = [&](int64_t size) {
    if (size >= axis.smallest && size <= axis.largest && (size - axis.base) % axis.step == 0)
      sizes.push_back(size);
  };
  for (int64_t size = 1; size <= 130; ++size) add(size);
  for (int64_t power = 256; power <= 65'536; power *= 2) {
    for (const int64_t size : {power - 1, power, power + 1}) add(size);
  }
  for (const int64_t size : {300, 384, 500, 501, 640, 1000, 1001, 10'000}) add(size);
  return sizes;
}

bool are_alike(const SeenValue& seen) {
  return std::ranges::all_of(seen, [&](const at::Tensor& one) {
    return one.defined() && one.scalar_type() == seen[0].scalar_type() && one.sizes() == seen[0].sizes() &&
           one.numel() <= kMostNumbers && !one.is_complex();
  });
}

bool moves(const SeenValue& seen) {
  return !at::equal(seen[0], seen[1]) || !at::equal(seen[0], seen[2]);
}

at::Tensor extended(const SeenValue& seen, int64_t steps) {
  if (!moves(seen)) return seen[0];
  if (seen[0].scalar_type() == at::kBool) return {};
  const bool whole = at::isIntegralType(seen[0].scalar_type(), /*includeBool=*/false);
  const at::ScalarType type = whole ? at::kLong : at::kDouble;
  const at::Tensor first = seen[0].to(type), slope = seen[1].to(type) - first;
  at::Tensor bend = seen[2].to(type) - seen[1].to(type) - slope;
  if (whole) {
    const at::Tensor follows = slope.ne(0).logical_or(bend.ne(0));
    if (follows.logical_and(first.abs().gt(kLargestSize)).any().item<bool>()) return {};
  } else {
    constexpr double kRounding = 1e-5;
    bend = at::where(bend.abs() <= kRounding * (1 + first.abs()), at::zeros_like(bend), bend);
  }
  return (first + slope * steps + bend * (steps * (steps - 1) / 2)).to(seen[0].scalar_type());
}

bool agrees(const at::Tensor& found, const at::Tensor& extended) {
  if (!extended.defined() || found.sizes() != extended.sizes()) return false;
  if (at::isIntegralType(found.scalar_type(), /*includeBool=*/true)) return at::equal(found, extended);
  constexpr double kTolerance = 1e-4;
  return at::allclose(found.to(at::kDouble), extended.to(at::kDouble), kTolerance, kTolerance,
                      /*equal_nan=*/true);
}

}  // namespace ulp::exchange
