#include "ulp/lower/batch_first.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/pointwise.h"

namespace ulp::lowering {

using graph::Argument;
using graph::BatchExpr;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

/// Where the batch is: dimension `dim` is that many times the batch.
struct Place {
  int64_t dim = 0, times = 1;
  bool is_first() const { return dim == 0 && times == 1; }
  bool operator==(const Place&) const = default;

  /// What another dimension becomes where the batch is first, and what is beside it second.
  int64_t moved(int64_t other) const { return other + (other < dim ? 1 : 0) + (times > 1 ? 1 : 0); }
};

/// Nothing for a value without the batch, or with it in several places.
std::optional<Place> place_of(const Value& value) {
  if (!value.meta) return std::nullopt;
  std::optional<Place> found;
  for (size_t d = 0; d < value.meta->sizes.size(); ++d) {
    const BatchExpr& size = value.meta->sizes[d];
    if (size.constant()) continue;
    if (found || size.denominator != 1 || size.offset != 0 || size.numerator < 1) return std::nullopt;
    found = Place{static_cast<int64_t>(d), size.numerator};
  }
  return found;
}

int64_t rank_of(const Value& value) {
  return static_cast<int64_t>(value.meta->sizes.size());
}

bool is_any(const Node& node, std::initializer_list<const char*> ops) {
  return std::ranges::any_of(ops, [&](const char* op) { return node.is(op); });
}

class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph) {}

  bool run() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::call && node->outputs().size() == 1 && !node->args.empty())
        visit(*node);
    }
    if (replaced_.empty()) return false;
    for (Node* node : replaced_) graph_.erase(node);
    // What was dense may be a view now.
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::call && node->target() == "aten::view")
        graph_.retarget(node.get(), "aten::reshape", node->args);
    }
    return true;
  }

 private:
  void visit(Node& node) {
    if (node.is("aten::prelu")) return;  // its slopes belong to dimension 1
    if (is_pointwise(node)) return pointwise(node);
    if (node.is("aten::scaled_dot_product_attention")) return attention(node);
    if (is_any(node, {"aten::sum.dim_IntList", "aten::mean.dim", "aten::amax", "aten::amin"}))
      return reduce(node);
    if (is_any(node, {"aten::softmax", "aten::log_softmax"})) return softmax(node);
    if (node.is("aten::embedding")) return rows(node, 1, 0);
    if (is_any(node, {"aten::linear", "ulp::linear_dynamic"})) return rows(node, 0, 1);
    if (node.is("aten::layer_norm")) {
      const auto shape = graph::integers(node.arg("normalized_shape"));
      if (shape) rows(node, 0, static_cast<int64_t>(shape->size()));
    }
    if (is_any(node, {"ulp::quantize", "ulp::dequantize"})) {
      const at::Tensor scale =
          node.arg("scale").is_value() ? graph_.attribute_tensor(node.arg("scale").value) : at::Tensor();
      if (scale.defined() && scale.numel() == 1) rows(node, 0, 0);
    }
  }

  /// The place of the batch in an argument that has it elsewhere than first.
  std::optional<Place> moved_batch(const Argument& arg) const {
    if (!arg.is_value()) return std::nullopt;
    const std::optional<Place> place = place_of(*arg.value);
    return place && !place->is_first() ? place : std::nullopt;
  }

  /// An op on rows of the `inner` last dimensions of one argument.
  void rows(Node& node, size_t index, int64_t inner) {
    const std::optional<Place> place = moved_batch(node.args[index]);
    if (!place || place->dim >= rank_of(*node.args[index].value) - inner) return;
    std::vector<Argument> args = node.args;
    args[index] = first(node, args[index].value, *place);
    replace(node, std::move(args), *place);
  }

  /// Heads beside the batch get a dimension of their own.
  void attention(Node& node) {
    const std::optional<Place> place = moved_batch(node.args[0]);
    const bool heads = place && place->dim == 0 && place->times > 1 && rank_of(*node.output()) == 3;
    if (!heads || !node.arg("attn_mask").is_none()) return;
    std::vector<Argument> args = node.args;
    for (size_t i = 0; i < 3; ++i) {
      if (moved_batch(args[i]) != place) return;
      args[i] = first(node, args[i].value, *place);
    }
    replace(node, std::move(args), *place);
  }

  void softmax(Node& node) {
    const std::optional<Place> place = moved_batch(node.args[0]);
    const std::optional<int64_t> given = graph::integer(node.arg("dim"));
    if (!place || !given) return;
    const int64_t rank = rank_of(*node.args[0].value), dim = *given < 0 ? *given + rank : *given;
    if (dim == place->dim) return;
    std::vector<Argument> args = node.args;
    args[0] = first(node, node.args[0].value, *place);
    args[1] = c10::IValue(place->moved(dim));
    replace(node, std::move(args), *place);
  }

  void reduce(Node& node) {
    const std::optional<Place> place = moved_batch(node.args[0]);
    std::optional<std::vector<int64_t>> dims = graph::integers(node.args[1]);
    if (!place || place->times > 1 || !dims || dims->empty()) return;
    Place result = *place;
    for (int64_t& dim : *dims) {
      if (dim < 0) dim += rank_of(*node.args[0].value);
      if (dim == place->dim) return;
      if (dim < place->dim && !bool_arg(node, "keepdim")) --result.dim;
      dim = place->moved(dim);
    }
    std::vector<Argument> args = node.args;
    args[0] = first(node, node.args[0].value, *place);
    args[1] = c10::IValue(*dims);
    replace(node, std::move(args), result);
  }

  /// Operands broadcast against each other: each that has the dimension of the batch gets all dimensions first.
  void pointwise(Node& node) {
    const std::optional<Place> place = place_of(*node.output());
    if (!place || place->is_first()) return;
    const int64_t rank = rank_of(*node.output());
    std::vector<Argument> args = node.args;
    for (Argument& arg : args) {
      if (!arg.is_value()) continue;
      if (!arg.value->meta) return;
      const int64_t ahead = rank - rank_of(*arg.value);
      if (place->dim < ahead) continue;
      const std::optional<Place> own = place_of(*arg.value);
      if (own && (own != Place{place->dim - ahead, place->times} || (ahead > 0 && place->times > 1))) return;
      if (own && ahead == 0) {
        arg = first(node, arg.value, *place);
        continue;
      }
      for (int64_t d = 0; d < ahead; ++d)
        arg = called(node, "aten::unsqueeze", {arg, c10::IValue(int64_t{0})});
      if (place->dim > 0) arg = moved(node, arg, place->dim, 0);
      if (place->times > 1) arg = called(node, "aten::unsqueeze", {arg, c10::IValue(int64_t{0})});
    }
    replace(node, std::move(args), *place);
  }

  Argument called(Node& node, const char* target, std::vector<Argument> args) {
    Node* made = graph_.call(target, std::move(args), &node);
    made->scope = node.scope;
    return made->output();
  }

  Argument moved(Node& node, const Argument& x, int64_t from, int64_t to) {
    return called(node, "aten::movedim.int", {x, c10::IValue(from), c10::IValue(to)});
  }

  static Argument sizes_argument(const std::vector<BatchExpr>& sizes) {
    std::vector<Argument> items;
    for (const BatchExpr& size : sizes) {
      items.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
    }
    return Argument::list(std::move(items));
  }

  /// The value with the batch first.
  Argument first(Node& node, Value* value, const Place& place) {
    const auto known = inner_.find(value);
    if (known != inner_.end() && known->second.second == place) return known->second.first;
    const Argument turned = place.dim > 0 ? moved(node, value, place.dim, 0) : Argument(value);
    if (place.times == 1) return turned;
    std::vector<BatchExpr> sizes = value->meta->sizes;
    sizes.erase(sizes.begin() + place.dim);
    sizes.insert(sizes.begin(), {BatchExpr{1, 1, 0}, BatchExpr{0, 1, place.times}});
    return called(node, "aten::reshape", {turned, sizes_argument(sizes)});
  }

  /// The op with these arguments, whose result has the batch first, and for its readers a view that has it in its
  /// place.
  void replace(Node& node, std::vector<Argument> args, const Place& place) {
    replaced_.push_back(&node);
    Value* result = called(node, node.target().c_str(), std::move(args)).value;
    Argument seen = result;
    if (place.times > 1) {
      std::vector<BatchExpr> sizes = node.output()->meta->sizes;
      std::rotate(sizes.begin(), sizes.begin() + place.dim, sizes.begin() + place.dim + 1);
      seen = called(node, "aten::reshape", {seen, sizes_argument(sizes)});
    }
    if (place.dim > 0) seen = moved(node, seen, 0, place.dim);
    seen.value->meta = node.output()->meta;
    graph_.replace_uses(node.output(), seen.value);
    if (seen.value != result) inner_[seen.value] = {result, place};
  }

  Graph& graph_;
  std::map<const Value*, std::pair<Value*, Place>> inner_;  ///< a view of ours -> what it is a view of
  std::vector<Node*> replaced_;
};

}  // namespace

bool put_batch_first(Graph& graph) {
  return Mover(graph).run();
}

}  // namespace ulp::lowering
