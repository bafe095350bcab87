// What the stages share: sizes of batches, floors, and how a failure is told.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <string>

#include "graph/same.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {

constexpr int64_t kExample = 4;  ///< the batch that is captured
constexpr int64_t kOther = 7;    ///< and one that is not
constexpr double kQuantizedDb =
    10;  ///< of 8 bits against the float graph: random weights, a few hundred values
constexpr double kBF16Db = 25, kInt8Db = 15, kF32Db = 90;
constexpr double kF32Least = 1e-5;  ///< quotients and powers of small numbers enlarge what was rounded before

/// A stage that did not do what it should.
template <typename... Parts>
[[noreturn]] void differs(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw std::runtime_error(out.str());
}

inline void expect_finite(const Tensors& results) {
  for (const at::Tensor& result : results)
    if (!torch::isfinite(result).all().item<bool>()) differs("a result is not finite");
}

inline void expect_same_bits(const Tensors& want, const Tensors& got, const char* what) {
  if (want.size() != got.size())
    differs(want.size(), " of ", what, " in the model, ", got.size(), " in the graph");
  for (size_t i = 0; i < want.size(); ++i)
    if (!same_bits(want[i], got[i])) differs(what, " ", i, " of the graph differs from the model's");
}

/// Gradients within a share of the largest of each, or of the same bits. What is 0 but for rounding (a bias before
/// a batch norm) is compared with the largest of all.
inline void expect_same_gradients(const Tensors& want, const Tensors& got, double within) {
  if (within == 0) return expect_same_bits(want, got, "gradient");
  const auto largest_of = [](const at::Tensor& x) { return x.defined() ? x.abs().max().item<double>() : 0; };
  constexpr double kNoise = 1e-4;
  double largest = 0;
  for (const at::Tensor& gradient : want) largest = std::max(largest, largest_of(gradient));
  for (size_t i = 0; i < want.size(); ++i) {
    if (same_bits(want[i], got[i])) continue;
    if (!want[i].defined() || !got[i].defined()) differs("gradient ", i, " is not there");
    const double error = largest_of(want[i] - got[i]);
    if (!(error <= within * largest_of(want[i]) + kNoise * largest))
      differs("gradient ", i, " differs by ", error);
  }
}

/// Signal to noise of two results, infinite where they are equal.
inline double ratio_db(const at::Tensor& exact, const at::Tensor& result) {
  // A model that squeezes its result has a number without dimensions for one sample.
  const bool one = exact.numel() == 1 && result.numel() == 1;
  if (one && exact.sizes() != result.sizes()) return ratio_db(exact.flatten(), result.flatten());
  if (exact.sizes() != result.sizes()) differs("expected sizes ", exact.sizes(), ", got ", result.sizes());
  return quant::quantization_error(exact.to(at::kFloat), result.to(at::kFloat)).sqnr_db;
}

/// The first line; LibTorch's messages go on with where it is in LibTorch.
inline std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// What is trained: the squares of the floating results that have gradients.
inline at::Tensor sum_of_squares(const Tensors& results) {
  at::Tensor loss = torch::zeros({});
  for (const at::Tensor& result : results)
    if (result.requires_grad()) loss = loss + result.to(at::kFloat).square().mean();
  return loss;
}

}  // namespace ulp::test
