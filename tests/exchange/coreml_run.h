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

  at::Tensor run(const at::Tensor& input) { return run_all(input).at(0); }

  std::vector<at::Tensor> run_all(const at::Tensor& input) {
    values_[model_.inputs.at(0).name] = input;
    for (const MilOperation& one : model_.operations) {
      if (one.op == "topk") {
        topk(one);
        continue;
      }
      const at::Tensor made = one.op == "const" ? constant(one.attributes.at("val")) : compute(one);
      if (made.defined() && made.sizes().vec() != one.shape)
        throw std::runtime_error(one.op + " '" + one.outputs[0] + "' makes other sizes than the file says");
      values_[one.outputs[0]] = made;
    }
    std::vector<at::Tensor> results;
    for (const std::string& result : model_.results) results.push_back(values_.at(result));
    return results;
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

  using Unary = at::Tensor (*)(const at::Tensor&);
  using Binary = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

  static const std::map<std::string, Unary>& of_one() {
    static const std::map<std::string, Unary> all = {{"round", at::round},
                                                     {"exp", at::exp},
                                                     {"abs", at::abs},
                                                     {"sqrt", at::sqrt},
                                                     {"floor", at::floor},
                                                     {"sign", at::sign},
                                                     {"tan", at::tan},
                                                     {"asin", at::asin},
                                                     {"acos", at::acos},
                                                     {"atan", at::atan},
                                                     {"sinh", at::sinh},
                                                     {"cosh", at::cosh},
                                                     {"exp2", at::exp2},
                                                     {"relu", at::relu},
                                                     {"sigmoid", at::sigmoid},
                                                     {"tanh", at::tanh},
                                                     {"erf", at::erf},
                                                     {"square", at::square},
                                                     {"logical_not", at::logical_not},
                                                     {"sin", at::sin},
                                                     {"cos", at::cos}};
    return all;
  }

  static const std::map<std::string, Binary>& of_two() {
    static const std::map<std::string, Binary> all = {
        {"add", [](const at::Tensor& x, const at::Tensor& y) { return x + y; }},
        {"sub", [](const at::Tensor& x, const at::Tensor& y) { return x - y; }},
        {"mul", [](const at::Tensor& x, const at::Tensor& y) { return x * y; }},
        {"real_div", [](const at::Tensor& x, const at::Tensor& y) { return x / y; }},
        {"mod", [](const at::Tensor& x, const at::Tensor& y) { return at::remainder(x, y); }},
        {"floor_div", at::floor_divide},
        {"pow", [](const at::Tensor& x, const at::Tensor& y) { return at::pow(x, y); }},
        {"maximum", at::maximum},
        {"minimum", at::minimum},
        {"less", [](const at::Tensor& x, const at::Tensor& y) { return x < y; }},
        {"less_equal", [](const at::Tensor& x, const at::Tensor& y) { return x <= y; }},
        {"greater", [](const at::Tensor& x, const at::Tensor& y) { return x > y; }},
        {"greater_equal", [](const at::Tensor& x, const at::Tensor& y) { return x >= y; }},
        {"equal", [](const at::Tensor& x, const at::Tensor& y) { return x == y; }},
        {"not_equal", [](const at::Tensor& x, const at::Tensor& y) { return x != y; }},
        {"logical_and", at::logical_and},
        {"logical_or", at::logical_or}};
    return all;
  }

  at::Tensor cast(const MilOperation& op, const at::Tensor& x) const {
    const std::string type = word(op, "dtype");
    if (type == "bool") return x != 0;
    return x.to(type == "fp16" ? at::kHalf : type == "int32" ? at::kInt : at::kFloat);
  }

  /// Of the one or the other, and what writes to places: operations whose operands have other names.
  at::Tensor by_names(const MilOperation& op) const {
    if (op.op == "select") return torch::where(in(op, "cond"), in(op, "a"), in(op, "b"));
    if (op.op == "scatter_along_axis") {
      const int64_t axis = in(op, "axis").item<int64_t>();
      const at::Tensor ids = in(op, "indices").to(at::kLong), &data = in(op, "data"),
                       &updates = in(op, "updates");
      return word(op, "mode") == "add" ? data.scatter_add(axis, ids, updates)
                                       : data.scatter(axis, ids, updates);
    }
    if (op.op == "concat" || op.op == "stack") {
      std::vector<at::Tensor> parts;
      for (const std::string& name : op.inputs.at("values")) parts.push_back(values_.at(name));
      const int64_t axis = in(op, "axis").item<int64_t>();
      return op.op == "concat" ? torch::cat(parts, axis) : torch::stack(parts, axis);
    }
    throw std::runtime_error("no rule for " + op.op);
  }

  at::Tensor reduced(const MilOperation& op, at::Tensor x) const {
    const bool keep = flag(op, "keep_dims");
    if (op.op == "reduce_argmax") return x.argmax(in(op, "axis").item<int64_t>(), keep).to(at::kInt);
    if (op.op == "reduce_argmin") return x.argmin(in(op, "axis").item<int64_t>(), keep).to(at::kInt);
    const Ints axes = ints(op, "axes");
    if (op.op == "reduce_sum") return x.sum(axes, keep);
    if (op.op == "reduce_mean") return x.mean(axes, keep);
    if (op.op == "reduce_max") return x.amax(axes, keep);
    if (op.op == "reduce_min") return x.amin(axes, keep);
    if (op.op == "reduce_prod" && axes.size() == 1) return x.prod(axes[0], keep);
    throw std::runtime_error("no rule for " + op.op);
  }

  /// All of `begin`, `end` and `stride` are given, and nothing is squeezed but what the mask says.
  at::Tensor slice_by_index(const MilOperation& op, at::Tensor x) const {
    const Ints begin = ints(op, "begin"), end = ints(op, "end"), step = ints(op, "stride"),
               drop = ints(op, "squeeze_mask");
    for (int64_t d = x.dim() - 1; d >= 0; --d) {
      const auto at = static_cast<size_t>(d);
      x = drop[at] != 0 ? x.select(d, begin[at]) : x.slice(d, begin[at], end[at], step[at]);
    }
    return x;
  }

  at::Tensor padded(const MilOperation& op, const at::Tensor& x) const {
    const Ints pads = ints(op, "pad");
    Ints from_last;
    for (size_t i = pads.size(); i > 0; i -= 2) from_last.insert(from_last.end(), {pads[i - 2], pads[i - 1]});
    if (word(op, "mode") == "constant")
      return torch::constant_pad_nd(x, from_last, in(op, "constant_val").item());
    return at::pad(x, from_last, word(op, "mode"));
  }

  at::Tensor conv_transpose(const MilOperation& op, const at::Tensor& x) const {
    if (word(op, "pad_type") != "valid")
      throw std::runtime_error("no rule for padded transposed convolutions");
    const bool has_bias = op.inputs.contains("bias");
    return at::conv_transpose2d(x, in(op, "weight"), has_bias ? in(op, "bias") : at::Tensor(),
                                ints(op, "strides"), Ints{0}, Ints{0}, in(op, "groups").item<int64_t>(),
                                ints(op, "dilations"));
  }

  void topk(const MilOperation& op) {
    const auto [values, ids] =
        in(op, "x").topk(in(op, "k").item<int64_t>(), in(op, "axis").item<int64_t>(), !flag(op, "ascending"));
    values_[op.outputs.at(0)] = values;
    values_[op.outputs.at(1)] = ids.to(at::kInt);
  }

  at::Tensor compute(const MilOperation& op) const {
    if (!op.inputs.contains("x")) return by_names(op);
    const at::Tensor& x = in(op, "x");
    if (const auto one = of_one().find(op.op); one != of_one().end()) return one->second(x);
    if (const auto two = of_two().find(op.op); two != of_two().end()) return two->second(x, in(op, "y"));
    if (op.op.starts_with("reduce_")) return reduced(op, x);
    if (op.op == "identity") return x;
    if (op.op == "cast") return cast(op, x);
    if (op.op == "log") return (x + in(op, "epsilon")).log();
    if (op.op == "elu") return torch::elu(x, in(op, "alpha").item());
    if (op.op == "clip") return x.clamp(in(op, "alpha").item(), in(op, "beta").item());
    if (op.op == "softplus") return (x.abs().neg().exp() + 1).log() + x.relu();
    if (op.op == "reshape") return x.reshape(ints(op, "shape"));
    if (op.op == "transpose") return x.permute(ints(op, "perm"));
    if (op.op == "tile") return x.repeat(ints(op, "reps"));
    if (op.op == "slice_by_index") return slice_by_index(op, x);
    if (op.op == "pad") return padded(op, x);
    if (op.op == "conv_transpose") return conv_transpose(op, x);
    if (op.op == "cumsum") return x.cumsum(in(op, "axis").item<int64_t>());
    if (op.op == "argsort")
      return x.argsort(in(op, "axis").item<int64_t>(), !flag(op, "ascending")).to(at::kInt);
    if (op.op == "softmax") return x.softmax(in(op, "axis").item<int64_t>());
    if (op.op == "matmul") {
      const auto turned = [&](const at::Tensor& one, const char* flag_name) {
        return op.inputs.contains(flag_name) && flag(op, flag_name) ? one.transpose(-2, -1) : one;
      };
      return torch::matmul(turned(x, "transpose_x"), turned(in(op, "y"), "transpose_y"));
    }
    if (op.op == "linear")
      return torch::linear(x, in(op, "weight"), op.inputs.contains("bias") ? in(op, "bias") : at::Tensor());
    if (op.op == "gelu") return torch::gelu(x, word(op, "mode") == "EXACT" ? "none" : "tanh");
    if (op.op == "gather_along_axis")
      return x.gather(in(op, "axis").item<int64_t>(), in(op, "indices").to(at::kLong));
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
