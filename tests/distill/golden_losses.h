// The cases of tests/golden/make_distill.py.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quant/golden_data.h"
#include "ulp/distill/loss.h"

namespace ulp::distill::tests {

using nlohmann::json;

inline const json& golden() {
  static const json data = json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/distill.json"));
  return data;
}

/// A value of the script; every element is exact in fp32.
inline at::Tensor golden_value(const json& value, at::ScalarType type) {
  const auto shape = value["shape"].get<std::vector<int64_t>>();
  const at::Tensor u = torch::tensor(quant::test::uniform(value["seed"], c10::multiply_integers(shape)));
  at::Tensor made = (value["scale"].get<double>() * (2 * u.to(at::kDouble) - 1)).view(shape);
  if (value.value("masked", false)) made.select(-1, -1).fill_(-10000);
  return made.to(type);
}

inline std::vector<at::Tensor> golden_values(const json& values, at::ScalarType type, bool gradient) {
  std::vector<at::Tensor> made;
  for (const json& value : values) made.push_back(golden_value(value, type).set_requires_grad(gradient));
  return made;
}

inline at::Tensor golden_numbers(const json& numbers) {
  return torch::tensor(numbers.get<std::vector<double>>(), at::kDouble);
}

/// Classes (N) or (N, T), or nothing.
inline at::Tensor golden_targets(const json& of) {
  if (!of.contains("targets") || of["targets"].is_null()) return {};
  const json& targets = of["targets"];
  if (!targets[0].is_array()) return torch::tensor(targets.get<std::vector<int64_t>>());
  std::vector<at::Tensor> rows;
  for (const json& row : targets) rows.push_back(torch::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(rows);
}

inline LossInput golden_input(const json& one, at::ScalarType type) {
  return {.student = golden_values(one["student"], type, true),
          .teacher = golden_values(one["teacher"], type, false),
          .targets = golden_targets(one),
          .progress = one["progress"]};
}

/// The largest difference over the largest expected magnitude.
inline double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor wide = got.detach().to(at::kDouble).flatten();
  return ((wide - expected.flatten()).abs().max() / expected.abs().max()).item<double>();
}

/// The largest difference of a gradient to the central differences of value() over `leaf`, over the largest
/// magnitude.
template <typename Value>
double numeric_error(const Value& value, const at::Tensor& leaf, const at::Tensor& gradient) {
  constexpr double kStep = 1e-5;
  const torch::NoGradGuard no_grad;
  const at::Tensor numeric = at::empty_like(gradient).contiguous();
  auto* flat = leaf.mutable_data_ptr<double>();
  for (int64_t i = 0; i < leaf.numel(); ++i) {
    const double old = flat[i];
    flat[i] = old + kStep;
    const double above = value().template item<double>();
    flat[i] = old - kStep;
    const double below = value().template item<double>();
    flat[i] = old;
    numeric.mutable_data_ptr<double>()[i] = (above - below) / (2 * kStep);
  }
  return relative_error(gradient, numeric);
}

}  // namespace ulp::distill::tests
