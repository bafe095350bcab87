#include "ulp/exchange/onnx_import/straight_sizes.h"

#include <algorithm>
#include <array>

#include "ulp/exchange/straight_values.h"

namespace ulp::exchange::onnx_import {

namespace {

using Values = std::map<std::string, at::Tensor>;

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
  /// `base`: the known values of a run of the examples.
  Bends(Store& store, const Inputs& inputs, const FreeAxis& axis, const Values& base)
      : store_(store), axis_(axis), seen_{base} {
    for (size_t i = 1; i < seen_.size(); ++i)
      seen_[i] = values_at(zeros_along(inputs.examples, inputs.options, axis, static_cast<int64_t>(i)));
    look_in(store.model().graph);
    look_far(inputs);
  }

  /// Refuses a value that harms: where capture would take it from the polynomial, or for a constant.
  void refuse() const {
    for (const auto& [name, why] : bent_) {
      if (store_.argued.contains(name) || store_.fixed.contains(name)) fail_file(kImportOnnxWhere, why);
    }
  }

 private:
  Values values_at(const std::vector<at::Tensor>& examples) const {
    Run run(store_, /*training=*/false, /*dry=*/true);
    run.forward(examples);
    return run.known_values();
  }

  SeenValue seen(const std::string& name) const {
    SeenValue values;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto found = seen_[i].find(name);
      if (found != seen_[i].end()) values[i] = found->second;
    }
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
      for (const FileAttribute& attribute : node.attributes) {
        if (attribute.g) look_in(*attribute.g);
      }
      if (!has_graph(node)) look_at(node);
    }
  }

  void look_at(const FileNode& node) {
    for (const std::string& input : node.inputs) {
      const auto bent = bent_.find(input);
      if (bent != bent_.end()) return mark(node, bent->second);
    }
    if (is_straight(node)) return;
    std::map<std::string, SeenValue> given;
    bool follows = false;
    for (const std::string& input : node.inputs) {
      if (input.empty() || store_.is_initializer(input)) continue;
      const at::Tensor stored = store_.find(input);
      SeenValue values = stored.defined() ? SeenValue{stored, stored, stored} : seen(input);
      if (!are_alike(values)) return;
      follows = follows || moves(values);
      given[input] = std::move(values);
    }
    std::vector<SeenValue> results;
    for (const std::string& output : node.outputs) {
      results.push_back(seen(output));
      if (!output.empty() && !are_alike(results.back())) return;
    }
    if (!follows) return;
    for (const int64_t size : probed_sizes(axis_)) {
      if (!is_straight_at(node, given, results, size)) return mark(node, why(node.label(), size));
    }
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
    const int64_t size = axis_.name.empty() ? kFarBatch : sizes[0], steps = axis_.steps_to(size);
    Values far;
    try {
      far = values_at(zeros_along(inputs.examples, inputs.options, axis_, steps));
    } catch (const Error&) {
      return;  // the network cannot take this size
    }
    for (const auto& [name, value] : far) {
      const SeenValue values = seen(name);
      if (are_alike(values) && !agrees(value, extended(values, steps)))
        bent_.emplace(name, why("value '" + name + "'", size));
    }
  }

  void mark(const FileNode& node, const std::string& why) {
    for (const std::string& output : node.outputs) {
      if (!output.empty()) bent_.emplace(output, why);
    }
  }

  Store& store_;
  const FreeAxis& axis_;
  std::array<Values, 3> seen_;
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
  const Values base = run.known_values();
  for (const FreeAxis& axis : free_axes(inputs.examples, inputs.options))
    Bends(store, inputs, axis, base).refuse();
}

}  // namespace ulp::exchange::onnx_import
