#include "ulp/prune/select.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/prune/units.h"
#include "ulp/quant/recipe.h"

namespace ulp::prune {
namespace {

/// A unit that may be pruned.
struct UnitCandidate {
  double score;
  size_t layer;
  int64_t unit;
  bool operator<(const UnitCandidate& other) const {
    if (score != other.score) return score < other.score;
    return layer != other.layer ? layer < other.layer : unit < other.unit;
  }
};

/// Leaves the `count` lowest; the order is total, so there is one such set.
void keep_lowest(std::vector<UnitCandidate>& candidates, int64_t count) {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (wanted >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(wanted),
                   candidates.end());
  candidates.resize(wanted);
}

std::vector<UnitCandidate> candidates_of(const Units& units, size_t layer) {
  std::vector<UnitCandidate> made;
  made.reserve(static_cast<size_t>(units.remaining));
  for (int64_t u = 0; u < units.total(); ++u) {
    if (units.alive[static_cast<size_t>(u)] != 0)
      made.push_back({units.score[static_cast<size_t>(u)], layer, u});
  }
  return made;
}

void prune(std::vector<Units>& layers, const std::vector<UnitCandidate>& chosen) {
  for (const UnitCandidate& one : chosen) layers[one.layer].alive[static_cast<size_t>(one.unit)] = 0;
}

/// How many of `remaining` units to prune now, where `count` of the `before` that there were shall be in the end.
int64_t part_of_way(int64_t count, int64_t before, int64_t remaining, double way) {
  if (way < 1) {
    const auto all = static_cast<double>(before), last = static_cast<double>(before - count);
    const double left = last > 0 ? all * std::pow(last / all, way) : all * (1 - way);
    count = before - static_cast<int64_t>(std::llround(left));
  }
  return std::max<int64_t>(0, count - (before - remaining));
}

void prune_layer(std::vector<Units>& layers, size_t layer, const Amount& amount, double way) {
  const Units& units = layers[layer];
  std::vector<UnitCandidate> chosen = candidates_of(units, layer);
  const int64_t count = amount.to_prune("'" + units.name + "'", units.total(), units.before);
  keep_lowest(chosen, part_of_way(count, units.before, units.remaining, way));
  prune(layers, chosen);
}

void prune_together(std::vector<Units>& layers, const std::vector<size_t>& which, const Selection& how) {
  int64_t total = 0, before = 0, remaining = 0;
  std::vector<UnitCandidate> chosen;
  for (const size_t layer : which) {
    const Units& units = layers[layer];
    total += units.total();
    before += units.before;
    remaining += units.remaining;
    std::vector<UnitCandidate> own = candidates_of(units, layer);
    // What may go of a layer goes with its lowest scores first: the rest is never chosen.
    const double share = how.floor * static_cast<double>(units.total());
    const auto least = static_cast<int64_t>(std::ceil(share - 1e-9));  // 0.1 of 30 is a little more than 3
    keep_lowest(own, units.remaining - least);
    chosen.insert(chosen.end(), own.begin(), own.end());
  }
  const int64_t count =
      part_of_way(how.amount.to_prune("all layers", total, before), before, remaining, how.way);
  if (count > static_cast<int64_t>(chosen.size())) {
    fail(kSelectWhere, "expected at most ", chosen.size(), " units to prune, which leave ", how.floor,
         " of each layer, got ", count);
  }
  keep_lowest(chosen, count);
  prune(layers, chosen);
}

/// Wanda's rule: the count of a row is truncated.
int64_t to_prune_of_row(const Amount& amount, const std::string& name, int64_t total, int64_t before) {
  if (amount.count) return amount.to_prune("a row of '" + name + "'", total, before);
  amount.to_prune("'" + name + "'", total, before);  // throws where the fraction is none
  const bool of_all = amount.of == AmountOf::all;
  const auto target = static_cast<int64_t>(amount.fraction * static_cast<double>(of_all ? total : before));
  return std::max<int64_t>(0, target - (of_all ? total - before : 0));
}

void prune_rows(std::vector<Units>& layers, size_t layer, int64_t rows, const Amount& amount, double way) {
  const int64_t columns = rows == 0 ? 0 : layers[layer].total() / rows;
  std::vector<std::vector<UnitCandidate>> by_row(static_cast<size_t>(rows));
  for (const UnitCandidate& one : candidates_of(layers[layer], layer))
    by_row[static_cast<size_t>(one.unit / columns)].push_back(one);
  std::vector<int64_t> before(static_cast<size_t>(rows));
  for (size_t u = 0; u < layers[layer].alive_before.size(); ++u)
    before[u / static_cast<size_t>(columns)] += layers[layer].alive_before[u];
  for (size_t r = 0; r < by_row.size(); ++r) {
    const int64_t count = to_prune_of_row(amount, layers[layer].name, columns, before[r]);
    keep_lowest(by_row[r], part_of_way(count, before[r], static_cast<int64_t>(by_row[r].size()), way));
    prune(layers, by_row[r]);
  }
}

/// Keeps n of m in each group.
Units n_of_m(const LayerScores& layer, const Pattern& pattern) {
  UnitGroups groups = groups_of(layer, pattern);
  std::vector<std::vector<UnitCandidate>> by_group(static_cast<size_t>(groups.count));
  for (const UnitCandidate& one : candidates_of(groups.elements, 0))
    by_group[static_cast<size_t>(groups.of_element[static_cast<size_t>(one.unit)])].push_back(one);
  for (auto& group : by_group) {
    keep_lowest(group, static_cast<int64_t>(group.size()) - pattern.n);
    for (const UnitCandidate& one : group) groups.elements.alive[static_cast<size_t>(one.unit)] = 0;
  }
  return std::move(groups.elements);
}

/// The elements that were kept and whose unit is alive.
at::Tensor mask_of(const LayerScores& layer, const Units& units) {
  at::Tensor keep = at::empty(layer.scores.sizes(), at::kBool);
  bool* out = keep.mutable_data_ptr<bool>();
  for (size_t i = 0; i < units.of_element.size(); ++i)
    out[i] = units.alive[static_cast<size_t>(units.of_element[i])] != 0;
  return layer.keep.defined() ? keep.logical_and_(layer.keep.to(at::kCPU)) : keep;
}

const Amount* override_of(const Selection& selection, const std::string& name) {
  const Amount* found = nullptr;
  for (const NamedAmount& one : selection.overrides) {
    if (quant::matches_module(one.parameters, name)) found = &one.amount;
  }
  return found;
}

void check(const std::vector<LayerScores>& layers, const Selection& selection) {
  selection.pattern.validate();
  if (!(selection.floor >= 0 && selection.floor <= 1))
    fail(kSelectWhere, "expected a floor in [0, 1], got ", selection.floor);
  if (!(selection.way > 0 && selection.way <= 1))
    fail(kSelectWhere, "expected a way in (0, 1], got ", selection.way);
  if (selection.scope == Scope::row && selection.pattern.kind != PatternKind::free &&
      selection.pattern.kind != PatternKind::n_m)
    fail(kSelectWhere, "expected the pattern free for the scope row, got ",
         enum_name(selection.pattern.kind));
  for (const NamedAmount& one : selection.overrides) {
    const auto matches = [&](const LayerScores& layer) {
      return quant::matches_module(one.parameters, layer.name);
    };
    if (std::ranges::none_of(layers, matches))
      fail(kSelectWhere, "expected overrides to name layers, got '", one.parameters, "', which matches none");
  }
}

}  // namespace

void Pattern::visit_fields(FieldVisitor& visit) {
  visit({.name = "kind", .help = "What is pruned together", .flag = "pattern"}, kind);
  visit({"n", "n_m: how many of m are kept", 1}, n);
  visit({"m", "n_m: neighbours along the inputs", 2}, m);
  visit(
      {"reorder", "n_m: put channels in an order in which less is lost, with all that makes and reads them"},
      reorder);
  visit({"block_rows", "blocks: outputs", 1}, block_rows);
  visit({"block_columns", "blocks: inputs", 1}, block_columns);
  visit({"unit_score", "Reduction of the scores of a block, row or column to one"}, unit_score);
}

void Pattern::validate() const {
  check_limits("prune.Pattern", *this);
  if (kind == PatternKind::n_m && n >= m) fail("prune.Pattern", "expected n < m, got ", n, ':', m);
  if (reorder && kind != PatternKind::n_m)
    fail("prune.Pattern", "expected the pattern n_m with reorder, got ", enum_name(kind));
}

void NamedAmount::visit_fields(FieldVisitor& visit) {
  visit({"parameters", "Parameters of this name or in modules of this path; '*' is any run of characters"},
        parameters);
  visit({"amount", "How much of each is pruned"}, amount);
}

std::vector<at::Tensor> select(const std::vector<LayerScores>& layers, const Selection& selection) {
  check(layers, selection);
  std::vector<Units> units;
  std::vector<size_t> together;
  const bool n_m = selection.pattern.kind == PatternKind::n_m;
  for (size_t i = 0; i < layers.size(); ++i) {
    units.push_back(n_m ? n_of_m(layers[i], selection.pattern) : units_of(layers[i], selection.pattern));
    if (n_m) continue;
    const Amount* own = override_of(selection, layers[i].name);
    const Amount& amount = own != nullptr ? *own : selection.amount;
    if (selection.scope == Scope::row) {
      prune_rows(units, i, WeightShape::of(layers[i].scores.sizes()).rows, amount, selection.way);
    } else if (own != nullptr || selection.scope == Scope::layer) {
      prune_layer(units, i, amount, selection.way);
    } else {
      together.push_back(i);
    }
  }
  if (!together.empty()) prune_together(units, together, selection);
  std::vector<at::Tensor> masks;
  for (size_t i = 0; i < layers.size(); ++i) masks.push_back(mask_of(layers[i], units[i]));
  return masks;
}

}  // namespace ulp::prune
