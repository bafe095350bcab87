// Runs the float operators of a TensorFlow Lite file by the rules of LiteRT's reference kernels, for tests:
// of those that they write.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tflite_reader.h"

namespace ulp::test {

/// [N, C, H, W] as a file has it.
inline at::Tensor channels_last(const at::Tensor& x) {
  return x.dim() == 4 ? x.permute({0, 2, 3, 1}).contiguous() : x;
}

class TfliteRun {
 public:
  explicit TfliteRun(const TfliteModel& file) : file_(file), values_(file.tensors.size()) {}

  /// Inputs and results as the file has them.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    for (size_t i = 0; i < file_.tensors.size(); ++i) values_[i] = stored(file_.tensors[i]);
    for (size_t i = 0; i < inputs.size(); ++i) value(file_.inputs.at(i)) = inputs[i];
    for (const TfliteOperator& op : file_.operators) {
      const std::vector<at::Tensor> made =
          op.code == kTopK ? top(op) : std::vector{activated(op, compute(op))};
      for (size_t i = 0; i < op.outputs.size(); ++i) keep(op, i, made.at(i));
    }
    std::vector<at::Tensor> results;
    for (const int32_t output : file_.outputs) results.push_back(value(output));
    return results;
  }

 private:
  using Ints = std::vector<int64_t>;
  /// Numbers of more operators.
  enum Code {
    kDepthToSpace = 5,
    kFloor = 8,
    kLogistic = 14,
    kSpaceToDepth = 26,
    kTanh = 28,
    kExp = 47,
    kCast = 53,
    kMaximum = 55,
    kArgMax = 56,
    kMinimum = 57,
    kLess = 58,
    kNeg = 59,
    kGreater = 61,
    kGreaterEqual = 62,
    kLessEqual = 63,
    kSin = 66,
    kTile = 69,
    kEqual = 71,
    kNotEqual = 72,
    kLog = 73,
    kSum = 74,
    kSqrt = 75,
    kRsqrt = 76,
    kPow = 78,
    kArgMin = 79,
    kReduceProd = 81,
    kReduceMax = 82,
    kLogicalOr = 84,
    kLogicalAnd = 86,
    kLogicalNot = 87,
    kReduceMin = 89,
    kFloorDiv = 90,
    kReduceAny = 91,
    kFloorMod = 95,
    kSquaredDifference = 99,
    kAbs = 101,
    kCos = 108,
    kElu = 111,
    kSelect = 123,
    kBatchMatMul = 126,
    kCumsum = 128,
    kConv3d = 132,
    kReduceAll = 140,
    kGelu = 150,
    kAtan2 = 156,
    kSign = 158,
    kBroadcastTo = 130,
    kTopK = 48
  };

  static at::ScalarType type_of(const TfliteTensor& tensor) {
    return tensor.type == kFloat32Type ? at::kFloat
           : tensor.type == kInt32Type ? at::kInt
           : tensor.type == kInt8Type  ? at::kChar
           : tensor.type == kBoolType  ? at::kBool
           : tensor.type == kUint8Type ? at::kByte
                                       : at::kLong;
  }

  static at::Tensor stored(const TfliteTensor& tensor) {
    if (tensor.bytes.empty()) return {};
    const Ints shape(tensor.shape.begin(), tensor.shape.end());
    return torch::from_blob(const_cast<char*>(tensor.bytes.data()), shape, type_of(tensor)).clone();
  }

  /// The file says which sizes and which type it has.
  void keep(const TfliteOperator& op, size_t i, const at::Tensor& made) {
    const TfliteTensor& said = file_.tensor(op.outputs.at(i));
    if (made.sizes().vec() != std::vector<int64_t>(said.shape.begin(), said.shape.end()))
      throw std::runtime_error("operator " + std::to_string(op.code) + " makes other sizes than '" +
                               said.name + "' has");
    if (made.scalar_type() != type_of(said))
      throw std::runtime_error("operator " + std::to_string(op.code) + " makes another type than '" +
                               said.name + "' has");
    value(op.outputs[i]) = made.contiguous();
  }

  /// The field of an operator's options that names the function of its result; -1: it has none.
  static int activation_field(int code) {
    constexpr int kSub = 41, kDiv = 42;
    switch (code) {
      case kAdd:
      case kSub:
      case kMul:
      case kDiv:
      case kFullyConnected:
        return 0;
      case kConv:
        return 3;
      case kConv3d:
        return 4;
      case kAveragePool:
      case kMaxPool:
        return 5;
      default:
        return -1;
    }
  }
  /// The result with that function, of numbers.
  static at::Tensor activated(const TfliteOperator& op, const at::Tensor& made) {
    const int field = activation_field(op.code), function = field < 0 ? 0 : op.options.get<int8_t>(field);
    if (function == 0) return made;
    if (made.scalar_type() != at::kFloat) throw std::runtime_error("no rule for a function of codes");
    if (function == 1) return made.relu();
    if (function == 2) return made.clamp(-1, 1);
    if (function == 3) return made.clamp(0, 6);
    throw std::runtime_error("no rule for activation " + std::to_string(function));
  }

  at::Tensor& value(int32_t i) { return values_.at(static_cast<size_t>(i)); }
  const at::Tensor& in(const TfliteOperator& op, size_t i) { return value(op.inputs.at(i)); }
  Ints ints(const TfliteOperator& op, size_t i) {
    const at::Tensor flat = in(op, i).to(at::kLong).flatten().contiguous();
    return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
  }

  /// The numbers of codes, in f64.
  static at::Tensor dequantized(const TfliteTensor& tensor, const at::Tensor& codes) {
    Ints shape(static_cast<size_t>(codes.dim()), 1);
    if (tensor.scale.size() > 1) shape.at(static_cast<size_t>(tensor.axis)) = -1;
    const at::Tensor scale = torch::tensor(tensor.scale).to(at::kDouble).reshape(shape),
                     zero = torch::tensor(tensor.zero_point).reshape(shape);
    return (codes.to(at::kLong) - zero).to(at::kDouble) * scale;
  }
  static at::Tensor quantized(const TfliteTensor& tensor, const at::Tensor& numbers) {
    const at::Tensor codes =
        (numbers.to(at::kDouble) / tensor.scale.at(0)).round() + static_cast<double>(tensor.zero_point.at(0));
    return codes.clamp(-128, 127).to(at::kChar);
  }

  /// Layers of codes, by the numbers that these stand for, rounded once.
  std::optional<at::Tensor> layer_of_codes(const TfliteOperator& op) {
    if (op.code != kFullyConnected && op.code != kConv && op.code != kDepthwise) return std::nullopt;
    if (in(op, 0).scalar_type() != at::kChar) return std::nullopt;
    const std::vector<at::Tensor> kept = values_;
    for (size_t i = 0; i < 3; ++i) value(op.inputs.at(i)) = dequantized(file_.input(op, i), in(op, i));
    const at::Tensor made = compute(op);
    values_ = kept;
    return quantized(file_.output(op), made);
  }

  at::Tensor compute(const TfliteOperator& op) {
    if (const auto made = layer_of_codes(op)) return *made;
    if (const auto made = elementwise(op)) return *made;
    if (const auto made = of_matrices(op)) return *made;
    constexpr int kGather = 36, kSub = 41, kDiv = 42, kStrided = 45, kSlice = 65, kRound = 116;
    constexpr int kBilinear = 23, kNearest = 97;
    switch (op.code) {
      case kAdd:
        return in(op, 0) + in(op, 1);
      case kSub:
        return in(op, 0) - in(op, 1);
      case kMul:
        return in(op, 0) * in(op, 1);
      case kDiv:
        return in(op, 0) / in(op, 1);
      case kRound:
        return in(op, 0).round();
      case kRelu:
        return in(op, 0).relu();
      case kReshape:
        return in(op, 0).reshape(ints(op, 1));
      case kTranspose:
        return in(op, 0).permute(ints(op, 1));
      case kGather:
        return gathered(op);
      case kSlice:
        return sliced(in(op, 0), ints(op, 1), ints(op, 2));
      case kStrided:
        return strided(op);
      case kPad:
        return padded(in(op, 0), ints(op, 1), zero_of(file_.input(op, 0)));
      case kPadV2:
        return padded(in(op, 0), ints(op, 1), in(op, 2).item<double>());
      case kBilinear:
        return bilinear(in(op, 0), ints(op, 1), op.options.get<int8_t>(2) != 0,
                        op.options.get<int8_t>(3) != 0);
      case kNearest:
        return nearest(in(op, 0), ints(op, 1));
      case kConv:
        return convolved(op);
      case kDepthwise:
        return by_channel(op);
      case kDequantize:
        return dequantized(file_.input(op, 0), in(op, 0)).to(at::kFloat);
      case kQuantize:
        return in(op, 0).is_floating_point()
                   ? quantized(file_.output(op), in(op, 0))
                   : quantized(file_.output(op), dequantized(file_.input(op, 0), in(op, 0)));
      case kAveragePool:
      case kMaxPool:
        return pooled(op);
      default:
        throw std::runtime_error("no rule for operator " + std::to_string(op.code));
    }
  }

  /// Operators element by element.
  std::optional<at::Tensor> elementwise(const TfliteOperator& op) {
    const auto x = [&] { return in(op, 0); };
    const auto y = [&] { return in(op, 1); };
    switch (op.code) {
      case kLogistic:
        return x().sigmoid();
      case kTanh:
        return x().tanh();
      case kFloor:
        return x().floor();
      case kExp:
        return x().exp();
      case kCast:
        return x().to(type_of(file_.output(op)));
      case kMaximum:
        return at::maximum(x(), y());
      case kMinimum:
        return at::minimum(x(), y());
      case kLess:
        return x() < y();
      case kNeg:
        return -x();
      case kGreater:
        return x() > y();
      case kGreaterEqual:
        return x() >= y();
      case kLessEqual:
        return x() <= y();
      case kSin:
        return x().sin();
      case kEqual:
        return x() == y();
      case kNotEqual:
        return x() != y();
      case kLog:
        return x().log();
      case kSqrt:
        return x().sqrt();
      case kRsqrt:
        return x().rsqrt();
      case kPow:
        return at::pow(x(), y());
      case kLogicalOr:
        return at::logical_or(x(), y());
      case kLogicalAnd:
        return at::logical_and(x(), y());
      case kLogicalNot:
        return at::logical_not(x());
      case kFloorDiv:
        return at::div(x(), y(), "floor");
      case kFloorMod:
        return at::remainder(x(), y());
      case kSquaredDifference:
        return (x() - y()).square();
      case kAbs:
        return x().abs();
      case kCos:
        return x().cos();
      case kElu:
        return at::elu(x());
      case kSelect:
        return at::where(x(), y(), in(op, 2));
      case kGelu:
        return at::gelu(x());
      case kAtan2:
        return at::atan2(x(), y());
      case kSign:
        return x().sign();
      default:
        return std::nullopt;
    }
  }

  /// Products, sums over dimensions, and moves of elements.
  std::optional<at::Tensor> of_matrices(const TfliteOperator& op) {
    const auto x = [&] { return in(op, 0); };
    const auto reduced = [&](const auto& function) {
      return function(x(), ints(op, 1), op.options.get<int8_t>(0) != 0);
    };
    switch (op.code) {
      case kConcatenation: {
        std::vector<at::Tensor> parts;
        for (size_t i = 0; i < op.inputs.size(); ++i) parts.push_back(in(op, i));
        return at::cat(parts, op.options.get<int32_t>(0));
      }
      case kFullyConnected:
        return at::linear(x(), in(op, 1), in(op, 2));
      case kSoftmax:
        return x().softmax(-1);
      case kDepthToSpace: {
        const int64_t block = op.options.get<int32_t>(0);
        const at::Tensor places = x().unflatten(3, {block, block, x().size(3) / (block * block)});
        return places.permute({0, 1, 3, 2, 4, 5})
            .flatten(3, 4)
            .flatten(1, 2);  // the place outside of the channel
      }
      case kSpaceToDepth: {
        const int64_t block = op.options.get<int32_t>(0);
        const at::Tensor rows =
            at::pixel_unshuffle(x().permute({0, 3, 1, 2}), block);  // a block inside of the channel
        return rows.unflatten(1, {x().size(3), block * block})
            .transpose(1, 2)
            .flatten(1, 2)
            .permute({0, 2, 3, 1});
      }
      case kMean:
        return reduced([](const at::Tensor& a, const Ints& dims, bool keep) { return a.mean(dims, keep); });
      case kTile:
        return x().repeat(ints(op, 1));
      case kSum:
        return reduced([](const at::Tensor& a, const Ints& dims, bool keep) { return a.sum(dims, keep); });
      case kReduceMax:
        return reduced([](const at::Tensor& a, const Ints& dims, bool keep) { return a.amax(dims, keep); });
      case kReduceMin:
        return reduced([](const at::Tensor& a, const Ints& dims, bool keep) { return a.amin(dims, keep); });
      case kReduceAny:
        return reduced(
            [](const at::Tensor& a, const Ints& dims, bool keep) { return a.any(dims.at(0), keep); });
      case kReduceAll:
        return reduced(
            [](const at::Tensor& a, const Ints& dims, bool keep) { return a.all(dims.at(0), keep); });
      case kArgMax:
        return x().argmax(ints(op, 1).at(0));
      case kArgMin:
        return x().argmin(ints(op, 1).at(0));
      case kReduceProd:
        return x().prod(ints(op, 1).at(0), op.options.get<int8_t>(0) != 0);
      case kBatchMatMul:
        return at::matmul(op.options.get<int8_t>(0) != 0 ? x().mT() : x(),
                          op.options.get<int8_t>(1) != 0 ? in(op, 1).mT() : in(op, 1));
      case kCumsum:
        return x().cumsum(ints(op, 1).at(0));
      case kConv3d:
        return volume(op);
      case kBroadcastTo:
        return x().expand(ints(op, 1));
      default:
        return std::nullopt;
    }
  }

  /// Rows [..., n] of ids [..., k], where the leading dimensions go together.
  at::Tensor gathered(const TfliteOperator& op) {
    const at::Tensor ids = in(op, 1).to(at::kLong);
    const int64_t axis = op.options.get<int32_t>(0);
    if (op.options.get<int32_t>(1) > 0 && axis + 1 == in(op, 0).dim())
      return at::gather(in(op, 0), axis, ids);
    if (op.options.get<int32_t>(1) > 0) {  // rows [N, P, C] of ids [N, ...]
      std::vector<at::Tensor> images;
      for (int64_t n = 0; n < ids.size(0); ++n) images.push_back(at::embedding(in(op, 0)[n], ids[n]));
      return at::stack(images);
    }
    at::Tensor made = in(op, 0).index_select(axis, ids.flatten());
    Ints shape = in(op, 0).sizes().vec();
    shape.erase(shape.begin() + axis);
    shape.insert(shape.begin() + axis, ids.sizes().begin(), ids.sizes().end());
    return made.reshape(shape);
  }

  std::vector<at::Tensor> top(const TfliteOperator& op) {
    const auto [values, ids] = in(op, 0).sort(/*stable=*/true, -1, /*descending=*/true);
    const int64_t k = in(op, 1).item<int64_t>();
    return {values.narrow(-1, 0, k), ids.narrow(-1, 0, k).to(at::kInt)};
  }

  at::Tensor volume(const TfliteOperator& op) {
    const auto number = [&](int field) { return static_cast<int64_t>(op.options.get<int32_t>(field, 1)); };
    return torch::conv3d(in(op, 0).permute({0, 4, 1, 2, 3}), in(op, 1).permute({4, 3, 0, 1, 2}), in(op, 2),
                         {number(1), number(3), number(2)}, at::IntArrayRef{0, 0, 0},
                         {number(5), number(7), number(6)})
        .permute({0, 2, 3, 4, 1});
  }

  static at::Tensor sliced(at::Tensor x, const Ints& begin, const Ints& size) {
    for (int64_t d = 0; d < x.dim(); ++d) {
      const auto at = static_cast<size_t>(d);
      x = x.narrow(d, begin[at], size[at] < 0 ? x.size(d) - begin[at] : size[at]);
    }
    return x;
  }

  at::Tensor strided(const TfliteOperator& op) {
    at::Tensor x = in(op, 0);
    const Ints begin = ints(op, 1), end = ints(op, 2), step = ints(op, 3);
    const auto has = [&](int field, int64_t d) { return (op.options.get<int32_t>(field) >> d & 1) != 0; };
    for (int64_t d = x.dim() - 1; d >= 0; --d) {
      const auto at = static_cast<size_t>(d);
      const int64_t first = has(0, d) ? 0 : begin[at], last = has(1, d) ? x.size(d) : end[at];
      x = has(4, d) ? x.select(d, first) : x.slice(d, first, last, step[at]);
    }
    return x;
  }

  /// The code that stands for 0.
  static double zero_of(const TfliteTensor& tensor) {
    return tensor.type == kInt8Type ? static_cast<double>(tensor.zero_point.at(0)) : 0;
  }

  static at::Tensor padded(const at::Tensor& x, const Ints& pairs, double value) {
    Ints reversed;
    for (size_t i = pairs.size(); i > 0; i -= 2)
      reversed.insert(reversed.end(), {pairs[i - 2], pairs[i - 1]});
    return torch::constant_pad_nd(x, reversed, value);
  }

  static at::Tensor nearest(at::Tensor x, const Ints& size) {
    for (int64_t d = 1; d <= 2; ++d) {
      const auto to = size[static_cast<size_t>(d - 1)];
      const float step = static_cast<float>(x.size(d)) / static_cast<float>(to);
      Ints ids;
      for (int64_t i = 0; i < to; ++i)
        ids.push_back(
            std::min(static_cast<int64_t>(std::floor(static_cast<float>(i) * step)), x.size(d) - 1));
      x = x.index_select(d, torch::tensor(ids));
    }
    return x;
  }

  static at::Tensor bilinear(at::Tensor x, const Ints& size, bool corners, bool half) {
    for (int64_t d = 1; d <= 2; ++d) {
      const auto to = size[static_cast<size_t>(d - 1)];
      const auto from = static_cast<float>(x.size(d));
      const float step =
          corners && to > 1 ? (from - 1) / static_cast<float>(to - 1) : from / static_cast<float>(to);
      Ints lower, upper;
      std::vector<float> share;
      for (int64_t i = 0; i < to; ++i) {
        const float place =
            half ? (static_cast<float>(i) + 0.5F) * step - 0.5F : static_cast<float>(i) * step;
        lower.push_back(std::max<int64_t>(static_cast<int64_t>(std::floor(place)), 0));
        upper.push_back(std::min(static_cast<int64_t>(std::ceil(place)), x.size(d) - 1));
        share.push_back(std::max(place, 0.0F) - static_cast<float>(lower.back()));
      }
      Ints shape(static_cast<size_t>(x.dim()), 1);
      shape[static_cast<size_t>(d)] = to;
      const at::Tensor by = torch::tensor(share).reshape(shape);
      x = x.index_select(d, torch::tensor(lower)) * (1 - by) + x.index_select(d, torch::tensor(upper)) * by;
    }
    return x;
  }

  /// SAME as zeros, or as `value`, around the image [N, H, W, C].
  static at::Tensor with_padding(const at::Tensor& x, bool same, const Ints& kernel, const Ints& stride,
                                 double value) {
    if (!same) return x;
    Ints pairs = {0, 0};
    for (size_t i = 2; i-- > 0;) {
      const int64_t size = x.size(static_cast<int64_t>(i) + 1), out = (size + stride[i] - 1) / stride[i];
      const int64_t all = std::max<int64_t>((out - 1) * stride[i] + kernel[i] - size, 0);
      pairs.insert(pairs.end(), {all / 2, all - all / 2});
    }
    return torch::constant_pad_nd(x, pairs, value);
  }

  at::Tensor convolved(const TfliteOperator& op) {
    const at::Tensor& weight = in(op, 1);
    const Ints stride = {op.options.get<int32_t>(2), op.options.get<int32_t>(1)};
    const Ints dilation = {op.options.get<int32_t>(5, 1), op.options.get<int32_t>(4, 1)};
    const Ints reach = {(weight.size(1) - 1) * dilation[0] + 1, (weight.size(2) - 1) * dilation[1] + 1};
    const at::Tensor x = with_padding(in(op, 0), op.options.get<int8_t>(0) == 0, reach, stride, 0);
    return torch::conv2d(x.permute({0, 3, 1, 2}), weight.permute({0, 3, 1, 2}), in(op, 2), stride,
                         torch::IntArrayRef{0, 0}, dilation)
        .permute({0, 2, 3, 1});
  }

  /// A kernel [1, H, W, C multiplier] for each channel.
  at::Tensor by_channel(const TfliteOperator& op) {
    const at::Tensor& weight = in(op, 1);
    const Ints stride = {op.options.get<int32_t>(2), op.options.get<int32_t>(1)};
    const Ints dilation = {op.options.get<int32_t>(6, 1), op.options.get<int32_t>(5, 1)};
    const Ints reach = {(weight.size(1) - 1) * dilation[0] + 1, (weight.size(2) - 1) * dilation[1] + 1};
    const at::Tensor x = with_padding(in(op, 0), op.options.get<int8_t>(0) == 0, reach, stride, 0);
    return torch::conv2d(x.permute({0, 3, 1, 2}), weight.permute({3, 0, 1, 2}), in(op, 2), stride,
                         torch::IntArrayRef{0, 0}, dilation, x.size(3))
        .permute({0, 2, 3, 1});
  }

  at::Tensor pooled(const TfliteOperator& op) {
    const Ints stride = {op.options.get<int32_t>(2), op.options.get<int32_t>(1)};
    const Ints kernel = {op.options.get<int32_t>(4), op.options.get<int32_t>(3)};
    const bool same = op.options.get<int8_t>(0) == 0, is_max = op.code == kMaxPool;
    const auto sums = [&](const at::Tensor& x) {
      const at::Tensor all = with_padding(x, same, kernel, stride, is_max ? -INFINITY : 0);
      return all.unfold(1, kernel[0], stride[0]).unfold(2, kernel[1], stride[1]).flatten(4);
    };
    const at::Tensor windows = sums(in(op, 0));
    if (is_max) return windows.amax(-1);
    const at::Tensor count = sums(torch::ones_like(in(op, 0))).sum(-1);
    if (in(op, 0).scalar_type() == at::kFloat) return windows.sum(-1) / count;
    const at::Tensor all = windows.sum(-1);  // codes: what lies in the middle of two goes away from code 0
    return (all.sign() * at::div(all.abs() + at::div(count, 2, "floor"), count, "floor")).to(at::kChar);
  }

  const TfliteModel& file_;
  std::vector<at::Tensor> values_;
};

}  // namespace ulp::test
