#include "ulp/exchange/calls.h"

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/nearest_names.h"
#include "ulp/graph/describe.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Node;

std::string without_form(const Node& node, const Conversion& conversion) {
  return concatenate("no ", conversion.form, " is known; the names nearest to it with one are ",
                     nearest_names(node.op(), conversion.op_names()));
}

/// Throws one error for all that stand in the way.
[[noreturn]] void fail_with(const std::vector<Refused>& refusals, const Conversion& conversion) {
  constexpr size_t kShown = 8;
  std::string text;
  ErrorInfo info{.code = ErrorCode::unsupported_op};
  for (const Refused& refused : refusals) info.places.push_back(graph::error_place(*refused.node));
  for (size_t i = 0; i < refusals.size() && i < kShown; ++i) {
    const auto& [node, reason] = refusals[i];
    text += (text.empty() ? "" : "; ") + graph::describe(*node) + ": " +
            (reason.empty() ? without_form(*node, conversion) : reason);
  }
  if (refusals.size() > kShown) text += "; and " + std::to_string(refusals.size() - kShown) + " more";
  fail(std::move(info), conversion.where, "expected a graph whose calls have ", conversion.form, "s, got ",
       text);
}

/// Results in order, those that eval mode has. A pair of a word and a value is a named one.
void convert_results(const Conversion& conversion, const Node& output, const Argument& argument,
                     const std::string& name = "") {
  if (argument.is_value()) return conversion.result(*argument.value, name);
  if (argument.is_none() && has_tensor(output.args.at(0))) return;
  const bool many = argument.kind == Argument::Kind::list || argument.kind == Argument::Kind::tuple;
  if (!many) refuse(output, "expected results that are tensors");
  const auto& items = argument.items;
  const bool pair =
      items.size() == 2 && items[0].kind == Argument::Kind::literal && items[0].literal.isString();
  if (pair) return convert_results(conversion, output, items[1], items[0].literal.toStringRef());
  for (const Argument& item : items) convert_results(conversion, output, item);
}

void convert(const Conversion& conversion, const Node& node) {
  if (node.kind() == Node::Kind::output) return convert_results(conversion, node, node.args.at(0));
  if (node.kind() == Node::Kind::module)
    refuse(node, "expected a graph without observers; quant::convert comes first");
  if (node.kind() != Node::Kind::call || node.train_only) return;
  if (node.is("aten::view.dtype")) refuse(node, "expected a view of other sizes, got one of another type");
  if (!conversion.call(node)) throw Refused{&node, ""};
}

}  // namespace

bool has_tensor(const Argument& argument) {
  return argument.is_value() || std::ranges::any_of(argument.items, has_tensor);
}

void convert_graph(const graph::Graph& graph, const Conversion& conversion) {
  std::vector<Refused> refusals;
  for (const auto& node : graph.nodes()) {
    try {
      convert(conversion, *node);
    } catch (const Refused& refused) {
      refusals.push_back(refused);
    }
  }
  if (!refusals.empty()) fail_with(refusals, conversion);
}

}  // namespace ulp::exchange
