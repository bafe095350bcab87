#include "ulp/exchange/spelled/spelled.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "ulp/exchange/arguments.h"

namespace ulp::exchange::spelled {

using graph::Argument;
using graph::Node;
using graph::SizeExpr;
using V = Formula::V;

// The files that have a table, spelled_<name>().
#define ULP_SPELLED(X) \
  X(functions)         \
  X(quotients)         \
  X(norms)             \
  X(products)          \
  X(pieces)            \
  X(recurrent)

#define ULP_DECLARE(name) SpelledTable spelled_##name();
ULP_SPELLED(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

/// Sizes of what is computed from both.
Speller::Sizes broadcast(const Speller::Sizes& a, const Speller::Sizes& b) {
  Speller::Sizes made = a.size() < b.size() ? b : a;
  const Speller::Sizes& other = a.size() < b.size() ? a : b;
  const size_t lead = made.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d) {
    if (made[lead + d] == fixed(1)) made[lead + d] = other[d];
  }
  return made;
}

const std::vector<SpelledRow>& all_rows() {
  static const std::vector<SpelledRow> all = [] {
    std::vector<SpelledRow> rows;
#define ULP_GATHER(name) \
  for (const SpelledRow& row : spelled_##name()) rows.push_back(row);
    ULP_SPELLED(ULP_GATHER)
#undef ULP_GATHER
#undef ULP_SPELLED
    return rows;
  }();
  return all;
}

}  // namespace

V Formula::both(const char* target, V a, V b) {
  return spell_.call(target, {a, b}, a->meta->dtype, broadcast(a->meta->sizes, b->meta->sizes));
}

V Formula::compare(const std::string& op, V a, V b) {
  return spell_.call((op + ".Tensor").c_str(), {a, b}, at::kBool, broadcast(a->meta->sizes, b->meta->sizes));
}

V Formula::compare(const std::string& op, V a, double b) {
  return spell_.call((op + ".Scalar").c_str(), {a, c10::IValue(b)}, at::kBool, a->meta->sizes);
}

V Formula::where(V condition, V a, V b) {
  const Speller::Sizes sizes = broadcast(a->meta->sizes, b->meta->sizes);
  return spell_.call("aten::where.self", {condition, a, b}, a->meta->dtype,
                     broadcast(condition->meta->sizes, sizes));
}

V Formula::where(V condition, double a, V b) {
  return spell_.call("aten::where.ScalarSelf", {condition, c10::IValue(a), b}, b->meta->dtype,
                     broadcast(condition->meta->sizes, b->meta->sizes));
}

V Formula::where(V condition, V a, double b) {
  return spell_.call("aten::where.ScalarOther", {condition, a, c10::IValue(b)}, a->meta->dtype,
                     broadcast(condition->meta->sizes, a->meta->sizes));
}

V Formula::reduce(const char* target, V x, const std::vector<int64_t>& dims) {
  Speller::Sizes sizes = x->meta->sizes;
  for (const int64_t dim : dims)
    sizes.at(static_cast<size_t>(dim < 0 ? dim + std::ssize(sizes) : dim)) = fixed(1);
  return spell_.call(target, {x, c10::IValue(dims), c10::IValue(true)}, x->meta->dtype, sizes);
}

V Formula::squeeze(V x, const std::vector<int64_t>& dims) {
  Speller::Sizes sizes;
  const auto rank = std::ssize(x->meta->sizes);
  for (int64_t d = 0; d < rank; ++d) {
    const auto goes = [&](int64_t dim) { return (dim < 0 ? dim + rank : dim) == d; };
    if (std::ranges::none_of(dims, goes)) sizes.push_back(x->meta->sizes[static_cast<size_t>(d)]);
  }
  return view(x, sizes);
}

V Formula::view(V x, Speller::Sizes sizes) {
  std::vector<Argument> list;
  for (const SizeExpr& size : sizes)
    list.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
  return spell_.call("aten::reshape", {x, Argument::list(std::move(list))}, x->meta->dtype, std::move(sizes));
}

V Formula::slice(V x, int64_t dim, int64_t start, int64_t size) {
  Speller::Sizes sizes = x->meta->sizes;
  sizes.at(static_cast<size_t>(dim)) = fixed(size);
  return spell_.call("aten::slice.Tensor",
                     {x, c10::IValue(dim), c10::IValue(start), c10::IValue(start + size), c10::IValue(1)},
                     x->meta->dtype, sizes);
}

V Formula::transpose(V x, int64_t a, int64_t b) {
  Speller::Sizes sizes = x->meta->sizes;
  std::swap(sizes.at(static_cast<size_t>(a)), sizes.at(static_cast<size_t>(b)));
  return spell_.call("aten::transpose.int", {x, c10::IValue(a), c10::IValue(b)}, x->meta->dtype, sizes);
}

V Formula::unsqueeze(V x, int64_t dim) {
  Speller::Sizes sizes = x->meta->sizes;
  sizes.insert(sizes.begin() + dim, fixed(1));
  return view(x, sizes);
}

V Formula::constant(const at::Tensor& tensor, const char* name) {
  graph::Graph& graph = spell_.graph();
  const std::string place = graph.unique_name(node().name() + "." + name);
  graph.set_attribute(place, {graph::Attribute::Kind::constant, tensor.contiguous()});
  V made = graph.attribute(place);
  made->meta = graph::TensorMeta{.dtype = tensor.scalar_type(), .sizes = fixed(tensor.sizes().vec())};
  return made;
}

/// With u = 1 + x rounded, log(u) x / (u - 1) has the rounding of u in both of its places.
V Formula::log1p(V x) {
  V u = add(x, 1), whole = mul(log(u), div(x, add(u, -1)));
  V far = where(compare("aten::eq", u, x), log(u), whole);  // infinity, too
  return where(compare("aten::eq", u, 1), x, far);
}

/// ELU is exp(x) - 1 below 0; above, exp(x) (1 - exp(-x)).
V Formula::expm1(V x) {
  V above = mul(exp(x), map("aten::elu", map("aten::neg", x)));
  return where(compare("aten::gt", x, 0.0), map("aten::neg", above), map("aten::elu", x));
}

V Formula::trunc(V x) {
  return mul(map("aten::sign", x), map("aten::floor", abs(x)));
}

void split_extremes(graph::Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    const bool extreme = node->is("aten::max") || node->is("aten::min");
    if (extreme && node->outputs().size() == 2 && node->output(1)->meta &&
        !graph.users(node->output(1)).empty())
      found.push_back(node.get());
  }
  for (Node* node : found) {
    Speller spell(graph, *node);
    V places = spell.call(node->is("aten::max") ? "aten::argmax" : "aten::argmin",
                          {node->arg("self"), node->arg("dim"), node->arg("keepdim")}, at::kLong,
                          node->output(1)->meta->sizes);
    graph.replace_uses(node->output(1), places);
  }
  if (!found.empty()) graph.remove_dead();
}

void spell_out(graph::Graph& graph, const std::function<bool(const Node&)>& wanted) {
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    const bool runs = node->kind() == Node::Kind::call && !node->train_only && !node->outputs().empty();
    if (runs && node->output()->meta) calls.push_back(node.get());
  }
  for (Node* node : calls) {
    const auto row =
        std::ranges::find_if(all_rows(), [&](const SpelledRow& one) { return node->is(one.op); });
    if (row == all_rows().end()) continue;
    Speller spell(graph, *node);
    Formula write(spell);
    try {
      if (wanted(*node)) row->spell(write);
    } catch (const Refused&) {  // the writer says that there is no form
    }
  }
  graph.remove_dead(/*attributes=*/true);
}

}  // namespace ulp::exchange::spelled
