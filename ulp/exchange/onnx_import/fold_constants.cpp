// Weights that nodes make of tensors of the file, as runtimes compute them: before anything else.
#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/file_values.h"
#include "ulp/exchange/onnx_import/rewrite.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

namespace {

/// Inputs that have to be tensors of the file, as bits.
struct StoredInputs {
  std::string_view op;
  unsigned inputs;
};
constexpr StoredInputs kStoredInputs[] = {{"LSTM", 14},          {"GRU", 14},
                                          {"RNN", 14},           {"BatchNormalization", 24},
                                          {"QuantizeLinear", 6}, {"DequantizeLinear", 7},
                                          {"MatMulNBits", 14}};

class ConstantFolder {
 public:
  ConstantFolder(FileModel& model, const OnnxImportOptions& options)
      : model_(model), options_(options), values_(model.graph) {}

  void run() {
    gather(model_.graph);
    if (wanted_.empty()) return;
    std::vector<at::Tensor> made = compute();
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const at::Tensor own = made[i].detach().clone(at::MemoryFormat::Contiguous);
      model_.graph.initializers.push_back(
          {.name = wanted_[i], .type = data_type(own.scalar_type()), .value = own});
    }
    // What made them goes, with all that only it read.
    std::erase_if(model_.graph.nodes, [&](const FileNode& node) { return makers_.contains(&node); });
    remove_unread(model_.graph, [&](const FileNode& node) { return is_folded(node); });
  }

 private:
  void gather(const FileGraph& graph) {
    for (const FileNode& node : graph.nodes) {
      const auto row = std::ranges::find(kStoredInputs, node.op, &StoredInputs::op);
      for (size_t i = 0; row != std::end(kStoredInputs) && i < node.inputs.size() && i < 32; ++i) {
        if ((row->inputs >> i & 1U) != 0) want(node.inputs[i]);
      }
    }
  }

  /// All results of the node that makes the value are folded with it.
  void want(const std::string& value) {
    const FileNode* maker = values_.maker(value);
    if (maker == nullptr || values_.stored(value).defined() || makers_.contains(maker)) return;
    std::set<const FileNode*> seen;
    if (!follows_tensors(*maker, seen)) return;
    makers_.insert(maker);
    nodes_.insert(seen.begin(), seen.end());
    for (const std::string& output : maker->outputs) {
      if (!output.empty() && values_.reads(output) > 0) wanted_.push_back(output);
    }
  }

  static bool is_quantizer(const FileNode& node) {
    return node.op == "QuantizeLinear" || node.op == "DequantizeLinear";
  }

  /// Whether the node computes from tensors of the file alone, by operators that have no branches.
  bool follows_tensors(const FileNode& node, std::set<const FileNode*>& seen) const {
    constexpr size_t kMostNodes = 256;
    if (seen.contains(&node)) return true;
    if (seen.size() >= kMostNodes || is_quantizer(node) || !is_folded(node)) return false;
    seen.insert(&node);
    return std::ranges::all_of(node.inputs, [&](const std::string& input) {
      if (input.empty() || values_.stored(input).defined()) return true;
      const FileNode* maker = values_.maker(input);
      return maker != nullptr && follows_tensors(*maker, seen);
    });
  }

  static bool is_folded(const FileNode& node) {
    const bool sizes = node.op == "Shape" || node.op == "Size";
    const bool branches = std::ranges::any_of(
        node.attributes, [](const FileAttribute& attribute) { return attribute.g != nullptr; });
    return node.op != "Constant" && !branches && (sizes || find_converter(node) != nullptr);
  }

  /// A run of these nodes alone.
  std::vector<at::Tensor> compute() {
    FileModel part;
    part.ir_version = model_.ir_version;
    part.opsets = model_.opsets;
    std::set<std::string> read;
    for (const FileNode& node : model_.graph.nodes) {
      if (!nodes_.contains(&node)) continue;
      part.graph.nodes.push_back(node);
      read.insert(node.inputs.begin(), node.inputs.end());
    }
    for (const FileTensor& one : model_.graph.initializers) {
      if (read.contains(one.name)) part.graph.initializers.push_back(one);
    }
    for (const FileNode& node : model_.graph.nodes) {
      if (node.op == "Constant" && !node.outputs.empty() && read.contains(node.outputs[0]))
        part.graph.nodes.insert(part.graph.nodes.begin(), node);
    }
    for (const std::string& name : wanted_) part.graph.outputs.push_back({.name = name});
    const at::NoGradGuard no_grad;
    Store store(part, options_);
    return Run(store, /*training=*/false, /*dry=*/true).forward({});
  }

  FileModel& model_;
  const OnnxImportOptions& options_;
  FileValues values_;
  std::vector<std::string> wanted_;
  std::set<const FileNode*> makers_, nodes_;
};

}  // namespace

void fold_constants(FileModel& model, const OnnxImportOptions& options) {
  ConstantFolder(model, options).run();
}

}  // namespace ulp::exchange::onnx_import
