// A graph as the text of a torch.export program, schema version 8.20.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/exchange/pt2/program.h"
#include "ulp/exchange/pt2/sample_inputs.h"
#include "ulp/exchange/pt2/stored_tensors.h"
#include "ulp/exchange/pt2/symbols.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

class ProgramWriter {
 public:
  /// The graph as it runs in eval mode, whose calls are operators of PyTorch; it outlives this.
  explicit ProgramWriter(const graph::Graph& graph);

  /// The program, whose tensors go to the folders. Throws ulp::Error that names each call without a form, and
  /// inputs and tensors of types that ulp does not write.
  Json write(TensorFolder& weights, TensorFolder& constants);
  /// Of each input, in order.
  std::vector<SampleInput> samples() const;

 private:
  /// A number that a node computes.
  struct Number {
    std::string name, text;
    int64_t sample = 0;
  };

  std::string unique_name(std::string_view wish);
  void add_tensors(TensorFolder& weights, TensorFolder& constants);
  void add_inputs();
  void add_placeholder(const std::string& name, Json meta, Json spec);
  void add_call(const graph::Node& node);
  void add_result(const graph::Value& value);
  /// Describes a call's result; gives its name.
  std::string add_value(const graph::Node& node, const graph::Value& value);
  Json meta_of(const graph::TensorMeta& meta, bool channels_last) const;
  void check_sizes(const graph::Node& node, const graph::Value& value) const;

  Json inputs_of(const graph::Node& node);
  Json argument(const graph::Node& node, const graph::Argument& argument, const c10::Type& type);
  Json list(const graph::Node& node, const std::vector<graph::Argument>& items, const c10::Type& element);

  std::string number(const graph::Node& node, const graph::SizeExpr& size);
  void add_symbols();
  std::optional<Number> size(size_t which);
  Number computed(const char* function, const Number& a, const Number& b);
  Number add_number(const std::string& target, const std::string& wish, Json inputs, const std::string& text,
                    int64_t sample);

  const graph::Graph& graph_;
  Symbols symbols_;
  std::set<std::string> taken_;
  std::map<const graph::Value*, std::string> names_;
  std::map<std::string, std::string> attribute_names_;  ///< of placeholders, by the attribute's
  std::map<std::string, Number> numbers_;               ///< by their texts
  std::vector<std::string> input_names_;
  Json nodes_ = Json::array(), inputs_ = Json::array(), outputs_ = Json::array();
  Json input_specs_ = Json::array(), output_specs_ = Json::array();
  Json tensors_ = Json::object(), sizes_ = Json::object();
};

}  // namespace ulp::exchange::pt2
