// Computing an ONNX graph with LibTorch: one run of it under capture makes our graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/onnx_import/analysis.h"
#include "ulp/exchange/onnx_import/file_model.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::onnx_import {

/// The parameter that a tensor of the file became. Linear layers read matrices the other way round.
struct Kept {
  at::Tensor parameter;
  bool transposed = false;  ///< the parameter is the transpose of the tensor
};

/// The tensors of a file, and what became of them: parameters and buffers by their names.
class Store {
 public:
  Store(const FileModel& model, const OnnxImportOptions& options);

  const FileModel& model() const { return model_; }
  const Analysis& analysis() const { return analysis_; }
  const OnnxImportOptions& options() const { return options_; }
  /// A tensor of the file, or one that a Constant node holds; undefined for other values.
  at::Tensor find(const std::string& value) const;
  /// Its TensorProto.DataType; 0 for other values.
  int64_t type_of(const std::string& value) const;
  bool is_initializer(const std::string& value) const { return initializers_.contains(value); }
  /// Whether the file says that the network stores this weight as it lies there.
  bool is_stored_in_out(const std::string& value) const { return in_out_.contains(value); }
  /// Whether the file says that indices of this selection may count from the end.
  bool counts_from_end(const std::string& value) const { return from_end_.contains(value); }

  /// The parameter or buffer of this name; made by `make` when it is first asked for.
  template <typename Make>
  at::Tensor attribute(const std::string& name, graph::Attribute::Kind kind, const Make& make) {
    const std::string wish = plain_name(name);
    const auto known = places_.find(wish);
    return known == places_.end() ? add(wish, kind, make()) : attributes_[known->second].second.tensor;
  }
  /// Undefined for a name that nobody has asked for.
  at::Tensor kept(const std::string& name) const;
  /// All that were asked for, in order.
  const std::vector<std::pair<std::string, graph::Attribute>>& attributes() const { return attributes_; }
  /// The tensor of the file as it lies there, whatever its parameter is; made as a parameter where nobody asked before.
  at::Tensor as_in_file(const std::string& value);
  /// A matrix of the file [in, out] as a linear layer's weight [out, in]. The parameter is `name`, transposed unless the
  /// network stores it as the file does, or a node has read it as it lies before.
  at::Tensor as_weight(const std::string& value, const std::string& name);
  /// Values of which two runs at different sizes have shown that they do not follow sizes.
  std::set<std::string> fixed;
  bool has_free_sizes = false;  ///< dimensions beside the batch are free
  /// Known values whose numbers have become arguments of calls, or have chosen a branch: capture takes them from a polynomial.
  std::set<std::string> argued;
  /// The branches that the first run has taken, in order, nodes that have taken others, and the steps of loops.
  std::vector<bool> choices;
  std::set<const FileNode*> undecided;
  std::map<const FileNode*, int64_t> steps;
  std::map<const FileNode*, std::vector<int64_t>> first_numbers;  ///< that have to be the same in each run
  /// Which nodes give weights alone in codes, as the first run has found.
  std::map<const FileNode*, bool> coded_weights;

 private:
  static std::string plain_name(const std::string& name);
  at::Tensor add(const std::string& name, graph::Attribute::Kind kind, at::Tensor tensor);

  const FileModel& model_;
  OnnxImportOptions options_;
  Analysis analysis_;
  std::map<std::string, FileTensor> initializers_;
  std::vector<std::pair<std::string, graph::Attribute>> attributes_;
  std::map<std::string, size_t> places_;
  std::map<std::string, Kept> kept_;
  std::set<std::string> in_out_, from_end_;
};

/// A value of a run. What depends on sizes and constants alone is known: it is computed beside the capture,
/// and becomes numbers in the arguments of calls.
struct Slot {
  at::Tensor value = {};
  bool known = false;
  bool sized = false;      ///< known, and another number at other sizes of the inputs
  bool parameter = false;  ///< of the file; the value is there once a call reads it
  const FileNode* maker = nullptr;
  size_t output = 0;
  at::Tensor made =
      {};  ///< of a known value that follows sizes: the calls that make it, once a call reads it as a tensor
};

/// What a node has made of values that are known before the run, at one time that it was computed.
struct Evaluation {
  std::map<std::string, at::Tensor> inputs = {};
  std::vector<at::Tensor> results = {};
};

/// One run.
class Run {
 public:
  /// `dry`: memory is counted; the store learns which tensors are asked for.
  Run(Store& store, bool training, bool dry) : store_(store), training_(training), dry_(dry) {}

  /// The results in order.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs);

  Store& store() { return store_; }
  bool training() const { return training_; }
  int64_t opset() const { return store_.model().opsets.at(""); }

  /// The value as a tensor that calls read.
  at::Tensor tensor(const std::string& value, const FileNode& reader);
  /// Of this run, the known values that follow sizes: those of loops once for each time that they were made.
  std::map<std::string, std::vector<at::Tensor>> sized_values() const;
  /// Of this run, all values that are known before it, as they were made last.
  std::map<std::string, at::Tensor> known_values() const;
  /// Of a dry run, how each node was computed whose inputs were known, in order: nodes of loops once a step.
  const std::map<const FileNode*, std::vector<Evaluation>>& evaluations() const { return evaluations_; }
  /// What a node makes of these known values, beside a capture: in the place of forward().
  std::vector<at::Tensor> results_beside(const FileNode& node,
                                         const std::map<std::string, at::Tensor>& inputs);
  /// Null for a value that is not known before the run.
  const Slot* known(const std::string& value, const FileNode& reader);

 private:
  Slot& slot(const std::string& value, const FileNode& reader);
  void evaluate(const FileNode& node);
  void compute(const FileNode& node);
  void choose(const FileNode& node);
  void repeat(const FileNode& node);
  void scan(const FileNode& node);
  /// Refuses a node for which these numbers follow sizes; `expected` words it.
  void expect_the_same(const FileNode& node, const std::vector<int64_t>& numbers, const char* expected);
  /// Refuses a node whose number of steps follows sizes, and one by which all steps together are too many.
  void count_steps(const FileNode& node, int64_t steps);
  /// A value of one step as the next one reads it.
  Slot carried(const std::string& value, const FileNode& reader);
  static at::Tensor stacked(const FileNode& node, const std::vector<at::Tensor>& parts, int64_t dim);
  void measure(const FileNode& node);
  void note(const FileNode& node, const std::vector<at::Tensor>& results);
  bool all_known(const FileNode& node, bool& sized);
  std::vector<at::Tensor> results_of(const FileNode& node, bool known);
  at::Tensor made(Slot& slot, const FileNode& reader);
  /// Counts bytes before they are taken.
  void count(const FileNode& node, double bytes);

  void evaluate(const FileGraph& graph);
  /// Runs `work`, whose failures become those of the node.
  template <typename Work>
  auto guarded(const FileNode& node, const Work& work);
  /// "float [2, 3], int64 [2]", for messages.
  std::string inputs_of(const FileNode& node);

  friend class Call;
  Store& store_;
  bool training_, dry_;
  int depth_ = 0;
  size_t choices_ = 0, nodes_ = 0;  ///< of this run
  double bytes_ = 0;
  std::map<std::string, Slot> slots_;
  std::map<const FileNode*, std::vector<Evaluation>> evaluations_;
  std::map<std::string, std::vector<at::Tensor>> sized_;  ///< each time that they were made
};

/// A node while it is computed: its inputs, attributes and results.
class Call {
 public:
  /// How a node is computed.
  enum class As : uint8_t {
    calls,  ///< by calls that a capture records
    known   ///< beside the capture, from known values
  };
  Call(Run& run, const FileNode& node, As as)
      : run_(run), node_(node), as_(as), results_(node.outputs.size()) {}

  Run& run() const { return run_; }
  const FileNode& node() const { return node_; }
  const Analysis& analysis() const { return run_.store_.analysis(); }
  bool training() const { return run_.training(); }
  int64_t opset() const { return run_.opset(); }

  size_t inputs() const { return node_.inputs.size(); }
  bool has(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].empty(); }
  const std::string& name(size_t i) const;
  at::Tensor x(size_t i = 0);
  /// Sizes and type of an input, without asking for a tensor of the file.
  std::vector<int64_t> sizes(size_t i);
  at::ScalarType type(size_t i);
  /// None where the input is left out.
  std::optional<at::Tensor> optional(size_t i);
  /// Whether the numbers of an input are known before the run.
  bool is_known(size_t i);
  /// They; refuses an input that follows the inputs of the graph.
  std::vector<int64_t> ints(size_t i);
  int64_t integer(size_t i);
  double number(size_t i);
  at::Tensor known(size_t i);
  /// All numbers of an input, whole ones as int64, others as double.
  std::vector<at::Scalar> numbers(size_t i);
  /// An input of one element as a number in the arguments of a call: nothing where it is not known, or is
  /// no whole number and follows sizes.
  std::optional<at::Scalar> scalar(size_t i);

  int64_t attribute(std::string_view name, int64_t otherwise) const;
  double attribute(std::string_view name, double otherwise) const;
  std::string attribute(std::string_view name, const char* otherwise) const;
  std::vector<int64_t> attribute(std::string_view name, const std::vector<int64_t>& otherwise) const;
  /// A list of numbers; refuses a node without it.
  std::vector<float> floats(std::string_view name) const;
  bool has_attribute(std::string_view name) const { return node_.find(name) != nullptr; }
  /// Axes and the like, which later versions have as input `i`.
  std::optional<std::vector<int64_t>> list(std::string_view name, size_t i);
  /// A dimension of a tensor of this rank, counted from the front.
  int64_t dim(int64_t axis, int64_t rank) const;

  void set(at::Tensor result, size_t output = 0);
  /// For a node that is computed step by step: refuses a number of steps that follows sizes.
  void count_steps(int64_t steps) { run_.count_steps(node_, steps); }
  /// Refuses the node where these numbers follow sizes; `expected` words it.
  void expect_the_same(const std::vector<int64_t>& numbers, const char* expected) {
    run_.expect_the_same(node_, numbers, expected);
  }
  /// Whether a result is asked for.
  bool wants(size_t output) const { return output < node_.outputs.size() && !node_.outputs[output].empty(); }
  std::vector<at::Tensor>& results() { return results_; }

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail_file("exchange.import_onnx", node_.label(), ": ", parts...);
  }

 private:
  Run& run_;
  const FileNode& node_;
  As as_;
  std::vector<at::Tensor> results_;
};

/// The shortest decimal number that rounds to this float: 0.1 for 0.1F.
double decimal(float value);

}  // namespace ulp::exchange::onnx_import
