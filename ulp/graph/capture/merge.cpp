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
std::string listing(const std::vector<Sighting>& seen) {
  std::ostringstream out;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (i) out << ", ";
    out << *seen[i].value << " at batch size " << seen[i].batch << (seen[i].training ? " in train mode" : "");
  }
  return out.str();
}

bool all_same(const std::vector<Sighting>& seen) {
  return std::all_of(seen.begin(), seen.end(),
                     [&](const Sighting& s) { return same_literal(*s.value, *seen[0].value); });
}

Argument merge_whole(const std::vector<Sighting>& seen, const std::string& where) {
  if (all_same(seen)) return *seen[0].value;
  std::vector<int64_t> batches, values;
  for (const Sighting& s : seen) {
    if (!is_whole(*s.value)) fail("graph.capture", where, " changes its kind between runs: ", listing(seen));
    batches.push_back(s.batch);
    values.push_back(s.value->toInt());
  }
  if (auto expr = fit(batches, values)) return *expr;
  fail("graph.capture", where, " is not linear in the batch size: ", listing(seen));
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
    if (!s.value->isBool()) fail("graph.capture", where, " changes its kind between runs: ", listing(seen));
    if (s.training) on = s.value->toBool(), known = true;
  }
  for (const Sighting& s : seen) {
    if (!known || s.value->toBool() != (s.training ? on : !on))
      fail("graph.capture", "data-dependent ", where, ": ", listing(seen));
  }
  return Argument::training_flag(!on);
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

std::optional<BatchExpr> fit(const std::vector<int64_t>& batches, const std::vector<int64_t>& values) {
  BatchExpr expr{0, 1, values[0]};
  for (size_t i = 1; i < batches.size(); ++i) {
    if (batches[i] == batches[0]) continue;
    // The runs are at consecutive batch sizes, so a slope that is not whole cannot hold at all of them.
    expr.numerator = (values[i] - values[0]) / (batches[i] - batches[0]);
    expr.offset = values[0] - expr.numerator * batches[0];
    break;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    if (expr.at(batches[i]) != values[i]) return std::nullopt;
  }
  return expr;
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
    fail("graph.capture", where, " changes between runs: ", listing(seen));
  }
  return first;
}

}  // namespace ulp::graph
