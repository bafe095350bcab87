// The tensors and makers of a file's outer graph by their names, for what rewrites it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

class FileValues {
 public:
  /// `graph` outlives this and keeps its nodes and initializers.
  explicit FileValues(const FileGraph& graph) {
    for (const FileTensor& one : graph.initializers) add(one.name, one.value);
    for (const FileNode& node : graph.nodes) {
      for (const std::string& output : node.outputs) {
        names_.insert(output);
        makers_.emplace(output, &node);
      }
      const FileAttribute* value = node.find("value");
      if (node.op == "Constant" && value != nullptr && !node.outputs.empty()) add(node.outputs[0], value->t);
      count_reads(node);
    }
    for (const FileValue& input : graph.inputs) names_.insert(input.name);
    for (const FileValue& output : graph.outputs) ++reads_[output.name];
  }

  /// Undefined for what is no tensor of the file.
  at::Tensor stored(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? at::Tensor() : found->second;
  }
  /// Null for inputs and tensors of the file.
  const FileNode* maker(const std::string& name) const {
    const auto found = makers_.find(name);
    return found == makers_.end() ? nullptr : found->second;
  }
  /// How often nodes, also those in branches, and results read a value.
  size_t reads(const std::string& name) const {
    const auto found = reads_.find(name);
    return found == reads_.end() ? 0 : found->second;
  }
  /// A name that nothing has, which is taken then.
  std::string fresh(const std::string& wish) {
    std::string name = wish;
    for (int i = 1; !names_.insert(name).second; ++i) name = wish + '_' + std::to_string(i);
    return name;
  }

 private:
  void add(const std::string& name, const at::Tensor& tensor) {
    names_.insert(name);
    if (tensor.defined()) tensors_.emplace(name, tensor);
  }
  void count_reads(const FileNode& node) {
    for (const std::string& input : node.inputs) ++reads_[input];
    for (const FileAttribute& attribute : node.attributes) {
      if (!attribute.g) continue;
      for (const FileNode& inner : attribute.g->nodes) count_reads(inner);
      for (const FileValue& output : attribute.g->outputs) ++reads_[output.name];
    }
  }

  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, const FileNode*> makers_;
  std::map<std::string, size_t> reads_;
  std::set<std::string> names_;
};

/// Takes out nodes that `may_go` and whose results nobody reads, also those that are read by such nodes alone.
template <typename MayGo>
void remove_unread(FileGraph& graph, const MayGo& may_go) {
  const FileValues values(graph);
  std::map<std::string, size_t> reads;
  std::set<const FileNode*> gone;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    bool unread = may_go(*node);
    for (const std::string& output : node->outputs)
      unread = unread && (output.empty() || values.reads(output) == reads[output]);
    if (!unread) continue;
    gone.insert(&*node);
    for (const std::string& input : node->inputs) ++reads[input];  // by what is gone
  }
  std::erase_if(graph.nodes, [&](const FileNode& node) { return gone.contains(&node); });
}

}  // namespace ulp::exchange::onnx_import
