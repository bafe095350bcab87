#include "ulp/exchange/adaptive_windows.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "ulp/quant/static/window_runs.h"

namespace ulp::exchange {

std::vector<std::vector<int64_t>> adaptive_elements(int64_t in, int64_t out) {
  std::vector<std::vector<int64_t>> windows;
  size_t most = 0;
  for (const auto& [begin, end] : quant::adaptive_spans(in, out)) {
    std::vector<int64_t> window;
    for (int64_t place = begin; place < end; ++place) window.push_back(place);
    most = std::max(most, window.size());
    windows.push_back(std::move(window));
  }
  for (std::vector<int64_t>& window : windows) window.resize(most, window.back());
  return windows;
}

at::Tensor adaptive_averages(int64_t in, int64_t out) {
  at::Tensor shares = at::zeros({out, in}, at::kDouble);
  auto* share = shares.mutable_data_ptr<double>();
  for (const auto& [begin, end] : quant::adaptive_spans(in, out)) {
    std::fill(share + begin, share + end, 1.0 / static_cast<double>(end - begin));
    share += in;
  }
  return shares;
}

std::vector<std::vector<int64_t>> window_elements(const WindowRule& rule) {
  std::vector<std::vector<int64_t>> windows;
  for (int64_t o = 0; o < rule.out; ++o) {
    std::vector<int64_t> window;
    for (int64_t k = 0; k < rule.kernel; ++k) {
      const int64_t place = o * rule.stride - rule.pad + k * rule.dilation;
      if (place >= 0 && place < rule.in) window.push_back(place);
    }
    if (window.empty()) return {};
    window.resize(static_cast<size_t>(rule.kernel), window.back());
    windows.push_back(std::move(window));
  }
  return windows;
}

}  // namespace ulp::exchange
