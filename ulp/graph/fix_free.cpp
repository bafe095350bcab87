// A graph without free dimensions, from one that has them.

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {
namespace {

/// Without free dimensions: their sizes are put in.
SizeExpr fixed(const SizeExpr& expr, std::span<const int64_t> sizes) {
  SizeExpr result{expr.numerator, expr.denominator, expr.offset};
  if (expr.rest.terms.empty()) return result;
  // At most linear in the batch: its values for no sample and for one tell the line.
  std::vector<int64_t> at{0};
  at.insert(at.end(), sizes.begin(), sizes.end());
  const int64_t without = expr.rest.at(at);
  at[0] = 1;
  const int64_t slope = expr.rest.at(at) - without;
  result.numerator += slope * result.denominator;
  result.offset += without;
  return result;
}

void fix(Argument& argument, std::span<const int64_t> sizes) {
  if (argument.kind == Argument::Kind::batch) {
    argument.batch = fixed(argument.batch, sizes);
    if (argument.batch.constant()) argument = Argument(c10::IValue(argument.batch.offset));
  }
  for (Argument& item : argument.items) fix(item, sizes);
}

/// A list of numbers is a literal list, as capture makes it.
void join_numbers(Argument& argument) {
  for (Argument& item : argument.items) join_numbers(item);
  if (argument.kind != Argument::Kind::list || argument.items.empty()) return;
  std::vector<int64_t> numbers;
  for (const Argument& item : argument.items) {
    if (item.kind != Argument::Kind::literal || !item.literal.isInt()) return;
    numbers.push_back(item.literal.toInt());
  }
  argument = Argument(c10::IValue(numbers));
}

}  // namespace

void Graph::fix_free(std::span<const int64_t> sizes) {
  if (sizes.size() != free.size())
    fail("graph.fix_free", "expected a size for each of ", free.size(), " free dimensions, got ",
         sizes.size());
  for (size_t i = 0; i < free.size(); ++i) free[i].check(sizes[i], "graph.fix_free");
  for (const auto& node : nodes_) {
    for (Argument& argument : node->args) {
      fix(argument, sizes);
      join_numbers(argument);
    }
    for (const auto& value : node->outputs_) {
      if (!value->meta) continue;
      for (SizeExpr& size : value->meta->sizes) size = fixed(size, sizes);
    }
  }
  free.clear();
}

}  // namespace ulp::graph
