// Attributes of binary_conv and binary_linear.
#pragma once

#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// The most channels of a binary layer.
inline constexpr int64_t kMaxBinaryChannels = 1 << 28;

/// The window of a convolution over bits, and what follows its sums.
struct BinaryConvAttributes {
  Window window{};
  int64_t channels = 1;  ///< of the input, eight in each of its bytes
  kernels::BinaryPadding padding = kernels::BinaryPadding::one;
  Activation activation = Activation::none;  ///< of f32 results, after bias and residual

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "window"}, window);
    visit({.name = "channels", .min = 1, .max = kMaxBinaryChannels}, channels);
    visit({.name = "padding", .help = "What the pixels outside of the image are"}, padding);
    visit({.name = "activation"}, activation);
  }
  bool operator==(const BinaryConvAttributes&) const = default;
};

/// The same for rows.
struct BinaryLinearAttributes {
  int64_t channels = 1;  ///< of the input, eight in each of its bytes
  Activation activation = Activation::none;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "channels", .min = 1, .max = kMaxBinaryChannels}, channels);
    visit({.name = "activation"}, activation);
  }
  bool operator==(const BinaryLinearAttributes&) const = default;
};

}  // namespace ulp::runtime
