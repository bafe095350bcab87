// Attributes that several ops have. An op's attributes are a struct with one list of fields, visit_fields(),
// which engine files, limits and profiles read. An op that has some of its own keeps them in its file,
// <op>_op.h.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ulp/base/activation.h"
#include "ulp/base/fields.h"

namespace ulp {

/// The words of engine files: the names of the table.
template <>
struct EnumNames<Activation> {
#define ULP_WORD(name, ...) Word<Activation>{Activation::name, #name},
  static constexpr auto list = std::to_array<Word<Activation>>({ULP_ACTIVATIONS(ULP_WORD)});
#undef ULP_WORD
};

}  // namespace ulp

namespace ulp::runtime {

/// For numbers that must be finite.
inline constexpr double kLargestFloat = std::numeric_limits<float>::max();

/// Of an op that has no attributes.
struct NoAttributes {
  void visit_fields(FieldVisitor&) {}
  bool operator==(const NoAttributes&) const = default;
};

/// linear and add: the activation after the sum; relu: the op itself.
struct ActivationAttributes {
  Activation activation = Activation::none;

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "activation", .help = "What the result ends in"}, activation);
  }
  bool operator==(const ActivationAttributes&) const = default;
};

/// Sizes of a window, and counts beside them: far above anything real, low enough that no arithmetic on them
/// overflows.
inline constexpr int64_t kMaxWindow = 1 << 20;

/// Window of a convolution or a pooling.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;
  int64_t dilation_h = 1, dilation_w = 1;

  void visit_fields(FieldVisitor& visit) {
    const auto size = [](const char* name) { return FieldInfo{.name = name, .min = 1, .max = kMaxWindow}; };
    visit(size("kernel_h"), kernel_h);
    visit(size("kernel_w"), kernel_w);
    visit(size("stride_h"), stride_h);
    visit(size("stride_w"), stride_w);
    visit({.name = "pad_h", .min = 0, .max = kMaxWindow}, pad_h);
    visit({.name = "pad_w", .min = 0, .max = kMaxWindow}, pad_w);
    visit(size("dilation_h"), dilation_h);
    visit(size("dilation_w"), dilation_w);
  }
  bool operator==(const Window&) const = default;
};

}  // namespace ulp::runtime
