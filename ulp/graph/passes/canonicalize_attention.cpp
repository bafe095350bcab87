#include "ulp/graph/passes/canonicalize_attention.h"

#include <string>
#include <utility>
#include <vector>

#include "ulp/graph/passes/fixed_tensor.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

struct Attention {
  Node* product = nullptr;  ///< weights times v
  Value *query = nullptr, *key = nullptr, *value = nullptr, *mask = nullptr;
  double dropout = 0;
};

bool is_product(const Node& node) {
  return node.is("aten::bmm") || node.is("aten::matmul");
}

/// The value whose last two dimensions the argument swaps, or null.
Value* swapped(const Argument& arg) {
  Node* node = producer(arg, "aten::transpose");
  if (!node || rank(arg) < 3) return nullptr;
  auto a = integer(node->args[1]), b = integer(node->args[2]);
  if (!a || !b) return nullptr;
  int64_t n = rank(arg), x = (*a + n) % n, y = (*b + n) % n;
  return x != y && x >= n - 2 && y >= n - 2 ? node->args[0].value : nullptr;
}

/// True where the sum of scores and a mask has the scores' own type and sizes: nothing is broadcast but the
/// mask, which is no truth.
bool is_mask_of(const Argument& mask, const Value& scores, const Value& sum) {
  return mask.value->meta && scores.meta && sum.meta && mask.value->meta->dtype == scores.meta->dtype &&
         sum.meta->dtype == scores.meta->dtype && sum.meta->sizes == scores.meta->sizes;
}

/// Follows the weights back to q and k; empty text on success, "-" when this is no attention at all.
std::string match(const Graph& graph, Node& product, Attention& found) {
  found.product = &product;
  if (!product.args[1].is_value()) return "-";
  found.value = product.args[1].value;
  Node* weights = product.args[0].is_value() ? product.args[0].value->producer : nullptr;
  Node *reader = &product, *dropout = nullptr;
  if (weights && weights->is("aten::dropout")) {
    dropout = weights;
    reader = dropout;
    weights = dropout->args[0].value->producer;
  }
  if (!weights || !weights->is("aten::softmax") || !weights->args[0].is_value()) return "-";
  int64_t n = rank(weights->args[0]);
  auto dim = integer(weights->arg("dim"));
  if (!dim || (*dim != -1 && *dim != n - 1) || !weights->arg("dtype").is_none()) return "-";
  Node* scores = weights->args[0].value->producer;
  Node* mask = nullptr;
  if (scores->target() == "aten::add.Tensor" && scores->args[1].is_value() &&
      number(scores->arg("alpha")) == 1.0) {
    mask = scores;
    scores = mask->args[0].value->producer;
    if (!is_mask_of(mask->args[1], *scores->output(), *mask->output())) return "-";
  }
  if (!is_product(*scores) || rank(scores->output()) < 3) return "-";
  found.key = swapped(scores->args[1]);
  if (!found.key) return "-";
  found.query = scores->args[0].value;
  if (rank(scores->args[0]) != n || rank(scores->args[1]) != n || rank(product.args[1]) != n) return "-";
  if (mask) found.mask = mask->args[1].value;
  if (dropout) {
    bool off =
        dropout->arg("train").kind == Argument::Kind::literal && !dropout->arg("train").literal.toBool();
    if (!off && number(dropout->arg("p")) != 0.0)
      return dropout->name() + " follows the training flag; strip_training removes it";
  }
  for (const auto& [node, next] : {std::pair{scores, mask ? mask : weights}, {weights, reader}}) {
    std::string others = other_users(graph, node->output(), *next);
    if (!others.empty()) return node->name() + " is also used by " + others;
  }
  if (dropout && !other_users(graph, dropout->output(), product).empty())
    return dropout->name() + " is also used by " + other_users(graph, dropout->output(), product);
  // With all keys hidden the softmax gives NaN, and so has its product; the node gives zeros.
  if (found.mask && may_hide_all_keys(graph, *found.mask)) {
    return "its mask " + found.mask->name + " may hide all keys of a query, which gives NaN here";
  }
  return "";
}

}  // namespace

void fuse_attention(Graph& graph, PassReport& report) {
  std::vector<Node*> products;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && is_product(*node)) products.push_back(node.get());
  }
  for (Node* product : products) {
    Attention found;
    std::string obstacle = match(graph, *product, found);
    if (obstacle == "-") continue;
    if (!obstacle.empty()) {
      report.near_misses.push_back(product->name() + " not made scaled_dot_product_attention: " + obstacle);
      continue;
    }
    std::string before = product->name() + ": " + product->target();
    Argument mask = found.mask ? Argument(found.mask) : Argument(c10::IValue());
    // The model scales the queries itself.
    graph.retarget(product, "aten::scaled_dot_product_attention",
                   {found.query, found.key, found.value, mask, Argument(c10::IValue(0.0)),
                    Argument(c10::IValue(false)), Argument(c10::IValue(1.0))});
    report.changes.push_back(before + " -> aten::scaled_dot_product_attention");
  }
}

}  // namespace ulp::graph
