#include "ulp/quant/methods/rotate_residual.h"

#include <torch/utils.h>

#include <algorithm>
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
  std::string shift;    ///< a bias: the weight whose product with the norm's bias is added; may be empty
  auto operator<=>(const Turn&) const = default;
};

class Rotation {
 public:
  explicit Rotation(Graph& graph) : graph_(graph) {}

  void run(graph::PassReport& report) {
    find_stream();
    if (norms_.empty())
      fail(kRotateWhere, "expected norms that read the sum of an embedding and of layers, got none");
    find_matrix();
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
    std::string name;   ///< of the parameter; of one that is not there, a wish
    at::Tensor before;  ///< f64
  };

  [[noreturn]] static void refuse(const Node& node, const std::string& why) {
    fail(kRotateWhere, "expected a residual stream that can be rotated, got ", graph::describe(node), ", ",
         why);
  }

  void find_matrix() {
    const auto subtracts_mean = [](const Node* norm) { return norm->is("aten::layer_norm"); };
    q_ = rotation_matrix(width_, std::ranges::any_of(norms_, subtracts_mean));
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

  /// The first rows of a stored table, as embeddings of positions are.
  bool cuts_rows(const Node& node) const {
    if (!node.is("aten::narrow") && !node.is("aten::slice.Tensor")) return false;
    const at::Tensor table =
        node.args[0].is_value() ? graph_.attribute_tensor(node.args[0].value) : at::Tensor();
    const Argument& dim = node.arg("dim");
    return table.defined() && table.dim() == 2 && dim.literal.isInt() && dim.literal.toInt() == 0;
  }

  void check_producer(Node& node) {
    if (node.is("aten::embedding") || node.is("aten::linear") || cuts_rows(node)) {
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
    if ((node.is("aten::rms_norm") || node.is("aten::layer_norm")) && node.args[0].value == value) {
      if (!in_norms(&node)) norms_.push_back(&node);
    } else if (is_add(node) || is_scaling(node)) {
      join(node.output());
    } else if (node.is("aten::linear") && node.arg("input").value == value) {
      add_read(node, nullptr);
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
      const bool is_layer = node->is("aten::linear");
      Argument& argument = cuts_rows(*node) ? node->args[0] : node->arg("weight");
      const at::Tensor weight = stored(*node, argument);
      if (weight.dim() != 2 || weight.size(is_layer ? 0 : 1) != width_) refuse(*node, "of another width");
      Turn& turn = change_of(argument, *node, weight).turn;
      (is_layer ? turn.writes : turn.rows) = true;
      if (!is_layer || node->arg("bias").is_none()) continue;
      change_of(node->arg("bias"), *node, stored(*node, node->arg("bias"))).turn.rows = true;
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
      Turn& turn = change_of(layer->arg("weight"), *layer, weight).turn;
      turn.reads = true;
      if (norm == nullptr) continue;
      turn.norm = norm->name();
      if (norm->is("aten::layer_norm")) add_shift(*layer, *norm, weight);
    }
    read_ = static_cast<int64_t>(reads_.size());
  }

  /// What a layer norm's bias gives each row of the layer's result goes into the layer's bias.
  void add_shift(Node& layer, const Node& norm, const at::Tensor& weight) {
    if (norm.arg("bias").is_none()) return;
    Argument& bias = layer.arg("bias");
    const at::Tensor before = bias.is_none() ? at::zeros({weight.size(0)}, at::kDouble) : stored(layer, bias);
    Turn& turn = change_of(bias, layer, before).turn;
    turn.norm = norm.name();
    turn.shift = layer.arg("weight").value->producer->target();
    turn.rows =
        stream_.contains(layer.output());  // a bias that is not there yet, of a layer that writes, too
    shifts_[{turn.norm, turn.shift}] = weight.mv(stored(norm, norm.arg("bias")));
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
    if (!turn.shift.empty()) values = values + shifts_.at({turn.norm, turn.shift});
    if (turn.reads || turn.rows) values = values.matmul(q_);
    return turn.writes ? q_.t().matmul(values) : values;
  }

  Change& change_of(Argument& argument, const Node& node, const at::Tensor& before) {
    for (Change& one : changes_) {
      if (one.argument == &argument) return one;
    }
    std::string name = argument.is_value() ? argument.value->producer->target() : label_of_bias(node);
    return changes_.emplace_back(Change{&argument, {}, graph::label(node), std::move(name), before});
  }

  static std::string label_of_bias(const Node& node) {
    return (node.scope.empty() ? node.name() : node.scope) + ".bias";
  }

  /// A parameter that nothing else reads keeps its name; one that is read in several ways gets more of them.
  void write() {
    std::map<std::string, std::set<Turn>> ways;
    std::map<std::string, size_t> readers;
    for (const Change& change : changes_) {
      ways[change.name].insert(change.turn);
      ++readers[change.name];
    }
    std::map<std::pair<std::string, Turn>, Value*> made;
    std::vector<Value*> results;
    for (const Change& change : changes_) {
      const Argument& argument = *change.argument;
      Value* alone = nullptr;
      // One that is not there belongs to its layer alone, though others may have the same wish.
      Value*& value = argument.is_value() ? made[{change.name, change.turn}] : alone;
      if (value == nullptr) {
        const bool keeps = argument.is_value() && *ways[change.name].rbegin() == change.turn &&
                           graph_.users(argument.value).size() <= readers[change.name];
        value =
            store(keeps ? change.name : fresh(change.name), turned(change.turn, change.before), change.owner);
      }
      results.push_back(value);
    }
    for (size_t i = 0; i < changes_.size(); ++i) *changes_[i].argument = results[i];
    for (Node* norm : norms_) write_norm(*norm);
  }

  void write_norm(Node& norm) {
    Argument& weight = norm.arg("weight");
    if (!weight.is_none()) {
      const std::string name = fresh(norm.scope.empty() ? norm.name() : norm.scope + ".weight");
      weight = store(name, at::ones({width_}, at::kDouble), graph::label(norm));
    }
    if (norm.is("aten::layer_norm")) norm.arg("bias") = c10::IValue();
  }

  std::string fresh(const std::string& name) const {
    std::string wish = name + ".rotated";
    while (graph_.find_attribute(wish) != nullptr) wish += '_';
    return wish;
  }

  Value* store(const std::string& name, const at::Tensor& values, const std::string& owner) {
    const at::Tensor rounded = values.to(at::kFloat).contiguous();
    if (!at::isfinite(rounded).all().item<bool>())
      fail(kRotateWhere, "expected rotated weights of ", owner,
           " in the range of float32, got infinite ones");
    graph_.set_attribute(name, {Attribute::Kind::parameter, rounded});
    Value* value = graph_.attribute(name);
    value->meta = graph::TensorMeta{};
    for (const int64_t size : rounded.sizes()) value->meta->sizes.push_back({.offset = size});
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
  /// By norm and weight: W b.
  std::map<std::pair<std::string, std::string>, at::Tensor> shifts_;
  std::vector<Change> changes_;
};

}  // namespace

at::Tensor rotation_matrix(int64_t width, bool keeps_mean) {
  if (width < 1) fail(kRotateWhere, "expected a width of at least 1, got ", width);
  int64_t odd = width;
  while (odd % 2 == 0) odd /= 2;
  const at::Tensor waves = at::kron(hadamard(width / odd), cosines(odd));
  if (!keeps_mean) return waves * signs(width);
  // The first wave is the mean; the others are rotated among each other.
  at::Tensor among = at::eye(width, at::kDouble);
  if (width > 1) among.narrow(0, 1, width - 1).narrow(1, 1, width - 1).copy_(rotation_matrix(width - 1));
  return waves.t().matmul(among).matmul(waves);
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
