// Operators that move the elements of their first input, or repeat them, and change none.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ulp::exchange::onnx_import {

inline constexpr std::array<std::string_view, 10> kMovers = {"Transpose", "Reshape",  "Unsqueeze", "Squeeze",
                                                             "Flatten",   "Identity", "Slice",     "Split",
                                                             "Expand",    "Tile"};

inline bool is_mover(std::string_view op) {
  return std::ranges::find(kMovers, op) != kMovers.end();
}

}  // namespace ulp::exchange::onnx_import
