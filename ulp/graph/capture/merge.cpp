#include "ulp/graph/capture/merge.h"

#include <algorithm>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

bool is_whole(const c10::IValue& value) {
  return value.isInt() || (value.isScalar() && value.toScalar().isIntegral(false));
}

/// The items of a list or a tuple.
std::vector<c10::IValue> items_of(const c10::IValue& value) {
  return value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec();
}

/// "2, 3 and 4" of what each run saw.
std::string sightings_text(const std::vector<Sighting>& seen) {
  std::ostringstream out;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (i) out << ", ";
    out << *seen[i].value << " at " << seen[i].sizes->text() << (seen[i].training ? " in train mode" : "");
  }
  return out.str();
}

bool all_same(const std::vector<Sighting>& seen) {
  return std::all_of(seen.begin(), seen.end(),
                     [&](const Sighting& s) { return same_literal(*s.value, *seen[0].value); });
}

/// The last of the runs is in train mode, the others in eval mode.
bool in_both_modes(const std::vector<Sighting>& seen) {
  return !seen.front().training && seen.back().training;
}

/// A number or word that is one in eval mode and another in train mode, as the dropout of an attention is.
std::optional<Argument> merge_modes(const std::vector<Sighting>& seen) {
  if (!in_both_modes(seen)) return std::nullopt;
  const std::vector<Sighting> eval(seen.begin(), seen.end() - 1);
  if (!all_same(eval)) return std::nullopt;
  return Argument::by_mode(*eval[0].value, *seen.back().value);
}

Argument merge_flag(const std::vector<Sighting>& seen, const std::string& where) {
  if (all_same(seen)) return *seen[0].value;
  bool on = false, known = false;
  for (const Sighting& s : seen) {
    if (!s.value->isBool())
      fail("graph.capture", where, " changes its kind between runs: ", sightings_text(seen));
    if (s.training) on = s.value->toBool(), known = true;
  }
  for (const Sighting& s : seen) {
    if (!known || s.value->toBool() != (s.training ? on : !on))
      fail("graph.capture", "data-dependent ", where, ": ", sightings_text(seen));
  }
  return Argument::training_flag(!on);
}

/// The part without free dimensions apart. Its coefficients are whole, since a free size of 0 is on every grid.
SizeExpr expression(Polynomial polynomial) {
  SizeExpr expr;
  for (Polynomial::Term& term : polynomial.terms) {
    if (term.powers.empty()) {
      expr.offset = term.numerator;
    } else if (term.powers.size() == 1) {
      expr.numerator = term.numerator;
      expr.denominator = term.denominator;
    } else {
      expr.rest.terms.push_back(std::move(term));
    }
  }
  return expr;
}

}  // namespace

bool same_literal(const c10::IValue& a, const c10::IValue& b) {
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  if (a.isGenerator() || b.isGenerator()) return a.isGenerator() && b.isGenerator();
  if (a.isDouble() && b.isDouble()) {
    double x = a.toDouble(), y = b.toDouble();
    return x == y || (x != x && y != y);
  }
  return a.tagKind() == b.tagKind() && a == b;
}

std::optional<SizeExpr> fit(const SizeGrid& grid, const std::vector<std::vector<int64_t>>& sizes,
                            const std::vector<int64_t>& values) {
  if (std::ranges::count(values, values[0]) == static_cast<int64_t>(values.size()))
    return SizeExpr{0, 1, values[0]};
  std::vector<int64_t> on_grid;
  for (const std::vector<int64_t>& point : grid.points()) {
    const auto at = std::ranges::find(sizes, point);
    if (at == sizes.end()) return std::nullopt;
    on_grid.push_back(values[static_cast<size_t>(at - sizes.begin())]);
  }
  const SizeExpr expr = expression(ulp::fit(grid, on_grid));
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (expr.at(sizes[i]) != values[i]) return std::nullopt;
  }
  return expr;
}

Argument Merger::merge_whole(const std::vector<Sighting>& seen, const std::string& where) const {
  if (all_same(seen)) return *seen[0].value;
  std::vector<std::vector<int64_t>> sizes;
  std::vector<int64_t> values;
  for (const Sighting& s : seen) {
    if (!is_whole(*s.value))
      fail("graph.capture", where, " changes its kind between runs: ", sightings_text(seen));
    sizes.push_back(s.sizes->values);
    values.push_back(s.value->toInt());
  }
  if (auto expr = fit(grid_, sizes, values)) return *expr;
  fail("graph.capture", where, " is not linear in the batch size",
       grid_.axes.size() > 1 ? " and of degree 2 or less in each free dimension" : "", ": ",
       sightings_text(seen));
}

bool same_form(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor() && b.isTensor()) return a.toTensor().defined() == b.toTensor().defined();
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isTuple() != b.isTuple() || a.isList() != b.isList()) return false;
  if (!a.isTuple() && !a.isList()) return a.tagKind() == b.tagKind();
  const std::vector<c10::IValue> x = items_of(a), y = items_of(b);
  return std::ranges::equal(x, y, same_form);
}

Argument Merger::merge_tensor(const std::vector<Sighting>& seen, size_t& leaf,
                              const std::string& where) const {
  std::vector<Candidates> offers;
  size_t undefined = 0;
  for (const Sighting& s : seen) {
    if (!s.value->isTensor()) fail("graph.capture", where, " is a tensor in some runs only");
    offers.push_back(s.tensors->at(leaf));
    undefined += offers.back().empty();
  }
  ++leaf;
  if (undefined == seen.size()) return c10::IValue();
  if (undefined) fail("graph.capture", where, " is a tensor in some runs only");
  return pick_(offers, in_both_modes(seen), where);
}

Argument Merger::merge_items(const std::vector<Sighting>& seen, size_t& leaf,
                             const std::string& where) const {
  auto count = [](const c10::IValue& value) {
    return value.isTuple() ? value.toTupleRef().elements().size() : value.toListRef().size();
  };
  auto item = [](const c10::IValue& value, size_t i) {
    return value.isTuple() ? value.toTupleRef().elements()[i] : c10::IValue(value.toListRef()[i]);
  };
  for (const Sighting& s : seen) {
    if (s.value->isTuple() != seen[0].value->isTuple() || s.value->isList() != seen[0].value->isList() ||
        count(*s.value) != count(*seen[0].value)) {
      fail("graph.capture", "data-dependent ", where, ": its length changes between runs");
    }
  }
  std::vector<Argument> items;
  bool plain = true;
  for (size_t i = 0; i < count(*seen[0].value); ++i) {
    std::vector<c10::IValue> values;
    for (const Sighting& s : seen) values.push_back(item(*s.value, i));
    std::vector<Sighting> inner = seen;
    for (size_t r = 0; r < seen.size(); ++r) inner[r].value = &values[r];
    items.push_back(merge(inner, leaf, where));
    plain &= items.back().kind == Argument::Kind::literal;
  }
  bool tensors = seen[0].value->isTensorList();
  if (seen[0].value->isTuple()) return Argument::tuple(std::move(items));
  if (plain && !tensors) return *seen[0].value;
  return Argument::list(std::move(items));
}

Argument Merger::merge(const std::vector<Sighting>& seen, size_t& leaf, const std::string& where) const {
  const c10::IValue& first = *seen[0].value;
  for (const Sighting& s : seen) {
    if (s.value->isTensor()) return merge_tensor(seen, leaf, where);
  }
  if (first.isList() || first.isTuple()) return merge_items(seen, leaf, where);
  if (is_whole(first)) return merge_whole(seen, where);
  if (first.isBool()) return merge_flag(seen, where);
  if (!all_same(seen)) {
    if (auto by_mode = merge_modes(seen)) return *by_mode;
    fail("graph.capture", where, " changes between runs: ", sightings_text(seen));
  }
  return first;
}

}  // namespace ulp::graph
