// Windows of signals and the mel scale: tables of known sizes.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "ulp/exchange/onnx_import/constants.h"
#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Sums of a[k] cos(2 pi k n / N), where N is the size, or one less for a window that is the same from both
/// ends.
template <typename... Shares>
void signal_window(Call& call, Shares... shares) {
  const int64_t size = call.integer(0), type = call.attribute("output_datatype", int64_t{1});
  if (size < 0) call.refuse("expected a size of 0 or more, got ", size);
  const bool periodic = call.attribute("periodic", int64_t{1}) != 0;
  const int64_t period = std::max<int64_t>(periodic ? size : size - 1, 1);
  const Tensor turns = at::div(at::arange(size, at::TensorOptions(at::kDouble)), period);
  Tensor sum;
  double waves = 0;
  for (const double share : {shares...}) {
    const Tensor part = at::mul(at::cos(at::mul(turns, 2 * std::numbers::pi * waves)), share);
    sum = sum.defined() ? at::add(sum, part) : part;
    ++waves;
  }
  call.set(sum.to(scalar_type(type, call.node().label())));
}

void hann_window(Call& call) {
  signal_window(call, 0.5, -0.5);
}
void hamming_window(Call& call) {
  constexpr double kShare = 25.0 / 46;
  signal_window(call, kShare, kShare - 1);
}
void blackman_window(Call& call) {
  signal_window(call, 0.42, -0.5, 0.08);
}

double window_bound(Call& call) {
  return 4 * std::max(static_cast<double>(call.integer(0)), 0.0);
}

double to_mel(double hertz) {
  return 2595 * std::log10(1 + hertz / 700);
}
double to_hertz(double mel) {
  return 700 * (std::pow(10, mel / 2595) - 1);
}

/// Triangles over the bins of a transform, [dft_length / 2 + 1, num_mel_bins], by the formula of ONNX's
/// reference. All inputs are known: another table at other sizes is refused.
void mel_weight_matrix(Call& call) {
  const int64_t bins = call.integer(0), length = call.integer(1), rate = call.integer(2);
  if (bins < 1 || length < 1 || rate < 1) call.refuse("expected bins, a length and a rate of 1 or more");
  const double low = to_mel(call.number(3)), high = to_mel(call.number(4));
  const double step = (high - low) / static_cast<double>(bins + 2);
  const int64_t rows = length / 2 + 1;
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = to_hertz(low + static_cast<double>(i) * step);
    const double edge = std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate));
    if (!(edge >= 0 && edge < static_cast<double>(rows)))
      call.refuse("expected frequencies within those of the transform, got the bin ", edge, " of ", rows);
    edges.push_back(static_cast<int64_t>(edge));
  }
  const at::DisableRecordFunctionGuard beside_the_capture;
  const Tensor table = torch::zeros({rows, bins}, torch::kDouble);
  auto* out = table.mutable_data_ptr<double>();
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = edges[static_cast<size_t>(i)], middle = edges[static_cast<size_t>(i) + 1],
                  right = edges[static_cast<size_t>(i) + 2];
    if (left == middle) out[middle * bins + i] = 1;
    for (int64_t row = left; row <= middle && left < middle; ++row)
      out[row * bins + i] = static_cast<double>(row - left) / static_cast<double>(middle - left);
    for (int64_t row = middle; row < right; ++row)
      out[row * bins + i] = static_cast<double>(right - row) / static_cast<double>(right - middle);
  }
  const at::ScalarType type = scalar_type(call.attribute("output_datatype", int64_t{1}), call.node().label());
  call.set(constant_of_node(call, ".table", table.to(type)));
}

double mel_bound(Call& call) {
  return 2 * std::max(static_cast<double>(call.integer(0)), 0.0) *
         (std::max(static_cast<double>(call.integer(1)), 0.0) / 2 + 1);
}

}  // namespace

ConverterTable signal_window_table() {
  static constexpr Converter kTable[] = {{"HannWindow", hann_window, window_bound},
                                         {"HammingWindow", hamming_window, window_bound},
                                         {"BlackmanWindow", blackman_window, window_bound},
                                         {"MelWeightMatrix", mel_weight_matrix, mel_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
