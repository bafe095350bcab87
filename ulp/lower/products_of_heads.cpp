#include "ulp/lower/products_of_heads.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/strided_view.h"

namespace ulp::lowering {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// A value of three or four dimensions, one of them the batch by itself, as a view of itself; nothing for
/// another.
std::optional<StridedView> view_of_itself(const Value& value) {
  const size_t rank = value.meta ? value.meta->sizes.size() : 0;
  if (rank != 3 && rank != 4) return std::nullopt;
  StridedView view{.tensor = 0, .offset = 0, .dims = std::vector<std::vector<Piece>>(rank)};
  int64_t stride = 1, batches = 0;
  for (size_t d = rank; d-- > 0;) {
    const SizeExpr& size = value.meta->sizes[d];
    if (size == SizeExpr{1, 1, 0}) {
      view.dims[d] = {{runtime::kBatch, 0}};
      ++batches;
      continue;
    }
    if (!size.constant() || size.offset < 1) return std::nullopt;
    if (size.offset > 1) view.dims[d] = {{size.offset, stride}};
    stride *= size.offset;
  }
  return batches == 1 ? std::optional(view) : std::nullopt;
}

/// The views between a value and what it is a view of, the last one first.
std::vector<const Node*> views_behind(const Value* value) {
  std::vector<const Node*> chain;
  while (value->producer->kind() == Node::Kind::call &&
         (is_move(*value->producer) || is_identity(*value->producer)) &&
         value->producer->outputs().size() == 1 && value->producer->args[0].is_value()) {
    chain.push_back(value->producer);
    value = value->producer->args[0].value;
  }
  return chain;
}

std::optional<StridedView> through(const Node& node, const StridedView& view) {
  return is_identity(node) && !is_move(node) ? std::optional(view) : view_through(node, view);
}

/// Which dimensions of `whole` each dimension of a view of it is, in order; nothing where one is a part.
std::optional<std::vector<std::vector<size_t>>> dims_of(const StridedView& view, const StridedView& whole) {
  if (view.offset != 0) return std::nullopt;
  std::vector<std::vector<size_t>> found;
  size_t count = 0, all = 0;
  for (const std::vector<Piece>& own : whole.dims) all += own.size();
  for (const std::vector<Piece>& pieces : view.dims) {
    std::vector<size_t>& dims = found.emplace_back();
    for (size_t p = 0; p < pieces.size();) {
      // Neighbours in memory may be one piece.
      int64_t left = pieces[p].size;
      const int64_t last = pieces[p].stride;
      std::vector<size_t> inner;
      for (int64_t stride = last; left != 1;) {
        const auto at = std::ranges::find_if(whole.dims, [&](const std::vector<Piece>& own) {
          return own.size() == 1 && own[0].stride == stride && own[0].is_batch() == (left == runtime::kBatch);
        });
        if (at == whole.dims.end()) return std::nullopt;
        const Piece& piece = (*at)[0];
        inner.insert(inner.begin(), static_cast<size_t>(at - whole.dims.begin()));
        if (piece.is_batch()) break;
        if (left % piece.size != 0) return std::nullopt;
        left /= piece.size;
        stride *= piece.size;
      }
      dims.insert(dims.end(), inner.begin(), inner.end());
      count += inner.size();
      ++p;
    }
  }
  return count == all ? std::optional(found) : std::nullopt;
}

/// A side of a product: a value and the order of its dimensions, [N, heads, rows, columns] or [N, rows,
/// columns].
struct ProductSide {
  Value* value = nullptr;
  std::vector<int64_t> order;
};

/// `matrices` [groups, rows, columns] as a view of a value of this rank, [N, heads, ...] or [N, ...] in some
/// order.
std::optional<ProductSide> product_side_of(Value* matrices, size_t rank) {
  const std::vector<const Node*> chain = views_behind(matrices);
  for (size_t from = chain.size(); from-- > 0;) {
    Value* base = chain[from]->args[0].value;
    if (!base->meta || base->meta->sizes.size() != rank) continue;
    const std::optional<StridedView> whole = view_of_itself(*base);
    std::optional<StridedView> view = whole;
    for (size_t i = from + 1; i-- > 0 && view;) view = through(*chain[i], *view);
    if (!view || view->dims.size() != 3) continue;
    const auto dims = dims_of(*view, *whole);
    if (!dims || (*dims)[0].empty() || (*dims)[0].size() > whole->dims.size() - 2) continue;
    if ((*dims)[1].size() > 1 || (*dims)[2].size() > 1) continue;
    if (!whole->dims[(*dims)[0][0]][0].is_batch()) continue;
    // Dimensions of 1 are where others are missing.
    std::vector<int64_t> spare;
    for (size_t d = 0; d < whole->dims.size(); ++d) {
      if (whole->dims[d].empty()) spare.push_back(static_cast<int64_t>(d));
    }
    std::vector<int64_t> order = {static_cast<int64_t>((*dims)[0][0])};
    const auto add = [&](bool there, size_t dim) {
      order.push_back(there ? static_cast<int64_t>(dim) : spare.front());
      if (!there) spare.erase(spare.begin());
    };
    if (whole->dims.size() == 4) add((*dims)[0].size() == 2, (*dims)[0].back());
    for (size_t d = 1; d < 3; ++d) add(!(*dims)[d].empty(), (*dims)[d].empty() ? 0 : (*dims)[d][0]);
    return ProductSide{base, std::move(order)};
  }
  return std::nullopt;
}

Value* value_at(Graph& graph, const char* target, std::vector<Argument> args, graph::TensorMeta meta,
                Node& node) {
  Node* made = graph.call(target, std::move(args), &node);
  made->scope = node.scope;
  made->output()->meta = std::move(meta);
  return made->output();
}

Value* call_at(Graph& graph, const char* target, std::vector<Argument> args, std::vector<SizeExpr> sizes,
               Node& node) {
  return value_at(graph, target, std::move(args),
                  {.dtype = node.output()->meta->dtype, .sizes = std::move(sizes), .channels_last = false},
                  node);
}

bool is_in_order(const std::vector<int64_t>& order) {
  return std::ranges::is_sorted(order);
}

Value* permuted_value(Graph& graph, Value* value, const std::vector<int64_t>& order, Node& node) {
  if (is_in_order(order)) return value;
  std::vector<SizeExpr> sizes;
  for (const int64_t d : order) sizes.push_back(value->meta->sizes[static_cast<size_t>(d)]);
  return call_at(graph, "aten::permute", {value, c10::IValue(order)}, std::move(sizes), node);
}

/// An operand beside [groups, m, k] as one beside [N, heads, m, k]; null where it has no such form.
Value* operand_of_heads(Graph& graph, Value* operand, const SizeExpr& groups, int64_t heads, Node& node) {
  if (!operand->meta) return nullptr;
  const std::vector<SizeExpr>& sizes = operand->meta->sizes;
  if (sizes.size() < 3 || (sizes.size() == 3 && sizes[0] == SizeExpr{0, 1, 1})) return operand;
  if (sizes.size() != 3 || sizes[0] != groups || !sizes[1].constant() || !sizes[2].constant()) return nullptr;
  const std::vector<int64_t> wanted = {-1, heads, sizes[1].offset, sizes[2].offset};
  return value_at(graph, "aten::reshape", {operand, c10::IValue(wanted)},
                  {.dtype = operand->meta->dtype,
                   .sizes = {SizeExpr{1, 1, 0}, SizeExpr{0, 1, heads}, sizes[1], sizes[2]},
                   .channels_last = false},
                  node);
}

/// A call that works element by element, or along the last dimension, on `matrices` [groups, m, k] as one on
/// `heads` [N, heads, m, k]; null for others.
Value* lifted_to_heads(Graph& graph, const Value* matrices, Value* heads, Node& user) {
  const std::optional<graph::TensorMeta>& meta = user.output()->meta;
  if (!meta || meta->sizes != matrices->meta->sizes || heads->meta->sizes.size() != 4) return nullptr;
  std::vector<Argument> args = user.args;
  if (user.is("aten::softmax")) {
    const std::optional<int64_t> dim = graph::integer(args[1]);
    if (dim != -1 && dim != 2) return nullptr;
    args[1] = c10::IValue(int64_t{-1});
  } else if (!is_any(user, {"aten::mul", "aten::add", "aten::sub", "aten::masked_fill"}) &&
             !(user.is("aten::div") && args.size() == 2)) {
    return nullptr;
  }
  for (Argument& arg : args) {
    if (!arg.is_value()) continue;
    Value* own = arg.value == matrices ? heads
                                       : operand_of_heads(graph, arg.value, matrices->meta->sizes[0],
                                                          heads->meta->sizes[1].offset, user);
    if (own == nullptr) return nullptr;
    arg = own;
  }
  return value_at(graph, user.target().c_str(), std::move(args),
                  {.dtype = meta->dtype, .sizes = heads->meta->sizes, .channels_last = false}, user);
}

/// Readers of a product, of which `heads` is the form over heads.
class HeadReaders {
 public:
  explicit HeadReaders(Graph& graph) : graph_(graph) {}

  /// Those behind views that only order its dimensions read these of `heads` instead, and what works element
  /// by element on the matrices does so on `heads`. What is made stands before `before`.
  void read_heads(Value* matrices, Value* heads, Node& before) {
    const StridedView whole = *view_of_itself(*heads);
    std::optional<StridedView> first = reshaped(whole, matrices->meta->sizes);
    if (!first) return;
    std::vector<Open> open = {{matrices, *first, /*is_whole=*/true}};
    std::unordered_set<const Node*> seen = {heads->producer};  // and what is made here
    while (!open.empty()) {
      const Open at = open.back();
      open.pop_back();
      for (Node* user : graph_.users(at.value)) {
        if (user->kind() != Node::Kind::call || user->outputs().size() != 1) continue;
        const bool moves = user->args[0].value == at.value && (is_move(*user) || is_identity(*user));
        if (!moves) {
          if (at.is_whole) lift(at.value, heads, *user);
          continue;
        }
        if (!seen.insert(user).second) continue;
        const std::optional<StridedView> view = through(*user, at.view);
        if (!view || !user->output()->meta) continue;
        open.push_back({user->output(), *view, at.is_whole && !is_move(*user)});
        const auto order = order_of_dims(*view, whole);
        if (!order) continue;
        Value* ordered = permuted_value(graph_, heads, *order, before);
        seen.insert(ordered->producer);
        graph_.replace_uses(user->output(), ordered);
        open.back().value = ordered;
      }
    }
  }

 private:
  struct Open {
    Value* value;
    StridedView view;
    bool is_whole;  ///< the matrices themselves
  };

  /// The order of the whole's dimensions that the view is; nothing where it is more than that.
  static std::optional<std::vector<int64_t>> order_of_dims(const StridedView& view,
                                                           const StridedView& whole) {
    const auto dims = dims_of(view, whole);
    const size_t rank = whole.dims.size();
    if (!dims || dims->size() != rank) return std::nullopt;
    std::vector<int64_t> order, spare;
    for (size_t d = 0; d < rank; ++d) {
      if (whole.dims[d].empty()) spare.push_back(static_cast<int64_t>(d));
    }
    for (const std::vector<size_t>& dim : *dims) {
      if (dim.size() > 1) return std::nullopt;
      if (!dim.empty()) {
        order.push_back(static_cast<int64_t>(dim[0]));
      } else if (!spare.empty()) {
        order.push_back(spare.front());
        spare.erase(spare.begin());
      }
    }
    return order.size() == rank ? std::optional(order) : std::nullopt;
  }

  void lift(const Value* matrices, Value* heads, Node& user) {
    Value* made = lifted_to_heads(graph_, matrices, heads, user);
    if (made == nullptr) return;
    Value* flat =
        call_at(graph_, "aten::flatten.using_ints", {made, c10::IValue(int64_t{0}), c10::IValue(int64_t{1})},
                user.output()->meta->sizes, user);
    graph_.replace_uses(user.output(), flat);
    read_heads(flat, made, *flat->producer);
  }

  Graph& graph_;
};

/// False where the sides are no such views.
bool over_heads(Graph& graph, Node& product, size_t rank) {
  if (!product.args[0].is_value() || !product.args[1].is_value() || !product.output()->meta) return false;
  if (product.output()->meta->sizes.size() != 3) return false;
  const std::optional<ProductSide> a = product_side_of(product.args[0].value, rank),
                                   b = product_side_of(product.args[1].value, rank);
  if (!a || !b) return false;
  const auto size = [](const ProductSide& side, size_t d) {
    return side.value->meta->sizes[static_cast<size_t>(side.order[d])];
  };
  const size_t last = a->order.size() - 1;
  std::vector<SizeExpr> sizes;
  for (size_t d = 0; d + 1 < last; ++d) {
    if (size(*a, d) != size(*b, d)) return false;
    sizes.push_back(size(*a, d));
  }
  if (size(*a, last) != size(*b, last - 1)) return false;
  sizes.insert(sizes.end(), {size(*a, last - 1), size(*b, last)});
  Value* left = permuted_value(graph, a->value, a->order, product);
  Value* right = permuted_value(graph, b->value, b->order, product);
  Value* heads = call_at(graph, "aten::matmul", {left, right}, sizes, product);
  HeadReaders(graph).read_heads(product.output(), heads, product);
  return true;
}

}  // namespace

void products_over_heads(Graph& graph) {
  std::vector<Node*> products;
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::bmm")) products.push_back(node.get());
  }
  for (Node* product : products) {
    if (!over_heads(graph, *product, 3)) over_heads(graph, *product, 4);
  }
  graph.remove_dead();
}

}  // namespace ulp::lowering
