// The intermediate representation: a list of nodes in order of execution, values in single assignment, and
// the tensors and submodules that the nodes refer to by name. A Graph is plain data; a GraphModule runs one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <iosfwd>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/dynamic_dimension.h"
#include "ulp/base/export.h"
#include "ulp/base/polynomial.h"

namespace c10 {
struct FunctionSchema;
}
namespace ulp::libtorch {
class TensorModule;  // a submodule with one tensor in and one out that a node may call
}

namespace ulp::graph {

class Node;

/// An integer that may depend on the batch size and on the free dimensions: numerator * batch / denominator + offset +
/// rest, always whole.
struct SizeExpr {
  int64_t numerator = 0;
  int64_t denominator = 1;
  int64_t offset = 0;
  /// The terms in which a free dimension is. Its sizes are the batch and then those of Graph::free.
  Polynomial rest = {};
  bool constant() const { return numerator == 0 && rest.terms.empty(); }
  /// The value at these sizes, the batch first.
  int64_t at(std::span<const int64_t> sizes) const {
    return numerator * sizes[0] / denominator + offset + (rest.terms.empty() ? 0 : rest.at(sizes));
  }
  /// The same without free dimensions; throws ulp::Error where one is needed.
  int64_t at(int64_t batch) const { return at(std::span<const int64_t>(&batch, 1)); }
  bool operator==(const SizeExpr&) const = default;
};

/// A dimension that stays free beside the batch, such as the length of texts, in as many inputs as have it.
struct DynamicDimension : ulp::DynamicDimension {
  /// Where it is.
  struct InputDimension {
    size_t input = 0;
    int64_t dim = 0;
    bool operator==(const InputDimension&) const = default;
  };
  std::vector<InputDimension> places;
};

/// What was seen of a value at capture.
struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  std::vector<SizeExpr> sizes;
  bool channels_last = false;  ///< 4-d and dense in NHWC order
};

/// One tensor that a node produces.
struct Value {
  Node* producer = nullptr;
  int32_t index = 0;  ///< which output of the producer
  std::string name;   ///< unique in the graph
  std::optional<TensorMeta> meta;
};

/// One argument of a node.
struct ULP_API Argument {
  /// What an argument is.
  enum class Kind : uint8_t {
    literal,   ///< an IValue: None, numbers, strings, devices, dtypes, lists of numbers ...
    value,     ///< a Value of the graph
    batch,     ///< an integer that follows the batch size or a free dimension
    training,  ///< a bool that is the module's training flag (or its negation)
    by_mode,   ///< items[0] in eval mode, items[1] in train mode: an attention's dropout, a whole result
    dtype,     ///< the type of items[0], a value, which autocast may lower; `literal`: what it was at capture
    list,      ///< a list of arguments (tensor lists, integer lists with batch expressions in them)
    tuple      ///< only in the output node
  };
  Kind kind = Kind::literal;
  c10::IValue literal;
  Value* value = nullptr;
  SizeExpr batch;
  bool inverted = false;  ///< training: true for eval
  std::vector<Argument> items;

  Argument() = default;
  Argument(c10::IValue value) : literal(std::move(value)) {}   // NOLINT: implicit on purpose
  Argument(Value* value) : kind(Kind::value), value(value) {}  // NOLINT
  Argument(SizeExpr expr) : kind(Kind::batch), batch(expr) {}  // NOLINT
  static Argument training_flag(bool inverted = false);
  static Argument by_mode(c10::IValue eval, c10::IValue train);
  static Argument dtype_of(Value* value, c10::IValue at_capture);
  static Argument list(std::vector<Argument> items);
  static Argument tuple(std::vector<Argument> items);

  bool is_none() const { return kind == Kind::literal && literal.isNone(); }
  bool is_value() const { return kind == Kind::value; }
};

/// What autocast a model asked for around a call, whatever the caller's is.
struct AutocastSetting {
  at::DeviceType device = at::kCPU;
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;  ///< where it is enabled
  bool operator==(const AutocastSetting&) const = default;
};

/// One operation. Owned by its Graph; addresses are stable.
class ULP_API Node {
 public:
  /// What a node is.
  enum class Kind : uint8_t {
    input,      ///< the graph's i-th input
    attribute,  ///< a parameter, buffer or constant; target is its name in Graph::attributes()
    call,       ///< a dispatcher operator; target is "aten::conv2d" or "aten::add.Tensor"
    module,     ///< Graph::modules()[target]->forward(tensor)
    output      ///< the last node; its one argument is the result (a value, a list or a tuple)
  };

  Kind kind() const { return kind_; }
  const std::string& target() const { return target_; }
  /// The target without its overload: "aten::add".
  std::string_view op() const;
  bool is(std::string_view op_or_target) const;  ///< true if a call of this op (with or without overload)
  const std::string& name() const { return name_; }
  /// Path of the module whose forward made the call ("layer1.0.conv1"), where it could be told from its
  /// parameters.
  std::string scope;
  /// Runs in train mode only (updates of buffers such as num_batches_tracked).
  bool train_only = false;
  bool eval_only = false;  ///< runs in eval mode only
  /// Was an in-place op in the model: the result keeps the dtype of the first argument, and autocast leaves
  /// the arguments as they are, as it does for in-place ops.
  bool in_place = false;
  /// Ran under torch::NoGradGuard in the model, and so it does here.
  bool no_grad = false;
  /// Ran under an autocast guard of the model's own, and so it does here.
  std::optional<AutocastSetting> autocast = std::nullopt;

  std::vector<Argument> args;  ///< as many as the schema has, in its order
  /// One value for each result of the schema; a result that is a list of tensors gives one value an element.
  const std::vector<std::unique_ptr<Value>>& outputs() const { return outputs_; }
  Value* output(size_t i = 0) const { return outputs_.at(i).get(); }

  /// The operator's schema. Calls only.
  const c10::FunctionSchema& schema() const;
  /// True if it changes a tensor, a module or the random state besides producing its outputs: such nodes are
  /// never dead.
  bool has_effect() const;
  /// The argument with this schema name; throws ulp::Error when there is none.
  const Argument& arg(std::string_view name) const;
  Argument& arg(std::string_view name);
  /// Every value read by this node, in order, with repeats.
  std::vector<Value*> reads() const;

 private:
  friend class Graph;
  Kind kind_ = Kind::call;
  std::string target_, name_;
  const c10::FunctionSchema* schema_ = nullptr;
  std::vector<std::unique_ptr<Value>> outputs_;
};

/// A tensor the graph refers to by its qualified name.
struct Attribute {
  /// What a tensor is to the module.
  enum class Kind : uint8_t { parameter, buffer, constant };
  Kind kind = Kind::parameter;
  at::Tensor tensor;
};

/// A model as data: nodes in order of execution, the values between them, the tensors and modules they name.
class ULP_API Graph {
 public:
  /// Nodes in order of execution.
  using NodeList = std::list<std::unique_ptr<Node>>;

  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  /// A copy with nodes of its own; attributes and modules are shared.
  std::shared_ptr<Graph> clone() const;

  const NodeList& nodes() const { return nodes_; }
  /// Input values in order, then nothing else: an input that the model does not use is still listed.
  std::vector<Value*> inputs() const;
  Node* output_node() const;  ///< null until set_output()
  /// Dimension of each input that is the batch; -1 for an input without one.
  std::vector<int64_t> batch_dims;
  /// Which batch sizes the model computes.
  BatchRange batch_range;
  /// The dimensions that stay free beside the batch.
  std::vector<DynamicDimension> free;
  /// Puts sizes in the place of the free dimensions, one for each, and leaves none free. Throws ulp::Error for a size
  /// outside its dimension's range.
  void fix_free(std::span<const int64_t> sizes);

  // Building and editing. `before` is the insertion point; null means before the output node (or at the end).
  Value* add_input(const std::string& name, int64_t batch_dim = 0);
  /// The value of an attribute; makes its node on first use (attribute nodes come before all calls).
  Value* attribute(const std::string& name);
  /// Adds a call; missing trailing arguments take the schema's defaults. Throws ulp::Error for an unknown
  /// operator, too many arguments or a missing one. `name` is a wish; it is made unique.
  Node* call(const std::string& target, std::vector<Argument> args, Node* before = nullptr,
             const std::string& name = "");
  Node* call_module(const std::string& target, Value* input, Node* before = nullptr,
                    const std::string& name = "");
  void set_output(Argument result);
  /// Says how many tensors a call returns whose schema returns a list of them (chunk, split, unbind): call()
  /// assumes one.
  void set_output_count(Node* node, size_t count);
  /// Turns an existing call into another operator with other arguments, keeping its name, outputs and place.
  void retarget(Node* node, const std::string& target, std::vector<Argument> args);
  /// Removes a node whose outputs nobody reads; throws ulp::Error naming a reader otherwise.
  void erase(Node* node);
  void move_before(Node* node, Node* before);
  /// Every reader of `from` reads `to` instead (except `keep`, if given).
  void replace_uses(Value* from, Value* to, const Node* keep = nullptr);
  /// Nodes that read the value, in order of execution, each once.
  std::vector<Node*> users(const Value* value) const;
  /// Removes nodes without effect whose results nobody reads, then attributes nobody reads if `attributes`.
  /// Returns how many.
  int remove_dead(bool attributes = false);
  std::string unique_name(const std::string& wish) const;

  /// Tensors by name, in the model's own order.
  const std::vector<std::pair<std::string, Attribute>>& attributes() const { return attributes_; }
  Attribute* find_attribute(const std::string& name);
  const Attribute* find_attribute(const std::string& name) const;
  /// Adds or replaces.
  void set_attribute(const std::string& name, Attribute attribute);
  void erase_attribute(const std::string& name);
  /// The tensor that a value holds if it is an attribute's value, else undefined.
  at::Tensor attribute_tensor(const Value* value) const;

  std::map<std::string, std::shared_ptr<libtorch::TensorModule>>& modules() { return modules_; }
  const std::map<std::string, std::shared_ptr<libtorch::TensorModule>>& modules() const { return modules_; }

  /// Checks single assignment, order, users, arity against schemas, attribute and module names, one output.
  /// Throws ulp::Error naming the node.
  void verify() const;

 private:
  Node* insert(std::unique_ptr<Node> node, Node* before);
  NodeList nodes_;
  std::vector<std::pair<std::string, Attribute>> attributes_;
  std::map<std::string, std::shared_ptr<libtorch::TensorModule>> modules_;
};

/// A readable listing, one node a line: `%relu_1 : f32[N, 64, 14, 14] = aten::relu(%add_2)  # layer1.0`.
ULP_API std::ostream& operator<<(std::ostream& out, const Graph& graph);
/// The graph in Graphviz's dot language.
ULP_API std::string to_dot(const Graph& graph);

}  // namespace ulp::graph
