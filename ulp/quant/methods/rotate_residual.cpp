#include "ulp/quant/methods/rotate_residual.h"

#include <torch/utils.h>

#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/passes/products_as_linear.h"
#include "ulp/quant/static/inference_form.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kRotateWhere = "quant.rotate_residual";

at::Tensor hadamard(int64_t size) {
  at::Tensor matrix = at::ones({1, 1}, at::kDouble);
  for (int64_t n = 1; n < size; n *= 2)
    matrix = at::cat({at::cat({matrix, matrix}, 1), at::cat({matrix, -matrix}, 1)}, 0);
  return matrix / std::sqrt(static_cast<double>(size));
}

/// The orthonormal cosine transform (DCT-II).
at::Tensor cosines(int64_t size) {
  const at::Tensor k = at::arange(size, at::kDouble).unsqueeze(1), j = at::arange(size, at::kDouble);
  const double step = std::numbers::pi / static_cast<double>(size);
  at::Tensor matrix = at::cos(k * (j + 0.5) * step) * std::sqrt(2.0 / static_cast<double>(size));
  matrix[0].mul_(std::sqrt(0.5));
  return matrix;
}

/// Signs that follow from the place alone.
at::Tensor signs(int64_t size) {
  at::Tensor made = at::ones({size}, at::kDouble);
  uint64_t state = 0x9e3779b97f4a7c15U;
  for (int64_t i = 0; i < size; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    if ((state >> 63) != 0) made[i] = -1.0;
  }
  return made;
}

/// What is done to a parameter. A layer between two norms reads the stream and writes into it.
struct Turn {
  bool rows = false;    ///< of a table, or a bias: x Q
  bool writes = false;  ///< the weight of a layer that writes into the stream: Q^T W
  bool reads = false;   ///< the weight of a layer that reads it: W diag(norm) Q
  std::string norm;     ///< whose weight goes into it; may be empty
  auto operator<=>(const Turn&) const = default;
};

class Rotation {
 public:
  explicit Rotation(Graph& graph) : graph_(graph) {}

  void run(graph::PassReport& report) {
    find_stream();
    if (norms_.empty())
      fail(kRotateWhere, "expected RMS norms that read the sum of an embedding and of layers, got none");
    q_ = rotation_matrix(width_);
    plan_writers();
    plan_readers();
    write();
    graph_.remove_dead(/*attributes=*/true);
    report.changes.push_back("the residual stream of " + std::to_string(width_) +
                             " channels is rotated: " + std::to_string(written_) +
                             " parameters that write it, " + std::to_string(read_) +
                             " weights that read it, " + std::to_string(norms_.size()) + " norms");
  }

 private:
  struct Change {
    Argument* argument;
    Turn turn;
    std::string owner;
  };

  [[noreturn]] static void refuse(const Node& node, const std::string& why) {
    fail(kRotateWhere, "expected a residual stream that can be rotated, got ", graph::describe(node), ", ",
         why);
  }

  void find_stream() {
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::embedding") && width_ == 0) {
        const at::Tensor table = graph_.attribute_tensor(node->arg("weight").value);
        if (!table.defined() || table.dim() != 2) refuse(*node, "whose table is computed");
        width_ = table.size(1);
        join(node->output());
      }
    }
    if (width_ == 0) fail(kRotateWhere, "expected a model with an embedding, got none");
    while (!open_.empty()) {
      Value* value = open_.back();
      open_.pop_back();
      check_producer(*value->producer);
      for (Node* reader : graph_.users(value)) check_reader(*reader, value);
    }
  }

  void join(Value* value) {
    if (stream_.insert(value).second) open_.push_back(value);
  }

  static bool is_number(const Argument& argument) { return !argument.is_value() && !argument.is_none(); }
  /// A number, or a stored tensor with one.
  bool is_scalar(const Argument& argument) const {
    if (!argument.is_value()) return is_number(argument);
    const at::Tensor tensor = graph_.attribute_tensor(argument.value);
    return tensor.defined() && tensor.numel() == 1;
  }
  double number(const Argument& scalar) const {
    return scalar.is_value() ? graph_.attribute_tensor(scalar.value).item<double>()
                             : scalar.literal.toScalar().toDouble();
  }
  static bool is_one(const Argument& argument) {
    return argument.literal.isScalar() && argument.literal.toScalar().toDouble() == 1;
  }
  static bool is_add(const Node& node) { return node.is("aten::add.Tensor"); }
  bool is_scaling(const Node& node) const {
    return (node.is("aten::mul.Tensor") || node.is("aten::mul.Scalar")) &&
           (is_scalar(node.args[0]) != is_scalar(node.args[1]));
  }
  static bool reads_sizes(const Node& node) {
    return node.is("aten::sym_size.int") || node.is("aten::size.int") || node.is("aten::size");
  }

  void check_producer(Node& node) {
    if (node.is("aten::embedding") || node.is("aten::linear")) {
      writers_.push_back(&node);
    } else if (node.kind() == Node::Kind::attribute) {
      refuse(node, "a stored tensor that is added to the stream");
    } else if (is_add(node)) {
      for (const size_t side : {0, 1}) {
        if (!node.args[side].is_value() || is_scalar(node.args[side]))
          refuse(node, "which adds one number to all channels");
        join(node.args[side].value);
      }
    } else if (is_scaling(node)) {
      join(node.args[is_scalar(node.args[0]) ? 1 : 0].value);
    } else {
      const bool is_norm = node.is("aten::rms_norm") || node.is("aten::layer_norm");
      refuse(node, is_norm ? "a norm between a layer and the stream" : "whose result is added to the stream");
    }
  }

  void check_reader(Node& node, const Value* value) {
    if (node.is("aten::rms_norm") && node.args[0].value == value) {
      if (!in_norms(&node)) norms_.push_back(&node);
    } else if (is_add(node) || is_scaling(node)) {
      join(node.output());
    } else if (node.is("aten::linear") && node.arg("input").value == value) {
      add_read(node, nullptr);
    } else if (node.is("aten::layer_norm")) {
      refuse(node, "a layer norm, which subtracts a mean");
    } else if (!reads_sizes(node)) {
      refuse(node, "which reads the stream");
    }
  }

  bool in_norms(const Node* node) const {
    for (const Node* one : norms_) {
      if (one == node) return true;
    }
    return false;
  }

  /// A stored f32 parameter.
  at::Tensor stored(const Node& node, const Argument& argument) const {
    const at::Tensor tensor = argument.is_value() ? graph_.attribute_tensor(argument.value) : at::Tensor();
    if (!tensor.defined())
      refuse(node, "whose weight is computed" +
                       (argument.is_value() ? " by " + graph::describe(*argument.value->producer) : ""));
    if (tensor.scalar_type() != at::kFloat) refuse(node, "whose weight is not float32");
    if (!at::isfinite(tensor).all().item<bool>())
      refuse(node, "whose weight '" + argument.value->producer->target() + "' has NaN or infinite values");
    return tensor.detach().to(at::kDouble);
  }

  void plan_writers() {
    for (Node* node : writers_) {
      const at::Tensor weight = stored(*node, node->arg("weight"));
      const bool is_table = node->is("aten::embedding");
      if (weight.dim() != 2 || weight.size(is_table ? 1 : 0) != width_) refuse(*node, "of another width");
      Turn& turn = change_of(node->arg("weight"), *node).turn;
      (is_table ? turn.rows : turn.writes) = true;
      if (is_table || node->arg("bias").is_none()) continue;
      stored(*node, node->arg("bias"));
      change_of(node->arg("bias"), *node).turn.rows = true;
    }
    written_ = static_cast<int64_t>(changes_.size());
  }

  void add_read(Node& layer, Node* norm) { reads_.emplace_back(&layer, norm); }

  void plan_readers() {
    for (Node* norm : norms_) {
      norm_weights_[norm] = norm_weight(*norm);
      for (Node* reader : graph_.users(norm->output())) {
        if (!reader->is("aten::linear") || reader->arg("input").value != norm->output())
          refuse(*reader, "which reads the norm " + graph::label(*norm));
        add_read(*reader, norm);
      }
    }
    for (const auto& [layer, norm] : reads_) {
      const at::Tensor weight = stored(*layer, layer->arg("weight"));
      if (weight.dim() != 2 || weight.size(1) != width_) refuse(*layer, "of another width");
      Turn& turn = change_of(layer->arg("weight"), *layer).turn;
      turn.reads = true;
      if (norm != nullptr) turn.norm = norm->name();
    }
    read_ = static_cast<int64_t>(reads_.size());
  }

  /// Over the last dimension alone; perhaps 1 + weight. f64 [width].
  at::Tensor norm_weight(const Node& norm) const {
    const Argument& shape = norm.arg("normalized_shape");
    const bool is_last = shape.kind == Argument::Kind::list
                             ? shape.items.size() == 1
                             : shape.literal.isIntList() && shape.literal.toIntVector().size() == 1;
    if (!is_last) refuse(norm, "a norm over several dimensions");
    const Argument& argument = norm.arg("weight");
    if (argument.is_none()) return at::ones({width_}, at::kDouble);
    at::Tensor weight;
    const Node* maker = argument.is_value() ? argument.value->producer : nullptr;
    if (maker != nullptr && (is_add(*maker) || maker->is("aten::add.Scalar")) && is_scalar(maker->args[1])) {
      if (!is_one(maker->args[2])) refuse(*maker, "a sum with a factor");
      weight = stored(norm, maker->args[0]) + number(maker->args[1]);
    } else {
      weight = stored(norm, argument);
    }
    if (weight.dim() != 1 || weight.size(0) != width_) refuse(norm, "of another width");
    return weight;
  }

  at::Tensor turned(const Turn& turn, at::Tensor values) const {
    if (turn.reads) {
      for (const auto& [norm, weight] : norm_weights_) {
        if (norm->name() == turn.norm) values = values * weight;
      }
    }
    if (turn.reads || turn.rows) values = values.matmul(q_);
    return turn.writes ? q_.t().matmul(values) : values;
  }

  Change& change_of(Argument& argument, const Node& node) {
    for (Change& one : changes_) {
      if (one.argument == &argument) return one;
    }
    return changes_.emplace_back(Change{&argument, {}, graph::label(node)});
  }

  /// A parameter that nothing else reads keeps its name; one that is read in several ways gets more of them.
  void write() {
    std::map<std::string, at::Tensor> before;
    std::map<std::string, std::set<Turn>> ways;
    std::map<std::string, size_t> readers;
    for (const Change& change : changes_) {
      const Value* value = change.argument->value;
      const std::string& name = value->producer->target();
      before[name] = graph_.attribute_tensor(value).detach().to(at::kDouble);
      ways[name].insert(change.turn);
      ++readers[name];
    }
    std::map<std::pair<std::string, Turn>, Value*> made;
    std::vector<Value*> results;
    for (const Change& change : changes_) {
      const std::string name = change.argument->value->producer->target();
      Value*& value = made[{name, change.turn}];
      if (value == nullptr) {
        const bool keeps = *ways[name].rbegin() == change.turn &&
                           graph_.users(change.argument->value).size() <= readers[name];
        value = store(keeps ? name : fresh(name), *change.argument, turned(change.turn, before[name]),
                      change.owner);
      }
      results.push_back(value);
    }
    for (size_t i = 0; i < changes_.size(); ++i) *changes_[i].argument = results[i];
    for (Node* norm : norms_) {
      Argument& weight = norm->arg("weight");
      if (weight.is_none()) continue;
      const std::string name = fresh(norm->scope.empty() ? norm->name() : norm->scope + ".weight");
      weight = store(name, weight, at::ones({width_}, at::kDouble), graph::label(*norm));
    }
  }

  std::string fresh(const std::string& name) const {
    std::string wish = name + ".rotated";
    while (graph_.find_attribute(wish) != nullptr) wish += '_';
    return wish;
  }

  Value* store(const std::string& name, const Argument& like, const at::Tensor& values,
               const std::string& owner) {
    const at::Tensor rounded = values.to(at::kFloat).contiguous();
    if (!at::isfinite(rounded).all().item<bool>())
      fail(kRotateWhere, "expected rotated weights of ", owner,
           " in the range of float32, got infinite ones");
    graph_.set_attribute(name, {Attribute::Kind::parameter, rounded});
    Value* value = graph_.attribute(name);
    value->meta = like.value->meta;
    return value;
  }

  Graph& graph_;
  int64_t width_ = 0, written_ = 0, read_ = 0;
  at::Tensor q_;
  std::unordered_set<const Value*> stream_;
  std::vector<Value*> open_;
  std::vector<Node*> writers_, norms_;          ///< in the order of their discovery
  std::vector<std::pair<Node*, Node*>> reads_;  ///< a layer, and the norm it reads; null: the stream itself
  std::unordered_map<const Node*, at::Tensor> norm_weights_;
  std::vector<Change> changes_;
};

}  // namespace

at::Tensor rotation_matrix(int64_t width) {
  if (width < 1) fail(kRotateWhere, "expected a width of at least 1, got ", width);
  int64_t odd = width;
  while (odd % 2 == 0) odd /= 2;
  return at::kron(hadamard(width / odd), cosines(odd)) * signs(width);
}

std::shared_ptr<graph::GraphModule> rotate_residual(const std::shared_ptr<graph::GraphModule>& captured,
                                                    graph::PassReport* report) {
  if (!captured) fail(kRotateWhere, "expected a captured model, got null");
  const at::NoGradGuard no_grad;
  graph::PassReport own{.pass = "rotate_residual"};
  const std::shared_ptr<Graph> graph = inference_graph(captured->graph());
  graph::products_as_linear(*graph);
  graph::store_transposes(*graph);
  Rotation(*graph).run(own);
  auto module = std::make_shared<graph::GraphModule>(graph);
  module->eval();
  if (report != nullptr) *report = std::move(own);
  return module;
}

}  // namespace ulp::quant
