#include "ulp/prune/units.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"

namespace ulp::prune {
namespace {

int64_t parts(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}

/// unit(row, column, position) of every element, in row-major order.
template <typename Unit>
std::vector<int64_t> each_element(const WeightShape& shape, const Unit& unit) {
  std::vector<int64_t> made;
  made.reserve(static_cast<size_t>(shape.rows * shape.columns * shape.positions));
  for (int64_t r = 0; r < shape.rows; ++r)
    for (int64_t c = 0; c < shape.columns; ++c)
      for (int64_t p = 0; p < shape.positions; ++p) made.push_back(unit(r, c, p));
  return made;
}

std::vector<int64_t> unit_numbers(const WeightShape& shape, const Pattern& pattern) {
  const int64_t across = parts(shape.columns, pattern.block_columns);
  switch (pattern.kind) {
    case PatternKind::blocks:
      return each_element(shape, [&](int64_t r, int64_t c, int64_t p) {
        return (r / pattern.block_rows * across + c / pattern.block_columns) * shape.positions + p;
      });
    case PatternKind::rows:
      return each_element(shape, [](int64_t r, int64_t, int64_t) { return r; });
    case PatternKind::columns:
      return each_element(shape, [](int64_t, int64_t c, int64_t) { return c; });
    default: {
      int64_t next = 0;
      return each_element(shape, [&](int64_t, int64_t, int64_t) { return next++; });
    }
  }
}

int64_t unit_count(const WeightShape& shape, const Pattern& pattern) {
  switch (pattern.kind) {
    case PatternKind::blocks:
      return parts(shape.rows, pattern.block_rows) * parts(shape.columns, pattern.block_columns) *
             shape.positions;
    case PatternKind::rows:
      return shape.rows;
    case PatternKind::columns:
      return shape.columns;
    default:
      return shape.rows * shape.columns * shape.positions;
  }
}

/// A mask of the layer; undefined where there is none.
at::Tensor checked_mask(const LayerScores& layer, const at::Tensor& mask) {
  if (!mask.defined()) return {};
  if (mask.scalar_type() != at::kBool || mask.sizes() != layer.scores.sizes()) {
    fail(kSelectWhere, "expected a mask of bools of sizes ", layer.scores.sizes(), " for '", layer.name,
         "', got ", mask.dtype(), ' ', mask.sizes());
  }
  return mask.to(at::kCPU).contiguous();
}

/// The scores as doubles, and which elements are and were kept.
struct ElementScores {
  at::Tensor scores, keep, before;
};
ElementScores checked(const LayerScores& layer) {
  if (!layer.scores.defined() || !layer.scores.is_floating_point())
    fail(kSelectWhere, "expected scores of floating-point numbers for '", layer.name, "'");
  return {layer.scores.detach().to(at::kCPU, at::kDouble).contiguous(), checked_mask(layer, layer.keep),
          checked_mask(layer, layer.before)};
}

/// Which units have an element that was kept.
void count_before(const at::Tensor& before, Units& units) {
  if (!before.defined()) {
    units.alive_before = units.alive;
    units.before = units.remaining;
    return;
  }
  const bool* kept = before.const_data_ptr<bool>();
  units.alive_before.resize(units.alive.size());
  for (size_t i = 0; i < units.of_element.size(); ++i) {
    if (kept[i]) units.alive_before[static_cast<size_t>(units.of_element[i])] = 1;
  }
  for (const char alive : units.alive_before) units.before += alive;
}

double combined(UnitScore how, double score, double next) {
  switch (how) {
    case UnitScore::l2:
      return score + next * next;
    case UnitScore::max:
      return std::max(score, next);
    default:
      return score + next;
  }
}

}  // namespace

WeightShape WeightShape::of(at::IntArrayRef sizes) {
  WeightShape shape;
  if (!sizes.empty()) shape.rows = sizes[0];
  if (sizes.size() > 1) shape.columns = sizes[1];
  for (size_t d = 2; d < sizes.size(); ++d) shape.positions *= sizes[d];
  return shape;
}

Units units_of(const LayerScores& layer, const Pattern& pattern) {
  const ElementScores elements = checked(layer);
  const WeightShape shape = WeightShape::of(elements.scores.sizes());
  const bool free = pattern.kind == PatternKind::free || pattern.kind == PatternKind::n_m;
  const auto count = static_cast<size_t>(unit_count(shape, pattern));
  Units units{layer.name, unit_numbers(shape, pattern), std::vector<double>(count), std::vector<char>(count)};
  std::vector<int64_t> sizes(count);
  std::vector<char> any(count);
  const double* scores = elements.scores.const_data_ptr<double>();
  const bool* keep = elements.keep.defined() ? elements.keep.const_data_ptr<bool>() : nullptr;
  for (size_t i = 0; i < units.of_element.size(); ++i) {
    const auto unit = static_cast<size_t>(units.of_element[i]);
    ++sizes[unit];
    if (keep != nullptr && !keep[i]) continue;
    if (std::isnan(scores[i]))
      fail(kSelectWhere, "expected scores that are numbers, got NaN for element ", i, " of '", layer.name,
           "'");
    if (free) {
      units.score[unit] = scores[i];
    } else {
      const bool first_of_max = pattern.unit_score == UnitScore::max && any[unit] == 0;
      units.score[unit] =
          first_of_max ? scores[i] : combined(pattern.unit_score, units.score[unit], scores[i]);
    }
    any[unit] = units.alive[unit] = 1;
  }
  for (size_t u = 0; u < count; ++u) {
    if (!free && pattern.unit_score == UnitScore::mean && sizes[u] != 0)
      units.score[u] /= static_cast<double>(sizes[u]);
    if (std::isnan(units.score[u]))  // infinities of both signs
      fail(kSelectWhere, "expected scores whose sums are numbers, got NaN for unit ", u, " of '", layer.name,
           "'");
    units.remaining += units.alive[u];
  }
  count_before(elements.before, units);
  return units;
}

UnitGroups groups_of(const LayerScores& layer, const Pattern& pattern) {
  UnitGroups groups{units_of(layer, pattern), {}, 0};
  const WeightShape shape = WeightShape::of(layer.scores.sizes());
  if (layer.scores.dim() < 2 || shape.columns % pattern.m != 0) {
    fail(kSelectWhere, "expected inputs in a multiple of ", pattern.m, " for ", pattern.n, ':', pattern.m,
         " in '", layer.name, "', got sizes ", layer.scores.sizes());
  }
  const int64_t across = shape.columns / pattern.m;
  groups.of_element = each_element(shape, [&](int64_t r, int64_t c, int64_t p) {
    return (r * across + c / pattern.m) * shape.positions + p;
  });
  groups.count = shape.rows * across * shape.positions;
  return groups;
}

}  // namespace ulp::prune
