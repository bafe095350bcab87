#include "ulp/exchange/onnx_import/analysis.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ulp/exchange/onnx_import/movers.h"

namespace ulp::exchange::onnx_import {

namespace {

/// Inputs that are weights, as bits: 6 is the second and the third.
struct WeightInputs {
  std::string_view op;
  unsigned inputs;
};
constexpr WeightInputs kWeights[] = {{"Conv", 6},
                                     {"ConvTranspose", 6},
                                     {"Gemm", 7},
                                     {"MatMul", 3},
                                     {"Einsum", 7},
                                     {"BatchNormalization", 6},
                                     {"InstanceNormalization", 6},
                                     {"LayerNormalization", 6},
                                     {"GroupNormalization", 6},
                                     {"RMSNormalization", 2},
                                     {"SimplifiedLayerNormalization", 2},
                                     {"PRelu", 2},
                                     {"Gather", 1},
                                     {"LSTM", 14},
                                     {"GRU", 14},
                                     {"RNN", 14}};
/// Beside what moves a tensor's elements: the parts of what rounds them to codes or to signs.
constexpr std::array<std::string_view, 5> kRounds = {"Cast", "QuantizeLinear", "Where", "GreaterOrEqual",
                                                     "DequantizeLinear"};
constexpr std::array<std::string_view, 3> kJoins = {"Add", "Mul", "Concat"};

bool among(const auto& list, std::string_view op) {
  return std::ranges::find(list, op) != list.end();
}

}  // namespace

Analysis::Analysis(const FileGraph& graph) {
  for (const FileValue& input : graph.inputs) runtime_.insert(input.name);
  for (const FileTensor& one : graph.initializers)
    runtime_.erase(one.name);  // files before version 4 list them twice
  for (const FileValue& output : graph.outputs) results_.insert(output.name);
  visit(graph);
  // A value's readers come behind its maker.
  for (auto node = order_.rbegin(); node != order_.rend(); ++node) {
    for (size_t i = 0; i < (*node)->inputs.size(); ++i) {
      if (trains({*node, i})) parameters_.insert((*node)->inputs[i]);
    }
  }
}

void Analysis::visit(const FileGraph& graph) {
  for (const FileNode& node : graph.nodes) {
    bool follows = false;
    order_.push_back(&node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      uses_[node.inputs[i]].push_back({&node, i});
      follows = follows || runtime_.contains(node.inputs[i]);
    }
    for (const FileAttribute& attribute : node.attributes) {
      if (!attribute.g) continue;
      for (const FileValue& input : attribute.g->inputs) runtime_.insert(input.name);
      visit(*attribute.g);
      for (const FileValue& result : attribute.g->outputs) {
        results_.insert(result.name);
        follows = follows || runtime_.contains(result.name);
      }
    }
    const bool sizes_alone = node.op == "Shape" || node.op == "Size";
    for (const std::string& output : node.outputs) {
      makers_.emplace(output, &node);
      if (follows && !sizes_alone) runtime_.insert(output);
    }
  }
}

const FileNode* Analysis::maker(const std::string& value) const {
  const auto found = makers_.find(value);
  return found == makers_.end() ? nullptr : found->second;
}

const std::vector<Use>& Analysis::uses(const std::string& value) const {
  static const std::vector<Use> none;
  const auto found = uses_.find(value);
  return found == uses_.end() ? none : found->second;
}

bool Analysis::trains(const Use& use) const {
  const FileNode& node = *use.node;
  const auto row = std::ranges::find(kWeights, node.op, &WeightInputs::op);
  if (row != std::end(kWeights) && use.input < 32 && (row->inputs >> use.input & 1U) != 0) return true;
  if (among(kJoins, node.op)) {
    return std::ranges::any_of(node.inputs,
                               [&](const std::string& other) { return follows_inputs(other); }) ||
           (!node.outputs.empty() && is_parameter(node.outputs[0]));
  }
  if (use.input != 0 || !(is_mover(node.op) || among(kRounds, node.op))) return false;
  return std::ranges::any_of(node.outputs, [&](const std::string& output) { return is_parameter(output); });
}

bool Analysis::only_multiplies(const std::string& value) const {
  const std::vector<Use>& all = uses(value);
  return !all.empty() && !is_result(value) && std::ranges::all_of(all, [](const Use& use) {
    const FileAttribute* turned = use.node->find("transB");
    const bool plain =
        use.node->op == "MatMul" || (use.node->op == "Gemm" && (turned == nullptr || turned->i == 0));
    return use.input == 1 && plain;
  });
}

}  // namespace ulp::exchange::onnx_import
