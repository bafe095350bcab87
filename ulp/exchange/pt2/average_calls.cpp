// ulp::average_codes in PyTorch's operators. Sums are of whole numbers below 2^53 in double, so they are
// exact in any order.
#include "ulp/exchange/pt2/average_calls.h"

#include <cmath>

#include "ulp/exchange/arguments.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;
using graph::Argument;
using graph::SizeExpr;
using graph::Value;

/// The windows of a pooling over [N, C, H, W].
struct CodeWindows {
  std::vector<int64_t> kernel, stride, padding;  ///< an empty kernel: whole images
  bool ceil_mode = false, count_padding = false;
  Speller::Sizes sizes;  ///< of the result
};

/// Of an argument of one number, the width; the height is `other`.
std::vector<int64_t> image_pair(const graph::Node& node, const char* argument, int64_t other) {
  std::vector<int64_t> numbers = ints_arg(node, argument);
  if (numbers.size() == 1) numbers.insert(numbers.begin(), other);
  return numbers;
}

CodeWindows windows_of(Speller& spell, bool sequence) {
  const graph::Node& node = spell.node();
  CodeWindows windows{.kernel = ints_arg(node, "kernel_size"), .sizes = sizes_of(node, *node.output())};
  if (sequence) windows.sizes.insert(windows.sizes.begin() + 2, fixed(1));
  if (windows.kernel.empty()) return windows;
  windows.kernel = image_pair(node, "kernel_size", 1);
  windows.stride = image_pair(node, "stride", 1);
  windows.padding = image_pair(node, "padding", 0);
  windows.ceil_mode = bool_arg(node, "ceil_mode");
  windows.count_padding = bool_arg(node, "count_include_pad");
  return windows;
}

/// Sums over windows; with `mean` their averages by PyTorch's rule for padding that counts.
Value* pooled(Speller& spell, const CodeWindows& windows, Value* x, bool mean = false) {
  if (windows.kernel.empty())
    return spell.call("aten::sum.dim_IntList", {x, IValue(std::vector<int64_t>{2, 3}), IValue(true)},
                      x->meta->dtype, windows.sizes);
  const Argument divisor = mean ? IValue() : IValue(int64_t{1});
  return spell.call("aten::avg_pool2d",
                    {x, IValue(windows.kernel), IValue(windows.stride), IValue(windows.padding),
                     IValue(windows.ceil_mode), IValue(true), divisor},
                    x->meta->dtype, windows.sizes);
}

/// How many numbers a window has, for each of them: f64. A number alone where it is the same everywhere.
struct WindowCount {
  Value* valid = nullptr;  ///< those inside of the image
  Value* all = nullptr;    ///< what sums are divided by
  double same = 0;
};

WindowCount count_of(Speller& spell, const CodeWindows& windows, Value* x) {
  WindowCount count;
  if (windows.kernel.empty()) {
    const SizeExpr &height = x->meta->sizes.at(2), &width = x->meta->sizes.at(3);
    if (height.constant() && width.constant()) count.same = static_cast<double>(height.offset * width.offset);
  } else {
    const bool padded = windows.padding[0] != 0 || windows.padding[1] != 0;
    if (!windows.ceil_mode && !padded)
      count.same = static_cast<double>(windows.kernel[0] * windows.kernel[1]);
  }
  if (count.same != 0) return count;
  Value* ones = spell.map("aten::ones_like", {x});
  count.valid = count.all = pooled(spell, windows, ones);
  // Whole numbers: the quotients are near enough to round to them.
  if (windows.count_padding)
    count.all = spell.map("aten::round",
                          {spell.with("aten::div.Tensor", count.valid, pooled(spell, windows, ones, true))});
  return count;
}

Value* divided(Speller& spell, Value* x, const WindowCount& count) {
  return count.all == nullptr ? spell.with("aten::div.Scalar", x, count.same)
                              : spell.with("aten::div.Tensor", x, count.all);
}

/// round(float(sum) * (s / s' / count)) + z', clamped.
Value* half_even(Speller& spell, const CodeWindows& windows, Value* codes) {
  Value* x = spell.to(codes, at::kDouble);
  Value* zero = spell.along("zero_point", -1, *x);
  x = spell.with("aten::sub.Tensor", x, spell.to(zero, at::kDouble));
  const WindowCount count = count_of(spell, windows, x);
  Value* sum = spell.to(pooled(spell, windows, x), at::kFloat);
  Value* factor =
      spell.with("aten::div.Tensor", spell.along("scale", -1, *x), spell.along("result_scale", -1, *x));
  if (count.all == nullptr) {
    factor = spell.with("aten::div.Scalar", factor, count.same);
  } else {
    Value* all = spell.to(count.all, at::kFloat);
    factor = spell.call("aten::div.Tensor", {factor, all}, at::kFloat, windows.sizes);
  }
  Value* y = spell.map("aten::round", {spell.with("aten::mul.Tensor", sum, factor)});
  y = spell.with("aten::add.Tensor", y, spell.along("result_zero_point", -1, *x));
  const bool is_signed = codes->meta->dtype == at::kChar;
  return spell.map("aten::clamp", {y, IValue(is_signed ? -128.0 : 0.0), IValue(is_signed ? 127.0 : 255.0)});
}

/// The code nearest to sum / count, the larger magnitude at a tie: floor((|sum| + floor(count / 2) + 0.5) /
/// count), whose half keeps it from the whole numbers. Padding that counts has the code of the zero point.
Value* half_away(Speller& spell, const CodeWindows& windows, Value* codes) {
  Value* x = spell.to(codes, at::kDouble);
  const WindowCount count = count_of(spell, windows, x);
  Value* sum = pooled(spell, windows, x);
  Value* size = nullptr;
  if (count.all == nullptr) {
    size = spell.with("aten::add.Scalar", spell.map("aten::abs", {sum}), std::floor(count.same / 2) + 0.5);
  } else {
    Value* zero = spell.to(spell.along("zero_point", -1, *x), at::kDouble);
    Value* padding = spell.with("aten::sub.Tensor", count.all, count.valid);
    sum = spell.with("aten::add.Tensor", sum, spell.with("aten::mul.Tensor", padding, zero));
    Value* half = spell.map("aten::floor", {spell.with("aten::mul.Scalar", count.all, 0.5)});
    size = spell.with("aten::add.Tensor", spell.map("aten::abs", {sum}),
                      spell.with("aten::add.Scalar", half, 0.5));
  }
  Value* mean = spell.map("aten::floor", {divided(spell, size, count)});
  return spell.with("aten::mul.Tensor", mean, spell.map("aten::sign", {sum}));
}

}  // namespace

void spell_average(Speller& spell) {
  Value* codes = spell.tensor("q");
  const at::ScalarType type = codes->meta->dtype;
  const bool sequence = codes->meta->sizes.size() == 3;
  const Speller::Sizes sizes = sizes_of(spell.node(), *spell.node().output());
  if (sequence) {
    Speller::Sizes image = codes->meta->sizes;
    image.insert(image.begin() + 2, fixed(1));
    codes = spell.call("aten::unsqueeze", {codes, IValue(int64_t{2})}, type, image);
  }
  const CodeWindows windows = windows_of(spell, sequence);
  const bool even = text_arg(spell.node(), "rounding") == "half_even";
  Value* y = spell.to(even ? half_even(spell, windows, codes) : half_away(spell, windows, codes), type);
  if (sequence) y = spell.call("aten::squeeze.dim", {y, IValue(int64_t{2})}, type, sizes);
  spell.replace(y);
}

}  // namespace ulp::exchange::pt2
