// Operators on codes, as the quantizers and the operators on numbers that they mean.
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/exchange/onnx_import/file_values.h"
#include "ulp/exchange/onnx_import/movers.h"
#include "ulp/exchange/onnx_import/rewrite.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using NodeNames = std::vector<std::string>;

/// Names of the scale and the zero point of codes.
struct StepNames {
  std::string scale, zero_point;
};

/// An operator that reads codes, each with its scale and zero point, and gives codes. Numbers are places of
/// inputs.
struct CodeOperator {
  std::string_view op, plain;       ///< the operator, and that on numbers
  std::vector<size_t> codes;        ///< each followed by scale and zero point
  std::vector<size_t> others = {};  ///< inputs that are no codes, before them
  size_t step = 0;                  ///< scale and zero point of the result
};
const std::vector<CodeOperator>& code_operators() {
  static const std::vector<CodeOperator> all = {
      {.op = "QLinearMatMul", .plain = "MatMul", .codes = {0, 3}, .step = 6},
      {.op = "QLinearAdd", .plain = "Add", .codes = {0, 3}, .step = 6},
      {.op = "QLinearMul", .plain = "Mul", .codes = {0, 3}, .step = 6},
      {.op = "QLinearSigmoid", .plain = "Sigmoid", .codes = {0}, .step = 3},
      {.op = "QLinearLeakyRelu", .plain = "LeakyRelu", .codes = {0}, .step = 3},
      {.op = "QLinearSoftmax", .plain = "Softmax", .codes = {0}, .step = 3},
      {.op = "QLinearGlobalAveragePool", .plain = "GlobalAveragePool", .codes = {0}, .step = 3},
      {.op = "QLinearAveragePool", .plain = "AveragePool", .codes = {0}, .step = 3},
      {.op = "QLinearReduceMean", .plain = "ReduceMean", .codes = {0}, .step = 3},
      {.op = "QLinearWhere", .plain = "Where", .codes = {1, 4}, .others = {0}, .step = 7}};
  return all;
}

/// Attributes that say how an operator on codes lies in memory, and those of older forms.
bool is_plain_attribute(const FileAttribute& attribute) {
  return attribute.name != "channels_last" && attribute.name != "opset";
}

class CodeOperatorRewriter {
 public:
  explicit CodeOperatorRewriter(FileGraph& graph) : graph_(graph), values_(graph) {}

  void run() {
    const bool any = std::ranges::any_of(graph_.nodes, [](const FileNode& node) {
      return node.op.starts_with("QLinear") || node.op == "QGemm" || node.op == "MatMulIntegerToFloat";
    });
    if (!any) return;
    for (const FileNode& node : graph_.nodes) rewrite(node);
    graph_.nodes = std::move(made_);
    for (FileTensor& one : tensors_) graph_.initializers.push_back(std::move(one));
  }

 private:
  static std::string input(const FileNode& node, size_t i) {
    return i < node.inputs.size() ? node.inputs[i] : "";
  }

  static int64_t number(const FileNode& node, std::string_view attribute, int64_t otherwise) {
    const FileAttribute* found = node.find(attribute);
    return found == nullptr ? otherwise : found->i;
  }

  [[noreturn]] static void refuse(const FileNode& node, const std::string& what) {
    fail_file(kImportOnnxWhere, node.label(), ": ", what);
  }

  void rewrite(const FileNode& node) {
    if (!node.domain.empty() && node.domain != "com.microsoft") return keep(node);
    const auto row = std::ranges::find(code_operators(), node.op, &CodeOperator::op);
    if (row != code_operators().end()) return by_row(node, *row);
    if (node.op == "QLinearConv") return convolution(node);
    if (node.op == "QGemm") return gemm(node);
    if (node.op == "QLinearConcat") return concat(node);
    if (node.op == "MatMulIntegerToFloat" && steps_.contains(input(node, 0))) return to_float(node);
    if (node.op == "QuantizeLinear" && !node.outputs.empty())
      steps_[node.outputs[0]] = {input(node, 1), input(node, 2)};
    const bool moves = node.domain.empty() && (is_mover(node.op) || node.op == "MaxPool");
    const auto step = moves ? steps_.find(input(node, 0)) : steps_.end();
    if (step == steps_.end() || node.outputs.size() != 1) return keep(node);
    NodeNames inputs = node.inputs;
    inputs[0] = number_of(node, inputs[0], step->second);
    quantize(node, plain(node, node.op, inputs), StepNames(step->second));
  }

  void keep(const FileNode& node) { made_.push_back(node); }

  FileNode& add(const FileNode& from, const std::string& op, NodeNames inputs, std::string output) {
    FileNode& node = made_.emplace_back();
    node.op = op;
    node.name = from.name.empty() ? from.label() : from.name;
    node.inputs = std::move(inputs);
    node.outputs = {std::move(output)};
    return node;
  }

  std::string result_name(const FileNode& node) const {
    if (node.outputs.empty() || node.outputs[0].empty()) refuse(node, "expected a result");
    return node.outputs[0];
  }

  /// The number of codes; `axis` where each index of it has a scale of its own.
  std::string number_of(const FileNode& node, const std::string& codes, const StepNames& step,
                        std::optional<int64_t> axis = {}) {
    const std::string output = values_.fresh(result_name(node) + "/" + codes);
    FileNode& made = add(node, "DequantizeLinear", {codes, step.scale, step.zero_point}, output);
    if (axis) made.attributes.push_back({.name = "axis", .type = 2, .i = *axis});
    return output;
  }

  /// The operator on numbers, with the attributes of that on codes.
  std::string plain(const FileNode& node, std::string_view op, NodeNames inputs) {
    const std::string output = values_.fresh(result_name(node) + "/" + std::string(op));
    FileNode& made = add(node, std::string(op), std::move(inputs), output);
    std::ranges::copy_if(node.attributes, std::back_inserter(made.attributes), is_plain_attribute);
    return output;
  }

  void quantize(const FileNode& node, const std::string& value, const StepNames& step) {
    add(node, "QuantizeLinear", {value, step.scale, step.zero_point}, result_name(node));
    steps_[node.outputs[0]] = step;
  }

  StepNames step_at(const FileNode& node, size_t i) const { return {input(node, i), input(node, i + 1)}; }

  Tensor scale_of(const FileNode& node, const StepNames& step) const {
    const Tensor scale = values_.stored(step.scale);
    if (!scale.defined()) refuse(node, "expected the scales of codes to be tensors of the file");
    return scale.to(at::kFloat).reshape({-1});
  }

  /// The dimension of a scale for each channel, counted from the end as the operators do.
  std::optional<int64_t> channel_axis(const FileNode& node, const std::string& codes, const StepNames& step,
                                      int64_t from_end) const {
    if (scale_of(node, step).numel() == 1) return std::nullopt;
    const Tensor stored = values_.stored(codes);
    if (!stored.defined() || stored.dim() < from_end)
      refuse(node, "expected codes with a scale a channel to be a tensor of the file");
    return stored.dim() - from_end;
  }

  /// A bias of int32, whose scale is the product of those of input and weight.
  std::string bias(const FileNode& node, const std::string& codes, const Tensor& scale) {
    const std::string name = values_.fresh(codes + ".scale");
    tensors_.push_back({.name = name, .type = 1, .value = scale});
    return number_of(node, codes, {name, ""}, scale.numel() == 1 ? std::nullopt : std::optional<int64_t>(0));
  }

  void by_row(const FileNode& node, const CodeOperator& row) {
    if (number(node, "channels_last", 0) != 0) refuse(node, "expected channels first, got channels_last");
    constexpr int64_t kOneDimension = 13;
    if (node.op == "QLinearSoftmax" && number(node, "opset", kOneDimension) < kOneDimension)
      refuse(node, "expected a softmax over one dimension, got that of an older opset");
    NodeNames inputs;
    for (const size_t i : row.others) inputs.push_back(input(node, i));
    for (const size_t i : row.codes) {
      const StepNames step = step_at(node, i + 1);
      const bool product = row.plain == "MatMul";
      const auto axis =
          product ? channel_axis(node, input(node, i), step, i == 0 ? 2 : 1) : std::optional<int64_t>();
      inputs.push_back(number_of(node, input(node, i), step, axis));
    }
    quantize(node, plain(node, row.plain, inputs), step_at(node, row.step));
  }

  void convolution(const FileNode& node) {
    const StepNames of_input = step_at(node, 1), of_weight = step_at(node, 4);
    NodeNames inputs = {number_of(node, input(node, 0), of_input),
                        number_of(node, input(node, 3), of_weight, 0)};
    if (!input(node, 8).empty())
      inputs.push_back(bias(node, input(node, 8), scale_of(node, of_input) * scale_of(node, of_weight)));
    quantize(node, plain(node, "Conv", inputs), step_at(node, 6));
  }

  void gemm(const FileNode& node) {
    const StepNames a = step_at(node, 1), b = step_at(node, 4);
    const bool turned = number(node, "transB", 0) != 0;
    NodeNames inputs = {
        number_of(node, input(node, 0), a),
        number_of(node, input(node, 3), b, channel_axis(node, input(node, 3), b, turned ? 2 : 1))};
    if (!input(node, 6).empty()) {
      const FileAttribute* alpha = node.find("alpha");
      const Tensor scale = scale_of(node, a) * scale_of(node, b) * (alpha == nullptr ? 1.0F : alpha->f);
      inputs.push_back(bias(node, input(node, 6), scale));
    }
    const bool to_codes = !input(node, 7).empty();
    const std::string value = plain(node, "Gemm", inputs);
    if (to_codes) return quantize(node, value, step_at(node, 7));
    add(node, "Identity", {value}, result_name(node));
  }

  void concat(const FileNode& node) {
    NodeNames inputs;
    for (size_t i = 2; i + 1 < node.inputs.size(); i += 3)
      inputs.push_back(number_of(node, node.inputs[i], step_at(node, i + 1)));
    quantize(node, plain(node, "Concat", inputs), step_at(node, 0));
  }

  /// A product of codes, whose result stays a number.
  void to_float(const FileNode& node) {
    const StepNames a = {input(node, 2), input(node, 4)}, b = {input(node, 3), input(node, 5)};
    const std::string value =
        plain(node, "MatMul",
              {number_of(node, input(node, 0), a),
               number_of(node, input(node, 1), b, channel_axis(node, input(node, 1), b, 1))});
    const std::string own = input(node, 6);
    if (own.empty()) {
      add(node, "Identity", {value}, result_name(node));
    } else {
      add(node, "Add", {value, own}, result_name(node));
    }
  }

  FileGraph& graph_;
  FileValues values_;
  std::vector<FileNode> made_;
  std::vector<FileTensor> tensors_;
  std::map<std::string, StepNames> steps_;
};

}  // namespace

void rewrite_code_operators(FileGraph& graph) {
  CodeOperatorRewriter(graph).run();
}

}  // namespace ulp::exchange::onnx_import
