// Which units go: the least important ones of each group or of all, in widths that suit the machine, up to a size that is wanted.
#pragma once

#include <cstdint>
#include <functional>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/prune/structured/importance.h"
#include "ulp/prune/structured/remove_units.h"

namespace ulp::prune {

/// What units are compared with.
enum class UnitScope : uint8_t {
  local,      ///< those of their group: the same share of each group goes
  global,     ///< all units
  isomorphic  ///< those of groups with the same pattern of ops: the same share of each pattern (Fang et al. 2024, "Isomorphic
              ///< Pruning for Vision Models")
};

/// How units are selected.
struct ULP_API UnitSelection {
  double amount =
      0.5;  ///< share of the units that goes, in [0, 1]: round(amount * units), half to even, of each group, of all, or of each pattern
  UnitScope scope = UnitScope::local;
  double cap = 1;  ///< global and isomorphic: the largest share of a group that goes, in [0, 1]
  /// Channels of each group before earlier cuts, which the cap is taken of; empty: those that it has now.
  std::vector<int64_t> full_widths = {};
  int64_t round_to =
      1;  ///< widths are multiples of it: more is kept, up to all. A head's width is all its channels
  /// Where given: how many units of a group stay where `kept` would by round_to; more, up to all (MeasuredWidths).
  std::function<int64_t(size_t group, int64_t kept)> widen = {};
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// The least important units; of equal ones the first ones, by (group, unit). At least one unit of each group stays, and
/// units of infinite importance do. Throws ulp::Error for options out of range, for importance of other groups, and where `widen`
/// keeps fewer or more units than there are.
ULP_API Removals select_units(const Groups& groups, const Importance& importance,
                              const UnitSelection& options);

/// How large a network is.
struct ModelSize {
  int64_t parameters = 0;  ///< elements of parameters, shared ones once
  int64_t macs = 0;        ///< multiplications of layers and matrix products for one item of the batch
  int64_t bytes = 0;       ///< of parameters, buffers and constants in their own types, shared ones once
};

/// The size of a graph; free dimensions at their largest. MACs are those of convolutions, linear layers, matrix products,
/// attention and recurrent layers.
ULP_API ModelSize size_of(const graph::Graph& graph);
/// The size that remove_units() would leave, without cutting.
ULP_API ModelSize size_after(const graph::Graph& graph, const Groups& groups, const Removals& removals);

/// How much larger a network is because widths are rounded (round_to, widen), at this options.amount: what select_units()
/// leaves, minus what it would leave without.
ULP_API ModelSize rounding_cost(const graph::Graph& graph, const Groups& groups, const Importance& importance,
                                const UnitSelection& options);

/// What is to become smaller.
enum class Measure : uint8_t {
  parameters,
  macs,
  bytes,
  latency  ///< of an engine: only select_latency() knows it
};

/// The size in this measure, which is not latency.
ULP_API double measured(const ModelSize& size, Measure measure);

/// A size to reach.
struct Target {
  Measure measure = Measure::macs;
  double share = 0.5;  ///< of the graph's own size, in (0, 1]
};

/// The smallest amount, to 2^-20, with which the target is reached; options.amount is not read. Throws ulp::Error for
/// a target that cannot be reached, naming the closest share that can, and for Measure::latency.
ULP_API double amount_for_target(const graph::Graph& graph, const Groups& groups,
                                 const Importance& importance, const UnitSelection& options,
                                 const Target& target);
/// The removals of this amount.
ULP_API Removals select_target(const graph::Graph& graph, const Groups& groups, const Importance& importance,
                               const UnitSelection& options, const Target& target);

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::UnitScope> {
  using enum ulp::prune::UnitScope;
  static constexpr std::array<Word<ulp::prune::UnitScope>, 3> list{
      {{local, "local", "the same share of each group"},
       {global, "global", "the least important of all"},
       {isomorphic, "isomorphic", "the same share of groups of the same ops"}}};
};

template <>
struct ulp::EnumNames<ulp::prune::Measure> {
  using enum ulp::prune::Measure;
  static constexpr std::array<Word<ulp::prune::Measure>, 4> list{
      {{parameters, "parameters"},
       {macs, "macs"},
       {bytes, "bytes"},
       {latency, "latency", "measured on this machine"}}};
};
