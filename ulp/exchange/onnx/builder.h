// What converters write with: the ONNX model that grows, and the names of the graph's values in it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/onnx/model.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::onnx {

using Names = std::vector<std::string>;
using Attributes = std::vector<Attribute>;

/// What a call reads.
struct CallArguments {
  Names inputs;
  Attributes attributes;
};

/// Codes of 4 bits.
struct Codes {
  int32_t type = kUint4;
  std::vector<int64_t> dims;
  at::Tensor bytes;  ///< two in a byte
};

class Builder {
 public:
  Builder(const graph::Graph& graph, int64_t opset);

  const graph::Graph& graph() const { return graph_; }
  int64_t opset() const { return model_.opset; }

  /// The name of a value; an attribute becomes an initializer when it is first read.
  const std::string& name_of(const graph::Value* value);
  /// The same for a weight that the network stores as [in, out]: the metadata say so.
  const std::string& name_in_out(const graph::Value& weight);
  /// The same for an argument that must be a tensor of the graph.
  const std::string& in(const graph::Node& node, std::string_view argument);
  /// A selection whose indices may be below 0: the metadata say so.
  void counts_from_end(const graph::Value& selection);
  /// The same as a tensor of this type: through a Cast where the value has another one.
  std::string name_as(const graph::Node& node, const graph::Value& value, at::ScalarType type);
  /// The value is this one.
  void alias(const graph::Value* value, const std::string& name) { names_[value] = name; }

  /// A call whose result is a value of its own; returns its name.
  std::string call(const graph::Node& node, const std::string& op, Names inputs, Attributes attributes = {});
  /// A call whose result is the node's i-th output.
  void result(const graph::Node& node, const std::string& op, Names inputs, Attributes attributes = {},
              size_t i = 0);
  /// A call that makes all outputs of the node.
  void results(const graph::Node& node, const std::string& op, Names inputs, Attributes attributes = {});
  /// A call that makes values of its own, as many as asked for.
  Names calls(const graph::Node& node, const std::string& op, size_t count, Names inputs,
              Attributes attributes = {});

  /// An initializer; equal ones of one wish are one. `wish` is its name, made unique.
  std::string constant(const at::Tensor& tensor, const std::string& wish = "const");
  /// What `make` gives of the tensor `name` of the graph: `form` says how, and it is made once for each. The first tensor of
  /// the file that is made of `name` has this name.
  template <typename Make>
  const std::string& derived(const std::string& name, const std::string& form, const Make& make) {
    const auto [place, first] = derived_.try_emplace(name + '\n' + form);
    if (first) place->second = store(name, make());
    return place->second;
  }
  /// A finite number that is beyond a half becomes its largest one.
  std::string scalar(const c10::Scalar& value, at::ScalarType type);
  std::string ints(const std::vector<int64_t>& values);
  /// A list of sizes as int64 [n]: a constant, or computed from the sizes of the inputs.
  std::string sizes(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes);
  /// `x` in another type.
  std::string cast(const graph::Node& node, const std::string& x, at::ScalarType type);

  void add_input(const graph::Value& value);
  /// A result of the graph under its own name, or under this one.
  void add_output(const graph::Value& value, const std::string& name = "");
  /// What has been built.
  Model& model() { return model_; }

 private:
  std::string unique(const std::string& wish);
  /// Adds an initializer and returns its name: `wish`, or one like it where there is another of this name.
  std::string store(const std::string& wish, const at::Tensor& tensor);
  std::string store(const std::string& wish, const Codes& codes);
  /// One size as int64 [1].
  std::string size(const graph::Node& node, const graph::SizeExpr& expr);
  /// The i-th of the batch and the free dimensions as int64 [1].
  std::string free_size(const graph::Node& node, size_t i);
  ValueInfo info(const graph::Value& value, const std::string& name) const;

  const graph::Graph& graph_;
  Model model_;
  std::vector<std::string> free_names_;  // the batch first
  std::map<const graph::Value*, std::string> names_;
  std::map<std::string, std::string> constants_;  // by their bytes
  std::map<std::string, std::string> derived_;    // by name and form
  std::map<size_t, std::string> free_sizes_;
  std::set<std::string> taken_, stored_, results_, in_out_;
};

/// The tensor of an argument that is stored, not computed; refuses another.
at::Tensor stored_argument(const Builder& builder, const graph::Node& node, const char* argument);

}  // namespace ulp::exchange::onnx
