#include "ulp/exchange/onnx_import/straight_sizes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

namespace ulp::exchange::onnx_import {

namespace {

using Values = std::map<std::string, at::Tensor>;

/// Nodes with more numbers than that are tables, no sizes.
constexpr int64_t kMostNumbers = 1024;
/// Whole numbers beyond are limits ("to the end"), no sizes.
constexpr int64_t kLargestSize = int64_t{1} << 40;
/// Of numbers with fractions: what rounding at three sizes makes of a line far away.
constexpr double kTolerance = 1e-4;

/// A size that is free: the batch, or a dimension with a name.
struct FreeAxis {
  std::string name;
  int64_t base = 0, step = 1;  ///< of the three sizes at which it is seen: base, base + step, base + 2 step
  int64_t smallest = 1, largest = 65'537;
};

/// The sizes at which nodes are computed.
std::vector<int64_t> probes(const FreeAxis& axis) {
  std::vector<int64_t> sizes;
  const auto add = [&](int64_t size) {
    if (size >= axis.smallest && size <= axis.largest && (size - axis.base) % axis.step == 0)
      sizes.push_back(size);
  };
  for (int64_t size = 1; size <= 130; ++size) add(size);
  for (int64_t power = 256; power <= 65'536; power *= 2) {
    for (const int64_t size : {power - 1, power, power + 1}) add(size);
  }
  for (const int64_t size : {300, 384, 500, 501, 640, 1000, 1001, 10'000}) add(size);
  return sizes;
}

int64_t batch_of(const Inputs& inputs) {
  for (size_t i = 0; i < inputs.examples.size(); ++i) {
    if (inputs.options.batch_dims[i] >= 0) return inputs.examples[i].size(inputs.options.batch_dims[i]);
  }
  return 0;
}

/// Those that can be seen at three sizes.
std::vector<FreeAxis> free_axes(const Inputs& inputs) {
  std::vector<FreeAxis> axes;
  if (const int64_t batch = batch_of(inputs); batch > 0) axes.push_back({.name = "", .base = batch});
  for (const graph::FreeSize& free : inputs.options.free) {
    const bool known =
        std::ranges::any_of(axes, [&](const FreeAxis& axis) { return axis.name == free.name; });
    const int64_t size = inputs.examples.at(free.input).size(free.dim);
    const int64_t step = std::max<int64_t>(free.multiple, 1);
    if (known || size - 2 * step < free.min) continue;
    axes.push_back({.name = free.name,
                    .base = size,
                    .step = -step,
                    .smallest = std::max<int64_t>(free.min, 1),
                    .largest = std::max(size, free.max)});
  }
  return axes;
}

std::vector<at::Tensor> examples_at(const Inputs& inputs, const FreeAxis& axis, int64_t step) {
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < inputs.examples.size(); ++i) {
    std::vector<int64_t> sizes = inputs.examples[i].sizes().vec();
    const int64_t batch = inputs.options.batch_dims[i];
    if (axis.name.empty() && batch >= 0) sizes[static_cast<size_t>(batch)] += step * axis.step;
    for (const graph::FreeSize& free : inputs.options.free) {
      if (!axis.name.empty() && free.name == axis.name && free.input == i)
        sizes[static_cast<size_t>(free.dim)] += step * axis.step;
    }
    all.push_back(at::zeros(sizes, inputs.examples[i].scalar_type()));
  }
  return all;
}

/// Whether three tensors are numbers of one type and shape.
bool are_alike(const std::array<at::Tensor, 3>& seen) {
  return std::ranges::all_of(seen, [&](const at::Tensor& one) {
    return one.defined() && one.scalar_type() == seen[0].scalar_type() && one.sizes() == seen[0].sizes() &&
           one.numel() <= kMostNumbers && !one.is_complex();
  });
}

/// The polynomial through three tensors, `u` steps behind the first. Undefined where whole numbers are no sizes, or truth values
/// differ.
at::Tensor extended(const std::array<at::Tensor, 3>& seen, int64_t u) {
  if (at::equal(seen[0], seen[1]) && at::equal(seen[0], seen[2])) return seen[0];
  if (seen[0].scalar_type() == at::kBool) return {};
  const bool whole = at::isIntegralType(seen[0].scalar_type(), false);
  const at::ScalarType type = whole ? at::kLong : at::kDouble;
  const at::Tensor first = seen[0].to(type), slope = seen[1].to(type) - first;
  at::Tensor bend = seen[2].to(type) - seen[1].to(type) - slope;
  if (whole) {
    const at::Tensor moves = slope.ne(0).logical_or(bend.ne(0));
    if (moves.logical_and(first.abs().gt(kLargestSize)).any().item<bool>()) return {};
  } else {
    bend = at::where(bend.abs() <= 1e-5 * (1 + first.abs()), at::zeros_like(bend), bend);
  }
  return (first + slope * u + bend * (u * (u - 1) / 2)).to(seen[0].scalar_type());
}

bool is_as_extended(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes()) return false;
  if (at::isIntegralType(found.scalar_type(), true)) return at::equal(found, wanted);
  return at::allclose(found.to(at::kDouble), wanted.to(at::kDouble), kTolerance, kTolerance,
                      /*equal_nan=*/true);
}

/// Sums and moves of straight values are straight.
bool is_straight(const FileNode& node) {
  static const std::set<std::string> kMoves = {"Add",      "Sub",   "Neg",       "Concat",  "Gather",
                                               "Identity", "Mul",   "Unsqueeze", "Squeeze", "Transpose",
                                               "Constant", "Shape", "Size"};
  return node.domain.empty() && kMoves.contains(node.op);
}

class Checker {
 public:
  Checker(Store& store, const Inputs& inputs, const FreeAxis& axis) : store_(store), axis_(axis) {
    for (size_t i = 0; i < seen_.size(); ++i) {
      Run run(store, /*training=*/false, /*dry=*/true);
      run.forward(examples_at(inputs, axis, static_cast<int64_t>(i)));
      seen_[i] = run.known_values();
    }
  }

  void check(const FileGraph& graph) const {
    for (const FileNode& node : graph.nodes) {
      if (node.op == "If") {
        for (const FileAttribute& attribute : node.attributes) {
          if (attribute.g) check(*attribute.g);
        }
      } else if (!is_straight(node)) {
        check(node);
      }
    }
  }

 private:
  std::array<at::Tensor, 3> seen(const std::string& name) const {
    std::array<at::Tensor, 3> values;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto found = seen_[i].find(name);
      if (found != seen_[i].end()) values[i] = found->second;
    }
    return values;
  }

  void check(const FileNode& node) const {
    std::map<std::string, std::array<at::Tensor, 3>> given;
    bool moves = false;
    for (const std::string& input : node.inputs) {
      if (input.empty() || store_.is_initializer(input)) continue;
      const at::Tensor stored = store_.find(input);
      std::array<at::Tensor, 3> values = stored.defined() ? std::array{stored, stored, stored} : seen(input);
      if (!are_alike(values)) return;
      moves = moves || !at::equal(values[0], values[1]) || !at::equal(values[0], values[2]);
      given[input] = std::move(values);
    }
    if (!moves) return;
    std::vector<std::array<at::Tensor, 3>> results;
    for (const std::string& output : node.outputs) {
      results.push_back(seen(output));
      if (!output.empty() && !are_alike(results.back())) return;
    }
    for (const int64_t size : probes(axis_)) check(node, given, results, size);
  }

  void check(const FileNode& node, const std::map<std::string, std::array<at::Tensor, 3>>& given,
             const std::vector<std::array<at::Tensor, 3>>& results, int64_t size) const {
    const int64_t steps = (size - axis_.base) / axis_.step;
    Values values;
    for (const auto& [name, seen] : given) {
      values[name] = extended(seen, steps);
      if (!values[name].defined()) return;
    }
    std::vector<at::Tensor> found;
    try {
      found = Run(store_, /*training=*/false, /*dry=*/false).results_beside(node, values);
    } catch (const Error&) {
      return;  // the network cannot take this size
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      const at::Tensor wanted = extended(results[i], steps);
      if (!wanted.defined() || !is_as_extended(found.at(i), wanted))
        fail_file(kImportOnnxWhere, node.label(),
                  ": expected a number that follows the sizes of the inputs by a polynomial, got one that "
                  "leaves it where ",
                  axis_.name.empty() ? "the batch" : "'" + axis_.name + "'", " is ", size,
                  "; export the model with a fixed size");
    }
  }

  Store& store_;
  const FreeAxis& axis_;
  std::array<Values, 3> seen_;
};

/// Whether a node computes what could bend from what follows sizes.
bool has_suspects(const FileGraph& graph, const Values& sized) {
  return std::ranges::any_of(graph.nodes, [&](const FileNode& node) {
    if (node.op == "If") return true;
    return !is_straight(node) && !node.inputs.empty() &&
           std::ranges::any_of(node.inputs, [&](const std::string& input) { return sized.contains(input); });
  });
}

}  // namespace

void check_straight_sizes(Store& store, const Inputs& inputs) {
  const at::NoGradGuard no_grad;
  Run run(store, /*training=*/false, /*dry=*/true);
  run.forward(inputs.examples);
  const FileGraph& graph = store.model().graph;
  if (!has_suspects(graph, run.sized_values())) return;
  for (const FreeAxis& axis : free_axes(inputs)) Checker(store, inputs, axis).check(graph);
}

}  // namespace ulp::exchange::onnx_import
