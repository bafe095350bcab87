// Calls that a format has no operator for, as calls that have one: a rewrite of the graph before it is
// written.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ulp/exchange/speller.h"
#include "ulp/graph/formula.h"

namespace ulp::exchange::spelled {

/// Formulas of what the files of a format have no operator for.
class Formula : public graph::Formula {
 public:
  explicit Formula(Speller& spell) : graph::Formula(spell.graph(), spell.node()), spell_(spell) {}

  /// An argument in the result's type.
  V tensor(const char* argument) { return spell_.to(spell_.tensor(argument), type()); }
  V x() { return tensor("self"); }
  Speller& spell() { return spell_; }

  // Functions that are parts of others, exact near 0.
  V log1p(V x);
  V expm1(V x);
  V trunc(V x);

 private:
  Speller& spell_;
};

/// How a call of an op is spelled. A function that finds it cannot returns without a result, and the call
/// stays.
struct SpelledRow {
  std::string_view op;
  void (*spell)(Formula&);
};
using SpelledTable = std::span<const SpelledRow>;

/// aten::max and aten::min along a dimension whose places are read get these from aten::argmax or
/// aten::argmin, for formats whose operators give the one or the other. Both give the first place of several.
void split_extremes(graph::Graph& graph);

/// Spells the calls that a table has, of those that a writer wants spelled.
void spell_out(graph::Graph& graph, const std::function<bool(const graph::Node&)>& wanted);

}  // namespace ulp::exchange::spelled
