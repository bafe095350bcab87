// What can be said of an ONNX graph before it runs: who makes and who reads each value, what depends on the
// inputs, and which tensors are parameters.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ulp/exchange/onnx_import/file_model.h"

namespace ulp::exchange::onnx_import {

/// A place where a value is read.
struct Use {
  const FileNode* node = nullptr;
  size_t input = 0;
};

class Analysis {
 public:
  /// `graph` outlives this.
  explicit Analysis(const FileGraph& graph);

  /// Null for an input, an initializer, or what a graph inside makes.
  const FileNode* maker(const std::string& value) const;
  /// Reads by nodes of the outer graph and of graphs in it.
  const std::vector<Use>& uses(const std::string& value) const;
  /// Whether the numbers of a value follow those of the inputs, and not only their sizes.
  bool follows_inputs(const std::string& value) const { return runtime_.contains(value); }
  /// Whether a tensor of the file is a parameter: ONNX does not say. It is where a layer reads it in the
  /// place of a weight, or where it is added to, multiplied with or joined to what follows the inputs,
  /// itself or after it was moved.
  bool is_parameter(const std::string& value) const { return parameters_.contains(value); }
  /// True if the only readers are matrix products, to the right of them.
  bool only_multiplies(const std::string& value) const;
  bool is_result(const std::string& value) const { return results_.contains(value); }

 private:
  void visit(const FileGraph& graph);
  bool trains(const Use& use) const;

  std::vector<const FileNode*> order_;
  std::map<std::string, const FileNode*> makers_;
  std::map<std::string, std::vector<Use>> uses_;
  std::set<std::string> runtime_, results_, parameters_;
};

}  // namespace ulp::exchange::onnx_import
