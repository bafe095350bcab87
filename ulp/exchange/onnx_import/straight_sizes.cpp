#include "ulp/exchange/onnx_import/straight_sizes.h"

#include <algorithm>
#include <array>

#include "ulp/exchange/straight_values.h"

namespace ulp::exchange::onnx_import {

namespace {

using Values = std::map<std::string, at::Tensor>;
using Evaluations = std::map<const FileNode*, std::vector<Evaluation>>;

/// What is known of a run: values by names, as they were made last, and each time that a node made some.
struct Known {
  Values values;
  Evaluations evaluations;
};
Known known_of(const Run& run) {
  return {run.known_values(), run.evaluations()};
}

/// Sums, products and moves of polynomials are polynomials; a product of three sizes along one axis is not seen.
bool is_straight(const FileNode& node) {
  static const std::set<std::string> kMoves = {"Add",      "Sub",   "Neg",       "Concat",  "Gather",
                                               "Identity", "Mul",   "Unsqueeze", "Squeeze", "Transpose",
                                               "Constant", "Shape", "Size"};
  return node.domain.empty() && kMoves.contains(node.op);
}

bool has_graph(const FileNode& node) {
  return std::ranges::any_of(node.attributes, [](const FileAttribute& one) { return one.g != nullptr; });
}

/// Which known values leave the polynomial along an axis, and where.
class Bends {
 public:
  /// `base`: what is known of a run of the examples.
  Bends(Store& store, const Inputs& inputs, const FreeAxis& axis, const Known& base)
      : store_(store), axis_(axis), seen_{base} {
    for (size_t i = 1; i < seen_.size(); ++i)
      seen_[i] = values_at(zeros_along(inputs.examples, inputs.options, axis, static_cast<int64_t>(i)));
    look_in(store.model().graph);
    look_far(inputs);
    probes_ = false;
    look_in(store.model().graph);  // what follows values that bend far away
  }

  /// Refuses a value that harms: where capture would take it from the polynomial, or for a constant.
  void refuse() const {
    for (const auto& [name, why] : bent_) {
      if (store_.argued.contains(name) || store_.fixed.contains(name)) fail_file(kImportOnnxWhere, why);
    }
  }

 private:
  Known values_at(const std::vector<at::Tensor>& examples) const {
    Run run(store_, /*training=*/false, /*dry=*/true);
    run.forward(examples);
    return known_of(run);
  }

  SeenValue seen(const std::string& name) const {
    SeenValue values;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto found = seen_[i].values.find(name);
      if (found != seen_[i].values.end()) values[i] = found->second;
    }
    return values;
  }

  /// How often a node was computed; 0 where that differs.
  size_t times_of(const FileNode& node) const {
    std::array<size_t, 3> times = {};
    for (size_t i = 0; i < times.size(); ++i) {
      const auto found = seen_[i].evaluations.find(&node);
      if (found != seen_[i].evaluations.end()) times[i] = found->second.size();
    }
    return times[0] == times[1] && times[0] == times[2] ? times[0] : 0;
  }

  SeenValue seen_input(const FileNode& node, size_t time, const std::string& name) const {
    SeenValue values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = seen_[i].evaluations.at(&node)[time].inputs.at(name);
    return values;
  }

  SeenValue seen_result(const FileNode& node, size_t time, size_t output) const {
    SeenValue values;
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = seen_[i].evaluations.at(&node)[time].results.at(output);
    return values;
  }

  std::string why(const std::string& what, int64_t size) const {
    return concatenate(
        what,
        ": expected a number that follows the sizes of the inputs by a polynomial, got one that "
        "leaves it where ",
        axis_.text_of(size), "; export the model with a fixed size");
  }

  void look_in(const FileGraph& graph) {
    for (const FileNode& node : graph.nodes) {
      if (has_graph(node)) {
        look_in_graph_of(node);
      } else {
        look_at(node);
      }
    }
  }

  bool hand_on(const std::string& from, const std::string& to) {
    const auto bent = bent_.find(from);
    return bent != bent_.end() && !to.empty() && bent_.emplace(to, std::string(bent->second)).second;
  }

  /// What bends outside bends inside; what bends in a step does so in the next one, and behind the node.
  void look_in_graph_of(const FileNode& node) {
    const bool loop = node.op == "Loop";
    const size_t first = loop ? 2 : 0, condition = loop ? 1 : 0;
    for (const FileAttribute& attribute : node.attributes) {
      if (!attribute.g) continue;
      const FileGraph& graph = *attribute.g;
      for (size_t i = first; i < std::min(node.inputs.size(), graph.inputs.size()); ++i)
        hand_on(node.inputs[i], graph.inputs[i].name);
      for (bool more = true; more;) {
        look_in(graph);
        more = false;
        for (size_t i = condition; i < graph.outputs.size() && i - condition + first < graph.inputs.size();
             ++i)
          more = hand_on(graph.outputs[i].name, graph.inputs[i - condition + first].name) || more;
      }
      for (size_t i = condition; i < graph.outputs.size() && i - condition < node.outputs.size(); ++i)
        hand_on(graph.outputs[i].name, node.outputs[i - condition]);
    }
  }

  void look_at(const FileNode& node) {
    for (const std::string& input : node.inputs) {
      const auto bent = bent_.find(input);
      if (bent != bent_.end()) return mark(node, std::string(bent->second));
    }
    if (is_straight(node) || !probes_) return;
    const size_t times = times_of(node);
    for (size_t time = 0; time < times; ++time) {
      if (const std::string bent = bends_at(node, time); !bent.empty()) return mark(node, bent);
    }
  }

  /// Why a node's results leave the polynomial; empty where they do not.
  std::string bends_at(const FileNode& node, size_t time) const {
    std::map<std::string, SeenValue> given;
    bool follows = false;
    for (const std::string& input : node.inputs) {
      if (input.empty() || store_.is_initializer(input)) continue;
      SeenValue values = seen_input(node, time, input);
      if (!are_alike(values)) return "";
      follows = follows || moves(values);
      given[input] = std::move(values);
    }
    std::vector<SeenValue> results;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      results.push_back(seen_result(node, time, i));
      if (!node.outputs[i].empty() && !are_alike(results.back())) return "";
    }
    if (!follows) return "";
    for (const int64_t size : probed_sizes(axis_)) {
      if (!is_straight_at(node, given, results, size)) return why(node.label(), size);
    }
    return "";
  }

  /// True, too, where the network cannot take the size.
  bool is_straight_at(const FileNode& node, const std::map<std::string, SeenValue>& given,
                      const std::vector<SeenValue>& results, int64_t size) const {
    const int64_t steps = axis_.steps_to(size);
    Values values;
    for (const auto& [name, seen] : given) {
      values[name] = extended(seen, steps);
      if (!values[name].defined()) return true;
    }
    std::vector<at::Tensor> found;
    try {
      found = Run(store_, /*training=*/false, /*dry=*/false).results_beside(node, values);
    } catch (const Error&) {
      return true;
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (!node.outputs[i].empty() && !agrees(found.at(i), extended(results[i], steps))) return false;
    }
    return true;
  }

  /// What is computed of tensors whose sizes bend: one run far from the three.
  void look_far(const Inputs& inputs) {
    constexpr int64_t kFarBatch = 9;
    const std::vector<int64_t> sizes = probed_sizes(axis_);
    if (sizes.empty()) return;
    const int64_t size = axis_.name.empty() ? std::clamp(kFarBatch, axis_.smallest, axis_.largest) : sizes[0];
    const int64_t steps = axis_.steps_to(size);
    Known far;
    try {
      far = values_at(zeros_along(inputs.examples, inputs.options, axis_, steps));
    } catch (const Error&) {
      return;  // the network cannot take this size
    }
    const auto compare = [&](const std::string& name, const SeenValue& values, const at::Tensor& value) {
      if (are_alike(values) && !agrees(value, extended(values, steps)))
        bent_.emplace(name, why("value '" + name + "'", size));
    };
    for (const auto& [name, value] : far.values) compare(name, seen(name), value);
    for (const auto& [node, all] : far.evaluations) {
      if (all.size() < 2 || times_of(*node) != all.size()) continue;
      for (size_t time = 0; time < all.size(); ++time) {
        for (size_t i = 0; i < node->outputs.size(); ++i) {
          if (!node->outputs[i].empty())
            compare(node->outputs[i], seen_result(*node, time, i), all[time].results.at(i));
        }
      }
    }
  }

  void mark(const FileNode& node, const std::string& why) {
    for (const std::string& output : node.outputs) {
      if (!output.empty()) bent_.emplace(output, why);
    }
  }

  Store& store_;
  const FreeAxis& axis_;
  std::array<Known, 3> seen_;
  bool probes_ = true;  ///< nodes are computed at other sizes; else what bends is only handed on
  std::map<std::string, std::string> bent_;  ///< why, by the values' names
};

/// Whether numbers that follow sizes do more than to be added, multiplied and moved.
bool has_suspects(const FileGraph& graph, const std::set<std::string>& sized) {
  return std::ranges::any_of(graph.nodes, [&](const FileNode& node) {
    const auto is_cut = node.op == "Slice" || node.op == "Split";  // whose sizes may bend
    const bool follows =
        std::ranges::any_of(node.inputs, [&](const std::string& input) { return sized.contains(input); });
    return has_graph(node) || is_cut || (follows && !is_straight(node));
  });
}

}  // namespace

void check_straight_sizes(Store& store, const Inputs& inputs, const Run& run) {
  std::set<std::string> sized;
  for (const auto& [name, value] : run.sized_values()) {
    if (!store.fixed.contains(name)) sized.insert(name);
  }
  if (sized.empty() || !has_suspects(store.model().graph, sized)) return;
  const Known base = known_of(run);
  for (const FreeAxis& axis : free_axes(inputs.examples, inputs.options))
    Bends(store, inputs, axis, base).refuse();
}

}  // namespace ulp::exchange::onnx_import
