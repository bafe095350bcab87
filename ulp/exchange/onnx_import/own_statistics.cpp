#include "ulp/exchange/onnx_import/own_statistics.h"

#include <map>
#include <set>

namespace ulp::exchange::onnx_import {

namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMean = 3, kVariance = 4;  // inputs of BatchNormalization

class Owner {
 public:
  explicit Owner(FileGraph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.initializers.size(); ++i) tensors_.emplace(graph.initializers[i].name, i);
    for (const FileNode& node : graph.nodes) {
      for (const std::string& input : node.inputs) ++readers_[input];
      const bool copy = node.op == "Identity" && node.inputs.size() == 1 && node.outputs.size() == 1;
      if (copy && tensors_.contains(node.inputs[0])) copies_.emplace(node.outputs[0], node.inputs[0]);
    }
    for (const FileValue& result : graph.outputs) copies_.erase(result.name);
  }

  void run() {
    for (FileNode& node : graph_.nodes) {
      if (node.op != "BatchNormalization" || node.inputs.size() <= kVariance) continue;
      own(node.inputs[kMean], node.outputs.at(0) + ".running_mean");
      own(node.inputs[kVariance], node.outputs.at(0) + ".running_var");
    }
    std::erase_if(graph_.nodes, [&](const FileNode& node) {
      return node.op == "Identity" && node.outputs.size() == 1 && owned_.contains(node.outputs[0]);
    });
  }

 private:
  /// What a batch norm reads becomes a tensor that only batch norms' statistics read.
  void own(std::string& input, const std::string& other_name) {
    if (owned_.contains(input)) return;
    const auto copy = copies_.find(input);
    const auto found = tensors_.find(copy == copies_.end() ? input : copy->second);
    if (found == tensors_.end()) return;
    if (copy == copies_.end() && (readers_[input] < 2 || tensors_.contains(other_name))) return;
    FileTensor tensor = graph_.initializers[found->second];
    if (!tensor.value.defined() || bytes_ + tensor.value.nbytes() > kMostBytes) return;
    bytes_ += tensor.value.nbytes();
    if (copy == copies_.end()) input = other_name;
    tensor.name = input;
    tensor.value = tensor.value.clone();
    graph_.initializers.push_back(std::move(tensor));
    owned_.insert(input);
  }

  FileGraph& graph_;
  std::map<std::string, size_t> tensors_;
  std::map<std::string, std::string> copies_;  // results of Identity, and the tensors that they are
  std::map<std::string, int64_t> readers_;
  std::set<std::string> owned_;
  size_t bytes_ = 0;
};

}  // namespace

void own_statistics(FileGraph& graph) {
  Owner(graph).run();
}

}  // namespace ulp::exchange::onnx_import
