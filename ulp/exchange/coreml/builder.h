// What converters write with: the program that grows, and the names of the graph's values in it. The graph has fixed sizes
// (fix_sizes()).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/coreml/model.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::coreml {

using Inputs = std::vector<Input>;

class Builder {
 public:
  /// `codes`: weights become codes of 8 bits.
  Builder(const graph::Graph& graph, bool codes);

  const graph::Graph& graph() const { return graph_; }

  /// The name of a value; a stored tensor becomes a constant when it is first read.
  const std::string& name_of(const graph::Value* value);
  /// The same for an argument that must be a tensor of the graph.
  const std::string& in(const graph::Node& node, std::string_view argument);
  /// The same for a weight whose dimension 0 are the output channels, or the rows of a table: in codes where they are wished for.
  std::string weight(const graph::Node& node, std::string_view argument);
  /// The value is this one.
  void alias(const graph::Value* value, const std::string& name) { names_[value] = name; }

  /// An operation whose result is a value of its own; returns its name. Without a type its result is like the node's first one.
  std::string call(const graph::Node& node, const char* op, Inputs inputs, Type type);
  std::string call(const graph::Node& node, const char* op, Inputs inputs);
  /// An operation whose result is the node's i-th output.
  void result(const graph::Node& node, const char* op, Inputs inputs, size_t i = 0);
  /// An operation that makes all outputs of the node.
  void results(const graph::Node& node, const char* op, Inputs inputs);

  /// A constant; equal ones are one. `wish` is its name, made unique. int64 becomes int32.
  std::string constant(const at::Tensor& tensor, const std::string& wish = "const");
  std::string number(double value, at::ScalarType type);
  std::string integer(int64_t value);
  std::string ints(const std::vector<int64_t>& values);
  std::string flag(bool value);
  std::string flags(const std::vector<bool>& values);
  std::string word(const std::string& value);
  /// Numbers that stored codes [rows, ...] with a scale for each row stand for.
  std::string dequantized(const at::Tensor& codes, const at::Tensor& scale, const std::string& wish);

  /// `x` as another type.
  std::string cast(const graph::Node& node, const std::string& x, at::ScalarType type,
                   const std::vector<int64_t>& shape);

  void add_input(const graph::Value& value);
  /// A result of the graph under its own name, or under this one.
  void add_output(const graph::Value& value, const std::string& name);
  /// What has been built.
  Model& model() { return model_; }

 private:
  std::string unique(const std::string& wish);
  std::string store(const std::string& key, const std::string& wish, Constant constant);
  /// A tensor as it lies in the file: dense, int64 as int32, in the file of weights where it has 10 numbers or more.
  Constant typed(const at::Tensor& tensor, const std::string& wish);

  const graph::Graph& graph_;
  bool codes_;
  Model model_;
  std::map<const graph::Value*, std::string> names_;
  std::map<std::string, std::string> constants_;        // by their bytes
  std::map<const graph::Value*, std::string> weights_;  // in codes
  std::vector<at::Tensor> kept_;                        // whose memory tells them apart
  std::set<std::string> taken_, results_;
};

/// Sizes of a value, and of the node's first output.
std::vector<int64_t> shape_of(const graph::Node& node, const graph::Value& value);
std::vector<int64_t> shape_of(const graph::Node& node);

}  // namespace ulp::exchange::coreml
