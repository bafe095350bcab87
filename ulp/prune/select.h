// Which elements to prune: exactly so many of those with the lowest scores.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/prune/amount.h"

namespace ulp::prune {

/// The elements that are pruned together. A weight [outputs, inputs, kernel...] has `outputs` rows, `inputs`
/// columns and kernel positions.
enum class PatternKind : uint8_t {
  free,     ///< single elements
  n_m,      ///< n of m neighbours along the inputs are kept (2:4), at each row and kernel position
  blocks,   ///< block_rows x block_columns neighbours at one kernel position; blocks at the edges are smaller
  rows,     ///< whole rows
  columns,  ///< whole columns, at all kernel positions
};

/// How the scores of a unit's elements make its own. Elements that are pruned already count as 0; of max they do not count.
enum class UnitScore : uint8_t { mean, sum, l2, max };

/// The shape of what is pruned.
struct ULP_API Pattern {
  PatternKind kind = PatternKind::free;
  int64_t n = 2, m = 4;                        ///< of n_m
  bool reorder = false;                        ///< of n_m: reorder_for_n_m() comes first
  int64_t block_rows = 16, block_columns = 4;  ///< of blocks
  UnitScore unit_score = UnitScore::mean;      ///< of blocks, rows and columns

  static Pattern of(PatternKind kind) { return {.kind = kind}; }
  static Pattern n_of_m(int64_t n, int64_t m) { return {.kind = PatternKind::n_m, .n = n, .m = m}; }
  static Pattern blocks(int64_t rows, int64_t columns) {
    return {.kind = PatternKind::blocks, .block_rows = rows, .block_columns = columns};
  }
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  bool operator==(const Pattern&) const = default;
};

/// Among which units the lowest scores are found.
enum class Scope : uint8_t {
  layer,   ///< each parameter by itself
  global,  ///< all parameters together
  row  ///< each row of each parameter by itself, as Wanda does; fractions are truncated: int(columns * fraction)
};

/// An amount for the parameters that a pattern names, which are then pruned each by itself ('*' is any run of
/// characters, and the name of a module stands for what is in it).
struct ULP_API NamedAmount {
  std::string parameters;
  Amount amount;
  void visit_fields(FieldVisitor& visit);
  bool operator==(const NamedAmount&) const = default;
};

/// Options of select().
struct ULP_API Selection {
  Pattern pattern = {};
  Scope scope = Scope::layer;
  Amount amount = {};  ///< of each layer, of all together, or of each row; n_m has its own
  double floor = 0;    ///< global: at least this share of each layer's units is kept, in [0, 1]
  std::vector<NamedAmount> overrides = {};  ///< the last one that matches a layer wins
  /// How far to go from LayerScores::before to the amounts, in (0, 1]: at each step of the way what is kept falls by the same factor;
  /// 1 is exact.
  double way = 1;
};

/// The scores of one parameter.
struct LayerScores {
  std::string name;
  at::Tensor scores;       ///< any floating-point type; the lowest are pruned first
  at::Tensor keep;         ///< bool, the mask that it has now; undefined: none
  at::Tensor before = {};  ///< bool, the mask that amounts count from; undefined: keep
};

/// The masks of the layers, bool and of their shapes, after the units with the lowest scores are pruned
/// besides those that were: exactly as many as the amounts say, those of the first layer and the lowest
/// row-major index first where scores are equal. Scores are compared as doubles, by one thread. Throws
/// ulp::Error naming the layer for NaN among the scores of what is kept, for a mask of another shape, for
/// amounts that cannot be (Amount::to_prune), for a floor that leaves too little to prune, and for a layer
/// whose inputs are no multiple of m.
ULP_API std::vector<at::Tensor> select(const std::vector<LayerScores>& layers, const Selection& selection);

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::PatternKind> {
  using enum prune::PatternKind;
  static constexpr std::array<Word<prune::PatternKind>, 5> list = {
      {{free, "free", "single weights"},
       {n_m, "n_m", "n of m neighbours are kept"},
       {blocks, "blocks", "blocks of weights"},
       {rows, "rows", "whole rows"},
       {columns, "columns", "whole columns"}}};
};
template <>
struct ulp::EnumNames<ulp::prune::UnitScore> {
  using enum prune::UnitScore;
  static constexpr std::array<Word<prune::UnitScore>, 4> list = {
      {{mean, "mean"}, {sum, "sum"}, {l2, "l2"}, {max, "max"}}};
};
template <>
struct ulp::EnumNames<ulp::prune::Scope> {
  using enum prune::Scope;
  static constexpr std::array<Word<prune::Scope>, 3> list = {{{layer, "layer", "each parameter by itself"},
                                                              {global, "global", "all together"},
                                                              {row, "row", "each row by itself"}}};
};
