// Runs the program of a Core ML package by MIL's published rules (coremltools' documentation of its
// operations), for tests: of those that they write.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "coreml_reader.h"

namespace ulp::test {

class MilRun {
 public:
  explicit MilRun(const MilModel& model) : model_(model) {}

  at::Tensor run(const at::Tensor& input) {
    values_[model_.inputs.at(0).name] = input;
    for (const MilOperation& one : model_.operations) {
      const at::Tensor made = one.op == "const" ? constant(one.attributes.at("val")) : compute(one);
      if (made.defined() && made.sizes().vec() != one.shape)
        throw std::runtime_error(one.op + " '" + one.outputs[0] + "' makes other sizes than the file says");
      values_[one.outputs[0]] = made;
    }
    return values_.at(model_.results.at(0));
  }

 private:
  using Ints = std::vector<int64_t>;

  /// Undefined for a word.
  static at::Tensor constant(const MilValue& value) {
    constexpr int64_t kBool = 1, kWord = 2, kHalf = 10;
    if (value.type == kWord) return {};
    const auto of_bytes = [&](at::ScalarType type) {
      return torch::from_blob(const_cast<char*>(value.bytes.data()), value.shape, type).clone();
    };
    if (value.type == kHalf) return of_bytes(at::kHalf);
    if (value.blob >= 0) return of_bytes(at::kFloat);
    if (!value.floats.empty()) return torch::tensor(value.floats).reshape(value.shape);
    return torch::tensor(value.ints).to(value.type == kBool ? at::kBool : at::kLong).reshape(value.shape);
  }

  const at::Tensor& in(const MilOperation& op, const char* parameter) const {
    return values_.at(op.inputs.at(parameter).at(0));
  }
  Ints ints(const MilOperation& op, const char* parameter) const {
    const at::Tensor flat = in(op, parameter).to(at::kLong).flatten().contiguous();
    return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
  }
  bool flag(const MilOperation& op, const char* parameter) const { return in(op, parameter).item<bool>(); }
  std::string word(const MilOperation& op, const char* parameter) const {
    return model_.constant(op, parameter).word;
  }

  at::Tensor compute(const MilOperation& op) const {
    const at::Tensor& x = in(op, "x");
    if (op.op == "add") return x + in(op, "y");
    if (op.op == "mul") return x * in(op, "y");
    if (op.op == "real_div") return x / in(op, "y");
    if (op.op == "round") return x.round();
    if (op.op == "identity") return x;
    if (op.op == "cast") return x.to(word(op, "dtype") == "fp16" ? at::kHalf : at::kFloat);
    if (op.op == "matmul") return torch::matmul(x, in(op, "y"));
    if (op.op == "linear") return torch::linear(x, in(op, "weight"), in(op, "bias"));
    if (op.op == "gather") return x.index_select(in(op, "axis").item<int64_t>(), in(op, "indices"));
    if (op.op == "max_pool") return windows(op, x, -INFINITY).amax(-1);
    if (op.op == "avg_pool") return average(op, x);
    if (op.op == "upsample_nearest_neighbor") return nearest(op, x);
    if (op.op == "upsample_bilinear") return bilinear(op, x);
    throw std::runtime_error("no rule for " + op.op);
  }

  /// [..., elements] of the padded tensor for each place of the result.
  at::Tensor windows(const MilOperation& op, at::Tensor x, double value) const {
    const int64_t dims = x.dim() - 2;
    const Ints kernel = ints(op, "kernel_sizes"), stride = ints(op, "strides");
    const Ints pads =
        word(op, "pad_type") == "custom" ? ints(op, "pad") : Ints(2 * static_cast<size_t>(dims), 0);
    const bool ceil = flag(op, "ceil_mode");
    if (ceil && dims > 2) throw std::runtime_error("pool: ceil_mode only supported for 1D or 2D pool");
    for (int64_t d = 0; d < dims; ++d) {
      const auto at = static_cast<size_t>(d);
      const int64_t size = x.size(2 + d), before = pads[2 * at], behind = pads[2 * at + 1];
      int64_t count = (size + before + behind - kernel[at] + (ceil ? stride[at] - 1 : 0)) / stride[at] + 1;
      if (ceil && (count - 1) * stride[at] >= size + before && before + behind > 0) --count;
      const int64_t end = (count - 1) * stride[at] + kernel[at];
      Ints pair(2 * static_cast<size_t>(dims - 1), 0);
      pair.insert(pair.end(), {before, std::max<int64_t>(end - size - before, 0)});
      x = torch::constant_pad_nd(x, pair, value).narrow(2 + d, 0, end).unfold(2 + d, kernel[at], stride[at]);
    }
    return x.flatten(2 + dims);
  }

  /// A window counts whole, with what lies behind the padding, or only what is in the image.
  at::Tensor average(const MilOperation& op, const at::Tensor& x) const {
    const at::Tensor all = windows(op, x, 0);
    const at::Tensor counted = windows(op, torch::ones_like(x), 0).sum(-1);
    return flag(op, "exclude_padding_from_average") ? all.sum(-1) / counted
                                                    : all.sum(-1) / static_cast<double>(all.size(-1));
  }

  static int64_t scaled(int64_t size, const at::Tensor& factor) {
    return static_cast<int64_t>(std::floor(factor.to(at::kFloat).item<float>() * static_cast<float>(size)));
  }

  at::Tensor nearest(const MilOperation& op, const at::Tensor& x) const {
    return x.repeat_interleave(in(op, "scale_factor_height").item<int64_t>(), 2)
        .repeat_interleave(in(op, "scale_factor_width").item<int64_t>(), 3);
  }

  /// The step is in / out, or (in - 1) / (out - 1) between corners, whatever the factor.
  at::Tensor bilinear(const MilOperation& op, at::Tensor x) const {
    const bool corners = flag(op, "align_corners");
    for (const int64_t d : {2, 3}) {
      const char* factor = d == 2 ? "scale_factor_height" : "scale_factor_width";
      const int64_t from = x.size(d), to = scaled(from, in(op, factor));
      if (corners && to == 1 && from > 1) throw std::runtime_error("corners of one pixel have no step");
      const double step = corners && to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1)
                                            : static_cast<double>(from) / static_cast<double>(to);
      Ints lower, upper;
      std::vector<double> share;
      for (int64_t i = 0; i < to; ++i) {
        const auto at = static_cast<double>(i);
        const double wish = corners ? at * step : at * step + 0.5 * step - 0.5;
        const double place = std::clamp(wish, 0.0, static_cast<double>(from - 1));
        lower.push_back(static_cast<int64_t>(std::floor(place)));
        upper.push_back(std::min(lower.back() + 1, from - 1));
        share.push_back(place - static_cast<double>(lower.back()));
      }
      Ints shape(4, 1);
      shape[static_cast<size_t>(d)] = to;
      const at::Tensor by = torch::tensor(share).to(x.scalar_type()).reshape(shape);
      x = x.index_select(d, torch::tensor(lower)) * (1 - by) + x.index_select(d, torch::tensor(upper)) * by;
    }
    return x;
  }

  const MilModel& model_;
  std::map<std::string, at::Tensor> values_;
};

}  // namespace ulp::test
