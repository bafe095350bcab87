// Small networks whose speed depends on one width.
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/prune/structured/width_table.h"

namespace ulp::prune {

namespace {

namespace nn = torch::nn;

/// Layers in a row with a clamp behind each but the last, as engines fuse them.
struct Chain : nn::Module {
  void add(nn::Conv2dOptions options) {
    convs.push_back(register_module("conv" + std::to_string(convs.size()), nn::Conv2d(options)));
  }
  void add(int64_t in, int64_t out) {
    linears.push_back(register_module("linear" + std::to_string(linears.size()), nn::Linear(in, out)));
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < convs.size(); ++i) x = i == 0 ? convs[i](x) : convs[i](x.relu());
    for (size_t i = 0; i < linears.size(); ++i) x = i == 0 ? linears[i](x) : linears[i](x.relu());
    return x;
  }
  std::vector<nn::Conv2d> convs;
  std::vector<nn::Linear> linears;
};

std::shared_ptr<graph::GraphModule> network(WidthKernel kernel, int64_t width, const WidthMeasurement& what) {
  Chain chain;
  const int64_t outer = what.outer;
  const auto square = [&](int64_t in, int64_t out) { return nn::Conv2dOptions(in, out, 3).padding(1); };
  switch (kernel) {
    case WidthKernel::convolution:
      chain.add(square(outer, width));
      chain.add(square(width, outer));
      break;
    case WidthKernel::depthwise:
      chain.add(nn::Conv2dOptions(outer, width, 1));
      chain.add(square(width, width).groups(width));
      chain.add(nn::Conv2dOptions(width, outer, 1));
      break;
    case WidthKernel::pointwise:
      chain.add(nn::Conv2dOptions(outer, width, 1));
      chain.add(nn::Conv2dOptions(width, outer, 1));
      break;
    case WidthKernel::linear:
      chain.add(outer, width);
      chain.add(width, outer);
      break;
  }
  const bool rows = kernel == WidthKernel::linear;
  chain.eval();
  return capture(
      chain, {rows ? torch::zeros({1, what.rows, outer}) : torch::zeros({1, outer, what.image, what.image})});
}

}  // namespace

std::vector<int64_t> WidthMeasurement::default_widths() {
  std::vector<int64_t> widths = {1, 2, 3};
  for (int64_t width = 4; width <= 256; width += width < 64 ? 4 : width < 128 ? 8 : 16)
    widths.push_back(width);
  return widths;
}

void WidthMeasurement::validate() const {
  const auto at_least = [](const char* name, int64_t value) {
    if (value < 1) fail("prune.measure_widths", "expected ", name, " of at least 1, got ", value);
  };
  at_least("outer", outer);
  at_least("image", image);
  at_least("rows", rows);
  at_least("repeats", repeats);
  if (widths.size() < 2) fail("prune.measure_widths", "expected at least two widths, got ", widths.size());
  at_least("widths", widths.front());
  if (std::ranges::adjacent_find(widths, std::greater_equal<>()) != widths.end())
    fail("prune.measure_widths", "expected rising widths, got others");
}

WidthTable measure_widths(const MeasureSeconds& seconds, const WidthMeasurement& what,
                          const std::string& machine) {
  what.validate();
  if (!seconds) fail("prune.measure_widths", "expected a function that measures, got none");
  const size_t kinds = what.kernels.size(), widths = what.widths.size();
  const auto total = static_cast<int64_t>(kinds * widths) * what.repeats;
  std::vector<std::vector<double>> times(kinds * widths);
  int64_t done = 0;
  for (int64_t turn = 0; turn < what.repeats; ++turn) {
    for (size_t i = 0; i < times.size(); ++i) {
      times[i].push_back(seconds(*network(what.kernels[i / widths], what.widths[i % widths], what)));
      if (what.progress) what.progress(++done, total);
    }
  }
  WidthTable table{.machine = machine, .curves = {}};
  for (size_t k = 0; k < kinds; ++k) {
    WidthCurve& curve = table.curves.emplace_back(WidthCurve{.kernel = what.kernels[k], .points = {}});
    for (size_t w = 0; w < widths; ++w) {
      std::vector<double>& found = times[k * widths + w];
      const auto middle = found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2);
      std::ranges::nth_element(found, middle);
      curve.points.push_back({what.widths[w], *middle});
    }
  }
  table.validate();
  return table;
}

}  // namespace ulp::prune
