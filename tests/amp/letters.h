// The gradients that a letter stands for in the golden trajectories of loss scalers.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "error_of.h"
#include "ulp/base/error.h"

namespace letters {

inline torch::Tensor gradient(char letter) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  static const std::map<char, double> special{
      {'B', 1e34}, {'i', kInf}, {'j', -kInf}, {'n', std::numeric_limits<double>::quiet_NaN()}, {'z', 0.0}};
  if (const auto found = special.find(letter); found != special.end()) {
    return torch::tensor({0.5, found->second}, torch::kFloat);
  }
  const double value = (letter - 'a' + 1) / 7.0;
  return torch::tensor({value, -0.25 * value}, torch::kFloat);
}

inline nlohmann::json golden(const char* file) {
  return nlohmann::json::parse(std::ifstream(std::string(ULP_SOURCE_DIR "/tests/golden/") + file));
}

}  // namespace letters
