// What a rule sees of the node it is run on, and what it can say. Internal to the room.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/prune/structured/tracker.h"

namespace ulp::prune {

/// Thrown by Visit::refuse: the op keeps all its dimensions.
struct Refusal {
  std::string why;
};

/// One node under a rule. A rule reads the layouts of the arguments, relates their axes, and gives each output one.
class Visit {
 public:
  Visit(Tracker& tracker, const graph::Node& node, size_t place)
      : node(node), tracker_(tracker), place_(place) {}

  const graph::Node& node;

  Axes& axes() { return tracker_.axes_; }
  const GroupOptions& options() const { return tracker_.options_; }
  const graph::Graph& graph() const { return tracker_.graph_; }

  /// The argument is a tensor that is given.
  bool has(std::string_view name) const;
  /// Layout of a tensor argument.
  const Layout& in(std::string_view name) const { return in(node.arg(name)); }
  const Layout& in(const graph::Argument& arg) const;
  /// The whole number of an argument; refuses what is none.
  int64_t integer(std::string_view name) const;
  std::optional<int64_t> integer_if(std::string_view name) const;
  /// The list of whole numbers of an argument; refuses what is none.
  std::vector<int64_t> integers(std::string_view name) const;
  /// The dimension that an argument names, from 0.
  size_t dim(std::string_view name, const Layout& of) const;

  /// Sets the layout of an output. Refuses one whose sizes are not those seen at capture.
  void out(Layout layout, size_t index = 0);
  /// Fresh axes of the sizes seen at capture; refuses where they are not known.
  Layout like_meta(const graph::Value* value);
  const graph::TensorMeta& meta(const graph::Value* value) const;

  /// An axis of this size that stays because of this op.
  Axis fixed(size_t size) { return axes().make_fixed(static_cast<int64_t>(size), reason()); }
  void fix(const Axis& axis, const std::string& why = "") { axes().fix(axis, reason(why)); }
  /// The op computes something else with fewer positions than with zeros: fixed, or noted where the options say so.
  void inexact(const Axis& axis, const std::string& why);
  /// Positions of two axes are the same ones; refuses other sizes.
  void unite(const Axis& a, const Axis& b);
  /// The sum over products of two axes, of which zeros must be on one side.
  void contract(const Layout& a, size_t a_dim, const Layout& b, size_t b_dim);
  /// The op adds up over an axis, times these arguments.
  void sum(const Axis& axis, std::initializer_list<const graph::Argument*> factors = {});
  void mark(const Axis& axis, Role role);
  void rewrite(Rewrite rewrite) { tracker_.rewrites_.emplace_back(place_, std::move(rewrite)); }

  /// "aten::softmax 'softmax_3' keeps its channels" and why.
  std::string reason(const std::string& why = "") const;
  [[noreturn]] void refuse(const std::string& why) const { throw Refusal{why}; }

 private:
  Tracker& tracker_;
  size_t place_;
};

/// Puts `count` in the place of a whole number.
void set_integer(graph::Argument& arg, int64_t count);
/// Item i of a list of sizes follows axes[i]; -1 stays.
void rewrite_sizes(Visit& visit, std::string_view name, std::vector<Axis> axes);

}  // namespace ulp::prune
