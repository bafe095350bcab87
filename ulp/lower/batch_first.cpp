#include "ulp/lower/batch_first.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/pointwise.h"
#include "ulp/lower/windowed_attention.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

namespace {

/// Where the batch is: dimension `dim` is `times` times the batch. `outer` of these stand before it, as S does in
/// [S * N, C] of [S, N, C]; the others stand behind it, as heads do in [N * heads, S, C].
struct BatchPlace {
  int64_t dim = 0, times = 1, outer = 1;
  bool is_first() const { return dim == 0 && times == 1; }
  bool operator==(const BatchPlace&) const = default;

  /// What another dimension becomes where the batch is first, and what is beside it second.
  int64_t moved(int64_t other) const { return other + (other < dim ? 1 : 0) + (times > 1 ? 1 : 0); }
};

/// Nothing for a value without the batch, or with it in several places. `outer` is not known here.
std::optional<BatchPlace> dimension_of_batch(const Value& value) {
  if (!value.meta) return std::nullopt;
  std::optional<BatchPlace> found;
  for (size_t d = 0; d < value.meta->sizes.size(); ++d) {
    const SizeExpr& size = value.meta->sizes[d];
    if (size.constant()) continue;
    if (found || size.denominator != 1 || size.offset != 0 || size.numerator < 1) return std::nullopt;
    found = BatchPlace{static_cast<int64_t>(d), size.numerator, 1};
  }
  return found;
}

int64_t rank_of(const Value& value) {
  return static_cast<int64_t>(value.meta->sizes.size());
}

bool changes_shape(const Node& node) {
  return is_any(node,
                {"aten::view", "aten::reshape", "aten::flatten", "aten::unflatten", "aten::_unsafe_view",
                 "aten::view_as", "aten::reshape_as", "aten::squeeze", "aten::unsqueeze"});
}

/// Elements of the dimensions before `dim`.
int64_t elements_before(const Value& value, int64_t dim) {
  int64_t count = 1;
  for (int64_t d = 0; d < dim; ++d) count *= value.meta->sizes[static_cast<size_t>(d)].offset;
  return count;
}

/// Where the batch is in the values of a graph.
class BatchPlaces {
 public:
  explicit BatchPlaces(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
      if (node->kind() != Node::Kind::call) continue;
      for (const auto& made : node->outputs()) set(*made, outer_of(*node, *made));
    }
  }

  std::optional<BatchPlace> of(const Value& value) const {
    std::optional<BatchPlace> place = dimension_of_batch(value);
    const auto known = outer_.find(&value);
    if (place && known != outer_.end()) place->outer = known->second;
    return place;
  }
  void set(const Value& value, int64_t outer) {
    if (outer > 1) outer_[&value] = outer;
  }

 private:
  /// A reshape keeps what stands before the batch; other ops keep the order inside a dimension.
  int64_t outer_of(const Node& node, const Value& made) const {
    const std::optional<BatchPlace> place = dimension_of_batch(made);
    if (!place || place->times == 1) return 1;
    for (const Value* read : node.reads()) {
      const std::optional<BatchPlace> from = of(*read);
      if (!from) continue;
      if (!changes_shape(node)) return from->times == place->times ? from->outer : 1;
      const int64_t before = elements_before(*read, from->dim) * from->outer;
      const int64_t apart = elements_before(made, place->dim);
      const bool whole =
          apart > 0 && before >= apart && before % apart == 0 && place->times % (before / apart) == 0;
      return whole ? before / apart : 1;
    }
    return 1;
  }

  std::unordered_map<const Value*, int64_t> outer_;  ///< where it is not 1
};

class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph), places_(graph) {}

  bool run() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::call && !node->args.empty() && !keeps_rows(*node)) visit(*node);
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
  /// Images and sequences that are rows of the batch, as the frames of films, stay so: a step takes each of
  /// them as an item. What follows them stays, too, so that it becomes part of their steps.
  bool keeps_rows(const Node& node) {
    if (node.outputs().empty() || is_attention(node)) return false;
    const std::optional<BatchPlace> place = places_.of(*node.outputs()[0]);
    if (!place || place->dim != 0 || place->times == 1 || place->outer > 1) return false;
    bool follows = false;
    for (const Value* read : node.reads()) {
      const std::optional<BatchPlace> own = places_.of(*read);
      if (own && *own != *place) return false;
      follows = follows || rows_.contains(read);
    }
    if (!follows && (is_moved(node) || is_move(node))) return false;
    for (const auto& made : node.outputs()) rows_.insert(made.get());
    return true;
  }

  /// Ops that visit() gives the batch first.
  static bool is_moved(const Node& node) {
    return is_pointwise(node) || is_any(node, {"aten::sum",
                                               "aten::mean",
                                               "aten::amax",
                                               "aten::amin",
                                               "aten::linalg_vector_norm",
                                               "aten::norm",
                                               "aten::softmax",
                                               "aten::log_softmax",
                                               "aten::cumsum",
                                               "aten::argmax",
                                               "aten::argmin",
                                               "aten::cat",
                                               "aten::embedding",
                                               "aten::linear",
                                               "aten::layer_norm",
                                               "aten::matmul",
                                               "aten::bmm",
                                               "aten::mm",
                                               "ulp::linear_dynamic",
                                               "ulp::quantize",
                                               "ulp::dequantize"});
  }

  void visit(Node& node) {
    if (is_move(node)) return;
    const size_t before = replaced_.size();
    if (node.outputs().size() == 1) visit_known(node);
    if (replaced_.size() == before) any_rows(node);
  }

  void visit_known(Node& node) {
    if (node.is("aten::prelu")) return;  // its slopes belong to dimension 1
    if (is_pointwise(node)) return pointwise(node);
    if (is_attention(node)) return attention(node);
    if (is_any(node, {"aten::sum.dim_IntList", "aten::mean.dim", "aten::amax", "aten::amin"}))
      return reduce(node, 1);
    if (is_any(node, {"aten::linalg_vector_norm", "aten::norm.ScalarOpt_dim"})) return reduce(node, 2);
    if (is_any(node, {"aten::softmax", "aten::log_softmax", "aten::cumsum", "aten::argmax", "aten::argmin"}))
      return along(node);
    if (is_any(node, {"aten::matmul", "aten::bmm", "aten::mm"})) return product(node);
    if (node.is("aten::cat")) return cat(node);
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
  std::optional<BatchPlace> moved_batch(const Argument& arg) const {
    if (!arg.is_value()) return std::nullopt;
    const std::optional<BatchPlace> place = places_.of(*arg.value);
    return place && !place->is_first() ? place : std::nullopt;
  }

  /// An op on rows of the `inner` last dimensions of one argument.
  void rows(Node& node, size_t index, int64_t inner) {
    const std::optional<BatchPlace> place = moved_batch(node.args[index]);
    if (!place || place->dim >= rank_of(*node.args[index].value) - inner) return;
    std::vector<Argument> args = node.args;
    args[index] = first(node, args[index].value, *place);
    replace(node, std::move(args), *place);
  }

  /// A mask for all items, whatever dimensions stand before its own.
  static bool is_for_all(const Argument& mask, int64_t rank) {
    if (!mask.is_value() || !mask.value->meta) return mask.is_none();
    const std::vector<SizeExpr>& sizes = mask.value->meta->sizes;
    const bool broadcasts = rank_of(*mask.value) < rank || sizes[0].offset == 1;
    return broadcasts && std::ranges::all_of(sizes, &SizeExpr::constant);
  }

  /// Heads or windows beside the batch get a dimension of their own.
  void attention(Node& node) {
    const std::optional<BatchPlace> place = moved_batch(node.args[0]);
    if (!place || place->dim != 0 || !is_for_all(node.arg("attn_mask"), rank_of(*node.output()))) return;
    std::vector<Argument> args = node.args;
    for (size_t i = 0; i < 3; ++i) {
      if (moved_batch(args[i]) != place) return;
      args[i] = first(node, args[i].value, *place);
    }
    replace(node, std::move(args), *place);
  }

  /// An op along one dimension, which is its argument 1 and may fall away.
  void along(Node& node) {
    const std::optional<BatchPlace> place = moved_batch(node.args[0]);
    const std::optional<int64_t> given = graph::integer(node.arg("dim"));
    if (!place || !given) return;
    const int64_t rank = rank_of(*node.args[0].value), dim = *given < 0 ? *given + rank : *given;
    if (dim == place->dim) return;
    std::vector<Argument> args = node.args;
    args[0] = first(node, node.args[0].value, *place);
    args[1] = c10::IValue(place->moved(dim));
    BatchPlace result = *place;
    if (dim < place->dim && has_arg(node, "keepdim") && !bool_arg(node, "keepdim")) --result.dim;
    replace(node, std::move(args), result);
  }

  /// Matrices: the batch is one of the dimensions before them, or is the rows of the first or the columns of
  /// the second, whose other side is a constant.
  void product(Node& node) {
    if (!node.args[0].is_value() || !node.args[1].is_value()) return;
    const std::optional<BatchPlace> place = places_.of(*node.output());
    const int64_t rank = rank_of(*node.output());
    if (!place || place->is_first()) return;
    if (place->dim < rank - 2) {
      const bool apart =
          place->dim == 0 && place->outer == 1;  // the step reads heads beside the batch where they lie
      return apart ? void() : pointwise(node, "aten::matmul");
    }
    const bool rows = place->dim == rank - 2;
    const Argument &side = node.args[rows ? 0 : 1], &other = node.args[rows ? 1 : 0];
    if (!other.value->meta || places_.of(*other.value) || moved_batch(side) != place) return;
    if (rank_of(*side.value) != rank || rank_of(*other.value) > rank) return;
    if (rows && rank_of(*other.value) == 2) return this->rows(node, 0, 1);
    const Argument one = c10::IValue(rows ? int64_t{-2} : int64_t{-1});
    const Argument vectors = called(node, "aten::unsqueeze", {first(node, side.value, *place), one});
    const Argument made = called(node, "aten::matmul",
                                 rows ? std::vector<Argument>{vectors, other} : std::vector{other, vectors});
    replaced_.push_back(&node);
    show(node, *node.output(), called(node, "aten::squeeze.dim", {made, one}).value, *place);
  }

  /// Rows of the batch are items to any other op, whatever their order: those before the batch go behind it.
  void any_rows(Node& node) {
    std::optional<BatchPlace> place;
    for (const Value* read : node.reads()) {
      const std::optional<BatchPlace> own = places_.of(*read);
      if (own && place.value_or(*own) != *own) return;
      if (own) place = own;
    }
    if (!place || place->dim != 0 || place->outer == 1) return;
    const auto is_rows = [&](const auto& made) {
      const std::optional<BatchPlace> own = places_.of(*made);
      return own && own->dim == 0 && own->times == place->times;
    };
    if (!std::ranges::all_of(node.outputs(), is_rows)) return;
    std::vector<Argument> args = node.args;
    for (Argument& arg : args) in_order(node, arg, *place);
    Node* made = graph_.call(node.target(), std::move(args), &node);
    made->scope = node.scope;
    replaced_.push_back(&node);
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      std::vector<SizeExpr> sizes = other_sizes(*node.outputs()[i], *place);
      sizes.insert(sizes.begin(), {SizeExpr{1, 1, 0}, SizeExpr{0, 1, place->times}});
      const Argument items = called(node, "aten::reshape", {made->outputs()[i].get(), sizes_argument(sizes)});
      show(node, *node.outputs()[i], items.value, *place);
    }
  }

  /// Values of such a place with the batch before all rows, in one dimension with them.
  void in_order(Node& node, Argument& arg, const BatchPlace& place) {
    for (Argument& item : arg.items) in_order(node, item, place);
    if (!arg.is_value() || !places_.of(*arg.value)) return;
    std::vector<SizeExpr> sizes = other_sizes(*arg.value, place);
    sizes.insert(sizes.begin(), SizeExpr{place.times, 1, 0});
    arg = called(node, "aten::reshape", {first(node, arg.value, place), sizes_argument(sizes)});
  }

  void cat(Node& node) {
    const std::optional<BatchPlace> place = places_.of(*node.output());
    const std::optional<int64_t> given = graph::integer(node.arg("dim"));
    if (!place || place->is_first() || !given) return;
    const int64_t rank = rank_of(*node.output()), dim = *given < 0 ? *given + rank : *given;
    std::vector<Argument> parts = node.args[0].items;
    if (dim == place->dim || std::ranges::any_of(parts, [&](const Argument& part) {
          return moved_batch(part) != place || rank_of(*part.value) != rank;
        }))
      return;
    for (Argument& part : parts) part = first(node, part.value, *place);
    replace(node, {Argument::list(std::move(parts)), c10::IValue(place->moved(dim))}, *place);
  }

  /// Argument `index` says over which dimensions.
  void reduce(Node& node, size_t index) {
    const std::optional<BatchPlace> place = moved_batch(node.args[0]);
    std::optional<std::vector<int64_t>> dims = graph::integers(node.args[index]);
    if (!place || !dims || dims->empty()) return;
    BatchPlace result = *place;
    for (int64_t& dim : *dims) {
      if (dim < 0) dim += rank_of(*node.args[0].value);
      if (dim == place->dim) return;
      if (dim < place->dim && !bool_arg(node, "keepdim")) --result.dim;
      dim = place->moved(dim);
    }
    std::vector<Argument> args = node.args;
    args[0] = first(node, node.args[0].value, *place);
    args[index] = c10::IValue(*dims);
    replace(node, std::move(args), result);
  }

  /// Operands broadcast against each other: each that has the dimension of the batch gets all dimensions first.
  void pointwise(Node& node, const char* target = nullptr) {
    const std::optional<BatchPlace> place = places_.of(*node.output());
    if (!place || place->is_first()) return;
    const int64_t rank = rank_of(*node.output());
    std::vector<Argument> args = node.args;
    for (Argument& arg : args) {
      if (!arg.is_value()) continue;
      if (!arg.value->meta) return;
      const int64_t ahead = rank - rank_of(*arg.value);
      if (place->dim < ahead) continue;
      const std::optional<BatchPlace> own = places_.of(*arg.value);
      const BatchPlace same{place->dim - ahead, place->times, place->outer};
      if (own && (own != same || (ahead > 0 && place->times > 1))) return;
      if (own && ahead == 0) {
        arg = first(node, arg.value, *place);
        continue;
      }
      for (int64_t d = 0; d < ahead; ++d)
        arg = called(node, "aten::unsqueeze", {arg, c10::IValue(int64_t{0})});
      if (place->dim > 0) arg = moved(node, arg, place->dim, 0);
      if (place->times > 1) arg = called(node, "aten::unsqueeze", {arg, c10::IValue(int64_t{0})});
    }
    replace(node, std::move(args), *place, target);
  }

  Argument called(Node& node, const char* target, std::vector<Argument> args) {
    Node* made = graph_.call(target, std::move(args), &node);
    made->scope = node.scope;
    return made->output();
  }

  Argument moved(Node& node, const Argument& x, int64_t from, int64_t to) {
    return called(node, "aten::movedim.int", {x, c10::IValue(from), c10::IValue(to)});
  }

  static Argument sizes_argument(const std::vector<SizeExpr>& sizes) {
    std::vector<Argument> items;
    for (const SizeExpr& size : sizes) {
      items.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
    }
    return Argument::list(std::move(items));
  }

  /// [outer * N * inner, ...] as [N, outer * inner, ...].
  Argument apart(Node& node, const Argument& x, const BatchPlace& place, std::vector<SizeExpr> sizes) {
    const auto count = [](int64_t size) { return SizeExpr{0, 1, size}; };
    const SizeExpr batch{1, 1, 0};
    Argument made = x;
    if (place.outer > 1) {
      sizes.insert(sizes.begin(), {count(place.outer), batch, count(place.times / place.outer)});
      made = moved(node, called(node, "aten::reshape", {made, sizes_argument(sizes)}), 1, 0);
      sizes.erase(sizes.begin(), sizes.begin() + 3);
    }
    sizes.insert(sizes.begin(), {batch, count(place.times)});
    return called(node, "aten::reshape", {made, sizes_argument(sizes)});
  }

  /// And back.
  Argument together(Node& node, const Argument& x, const BatchPlace& place, std::vector<SizeExpr> sizes) {
    const auto count = [](int64_t size) { return SizeExpr{0, 1, size}; };
    Argument made = x;
    if (place.outer > 1) {
      sizes.insert(sizes.begin(), {SizeExpr{1, 1, 0}, count(place.outer), count(place.times / place.outer)});
      made = moved(node, called(node, "aten::reshape", {made, sizes_argument(sizes)}), 0, 1);
      sizes.erase(sizes.begin(), sizes.begin() + 3);
    }
    sizes.insert(sizes.begin(), SizeExpr{place.times, 1, 0});
    return called(node, "aten::reshape", {made, sizes_argument(sizes)});
  }

  /// The sizes of a value without the dimension of the batch.
  static std::vector<SizeExpr> other_sizes(const Value& value, const BatchPlace& place) {
    std::vector<SizeExpr> sizes = value.meta->sizes;
    sizes.erase(sizes.begin() + place.dim);
    return sizes;
  }

  /// The value with the batch first.
  Argument first(Node& node, Value* value, const BatchPlace& place) {
    const auto known = inner_.find(value);
    if (known != inner_.end() && known->second.second == place) return known->second.first;
    const Argument turned = place.dim > 0 ? moved(node, value, place.dim, 0) : Argument(value);
    return place.times == 1 ? turned : apart(node, turned, place, other_sizes(*value, place));
  }

  /// The op with these arguments, whose result has the batch first, and for its readers a view that has it in its
  /// place.
  void replace(Node& node, std::vector<Argument> args, const BatchPlace& place,
               const char* target = nullptr) {
    replaced_.push_back(&node);
    Value* result = called(node, target != nullptr ? target : node.target().c_str(), std::move(args)).value;
    show(node, *node.output(), result, place);
  }

  /// The readers of the node's result read a view of `result`, which has the batch first.
  void show(Node& node, Value& output, Value* result, const BatchPlace& place) {
    Argument seen = result;
    if (place.times > 1) seen = together(node, seen, place, other_sizes(output, place));
    if (place.dim > 0) seen = moved(node, seen, 0, place.dim);
    seen.value->meta = output.meta;
    places_.set(*seen.value, place.outer);
    graph_.replace_uses(&output, seen.value);
    if (seen.value != result) inner_[seen.value] = {result, place};
  }

  Graph& graph_;
  BatchPlaces places_;
  std::map<const Value*, std::pair<Value*, BatchPlace>> inner_;  ///< a view of ours -> what it is a view of
  std::unordered_set<const Value*> rows_;                        ///< that stay rows of the batch
  std::vector<Node*> replaced_;
};

}  // namespace

bool put_batch_first(Graph& graph) {
  return Mover(graph).run();
}

}  // namespace ulp::lowering
