// What must be cut together when a network gets narrower: channels, heads and neurons with all that belongs to them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::prune {

/// What a slice of a tensor does for a unit.
enum class Role : uint8_t {
  row,        ///< makes the unit: rows of weights, their bias, columns of an embedding
  column,     ///< reads the unit: what a layer behind it multiplies it with
  scale,      ///< gamma of a norm
  shift,      ///< beta of a norm
  statistic,  ///< running mean and variance of a norm
  constant    ///< no parameter: a table that the model computes with
};
/// "row".
ULP_API std::string_view to_string(Role role);

/// A dimension of a tensor that a group cuts.
struct Member {
  std::string tensor;  ///< name of a parameter, buffer or constant of the graph
  int64_t dim = 0;
  Role role = Role::row;
  /// Of each unit of the group: its indices along the dimension, in rising order.
  std::vector<std::vector<int64_t>> indices;
};

/// Units that are cut in the same way: the channels of a layer, or of all layers that a residual stream joins.
struct ULP_API Group {
  std::vector<Member> members;
  int64_t units = 0;
  /// Layers whose rows are cut and layers whose columns are, by name, in the model's order.
  std::vector<std::string> producers, consumers;
  /// Where removing units does not equal zeroing them, one sentence each; only with GroupOptions::inexact.
  std::vector<std::string> notes;
  /// Why units cannot be copied: an op adds up over them what no weight multiplies by zeros for the copies,
  /// or repeats a single one. Empty where they can (insert_units()).
  std::string not_copied = {};
  /// The ops that read the members and how, in the graph's order: groups with the same pattern are isomorphic.
  std::string pattern = {};

  /// The first producer, or the first consumer where there is none: for messages.
  std::string name() const;
};

/// A layer whose rows cannot be cut, and why: "aten::softmax 'softmax' keeps its channels".
struct Obstacle {
  std::string layer, reason;
};

/// How groups are looked for.
struct GroupOptions {
  /// Follow channels through layer norm, group norm and means over the channels, too. Their results change when channels
  /// are removed, more than when they are zeroed: the network has to be trained afterwards.
  bool inexact = false;
};

/// The groups of a graph.
struct Groups {
  GroupOptions options;
  std::vector<Group> groups;
  std::vector<Obstacle> obstacles;
};

/// Finds what must be cut together: the closure over all values of the graph of the rules in ulp/prune/structured/rules (the
/// dependency graph of Fang et al. 2023, "DepGraph", by position instead of by layer, so that joins, splits, flattening,
/// shuffles and shared weights need no cases of their own). The inputs and results of the model are never cut. An op without
/// a rule keeps the channels of all it reads and makes, and is named in `obstacles`. What is cut of
///   a grouped convolution: whole groups, or the same channels of each group, whichever are more;
///   attention: whole heads, with the query heads that follow a key-value head;
///   LSTM and GRU: a unit of all layers and directions of the call, whose states are one tensor;
///   channels that are shuffled: the same ones of each group.
/// Groups are in the order of the graph's attributes. Throws ulp::Error for a graph that does not verify.
ULP_API Groups groups(const graph::Graph& graph, const GroupOptions& options = {});

/// A table of the groups and the obstacles.
ULP_API std::ostream& operator<<(std::ostream& out, const Groups& groups);

}  // namespace ulp::prune
