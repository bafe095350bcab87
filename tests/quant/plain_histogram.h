// The histogram of PyTorch's HistogramObserver, in plain loops over LibTorch's edges of bins. The last bits
// of edges depend on the processor, where LibTorch fuses products and sums if it can.
#pragma once

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ulp::quant::test {

struct PlainHistogram {
  static constexpr int64_t kBins = 2048, kPieces = 16 * kBins;

  std::vector<float> bins;
  float min = 0, max = 0;
  double movable = 0;  ///< what lies so close to an edge that other processors may count it a bin further

  void add(const at::Tensor& x) {
    const bool first = bins.empty();
    const float low = x.min().item<float>(), high = x.max().item<float>();
    const float wider_min = first ? low : std::min(min, low), wider_max = first ? high : std::max(max, high);
    std::vector<float> sums = counts(x, wider_min, wider_max);
    if (!first) add_old(sums, wider_min, wider_max);
    bins = sums;
    min = wider_min;
    max = wider_max;
  }

  /// The sum of the bins times their places; exact, as bins hold whole numbers and sixteenths.
  double moment() const {
    double sum = 0;
    for (size_t i = 0; i < bins.size(); ++i) sum += static_cast<double>(bins[i]) * static_cast<double>(i);
    return sum;
  }

 private:
  static std::vector<float> numbers(const at::Tensor& x) {
    return {x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel()};
  }
  static std::vector<float> counts(const at::Tensor& x, float low, float high) {
    return numbers(at::histc(x, kBins, low, high));
  }

  /// The bins as they were, in the wider range: each is cut into 16 pieces, which go where their middles lie.
  void add_old(std::vector<float>& sums, float wider_min, float wider_max) {
    if (wider_min == min && wider_max == max) {
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += bins[i];
      return;
    }
    std::vector<float> moved(sums.size());
    if (min == max) {
      float all = 0;
      for (const float bin : bins) all += bin;
      moved = counts(at::full({1}, min), wider_min, wider_max);
      for (float& bin : moved) bin *= all;
    } else {
      const std::vector<float> begins = numbers(at::linspace(min, max, kPieces + 1, at::kFloat));
      const std::vector<float> edges = numbers(at::linspace(wider_min, wider_max, kBins + 1, at::kFloat));
      const float half = 0.5F * ((max - min) / static_cast<float>(kPieces));
      const float close = 0x1p-21F * std::max(std::fabs(wider_min), std::fabs(wider_max));
      for (size_t i = 0; i < static_cast<size_t>(kPieces); ++i) {
        const float middle = begins[i] + half, weight = bins[i / 16] / 16;
        const auto above = std::ranges::upper_bound(edges, middle);
        const auto bin = std::clamp<int64_t>(above - edges.begin() - 1, 0, kBins - 1);
        moved[static_cast<size_t>(bin)] += weight;
        if (above != edges.end() && *above - middle <= close) movable += weight;
        if (above != edges.begin() && middle - *(above - 1) <= close) movable += weight;
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += moved[i];
  }
};

}  // namespace ulp::quant::test
