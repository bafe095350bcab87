#include "ulp/lower/token_mean.h"

#include <torch/library.h>
#include <torch/types.h>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/ops.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

namespace {

at::Tensor token_mean_kernel(const at::Tensor& x, const at::Tensor& ids, int64_t token) {
  const at::Tensor kept = ids.ne(token).unsqueeze(2);
  return x.masked_fill(kept.logical_not(), 0).sum(1) / kept.sum(1).clamp_min(1);
}

/// What is summed over dimension 1 of three, or null.
const Argument* summed(const Argument& arg) {
  const Node* sum = graph::producer(arg, "aten::sum");
  if (sum == nullptr || sum->target() != "aten::sum.dim_IntList" || graph::rank(sum->args[0]) != 3)
    return nullptr;
  const auto dims = graph::integers(sum->arg("dim"));
  const bool fits =
      dims == std::vector<int64_t>{1} && !bool_arg(*sum, "keepdim") && sum->arg("dtype").is_none();
  return fits ? &sum->args[0] : nullptr;
}

struct TokenMean {
  Argument x, ids, token;
};

std::optional<TokenMean> match(const Node& divide) {
  if (divide.target() != "aten::div.Tensor") return std::nullopt;
  const Node* at_least = graph::producer(divide.args[1], "aten::clamp_min");
  if (at_least == nullptr || graph::number(at_least->args[1]) != 1.0) return std::nullopt;
  const Argument *filled = summed(divide.args[0]), *counted = summed(at_least->args[0]);
  if (filled == nullptr || counted == nullptr) return std::nullopt;
  const Node* fill = graph::producer(*filled, "aten::masked_fill");
  const Node* kept = graph::producer(*counted, "aten::logical_not");
  if (fill == nullptr || kept == nullptr || fill->arg("mask").value != kept->args[0].value)
    return std::nullopt;
  const Node* spread = graph::producer(kept->args[0], "aten::unsqueeze");
  if (spread == nullptr || graph::number(fill->arg("value")) != 0.0) return std::nullopt;
  const auto dim = graph::integer(spread->arg("dim"));
  const Node* equal = graph::producer(spread->args[0], "aten::eq");
  if ((dim != 2 && dim != -1) || equal == nullptr || equal->target() != "aten::eq.Scalar")
    return std::nullopt;
  const auto token = graph::integer(equal->arg("other"));
  if (!token || graph::rank(equal->args[0]) != 2) return std::nullopt;
  return TokenMean{fill->args[0], equal->args[0], c10::IValue(*token)};
}

}  // namespace

graph::PassReport fuse_token_mean(Graph& graph) {
  graph::PassReport report{"fuse_token_mean", {}, {}};
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    const std::optional<TokenMean> found = match(*node);
    if (!found) continue;
    graph.retarget(node.get(), "ulp::token_mean", {found->x, found->ids, found->token});
    report.changes.push_back(graph::label(*node) + " -> ulp::token_mean");
  }
  graph.remove_dead();
  return report;
}

void lower_token_mean(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  Step step = step_of(runtime::Op::token_mean, node);
  const Value* x = value_arg(node, node.is("aten::mean") ? "self" : "x");
  step.inputs = {builder.as(node, x, float_form(builder, node, x, Layout::plain))};
  if (!node.is("aten::mean")) {
    const Value* ids = value_arg(node, "ids");
    const Form form = builder.form_of(node, ids);
    if (form.type != DataType::i32 && form.type != DataType::i64) {
      unsupported(node, "expected ids that are an integer input of the model");
    }
    step.inputs.push_back(builder.as(node, ids, form));
    step.attributes = runtime::TokenAttributes{int_arg(node, "token")};
  }
  emit_same(builder, group, std::move(step), result_form(builder, group, Layout::plain));
}

LoweringTable token_mean_lowerings() {
  static constexpr Lowering kTable[] = {{"ulp::token_mean", lower_token_mean}};
  return kTable;
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("token_mean(Tensor x, Tensor ids, int token) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("token_mean", token_mean_kernel);
}

}  // namespace ulp::lowering
