#include "ulp/exchange/name_sizes.h"

#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>
#include <vector>

#include "ulp/exchange/seen_values.h"
#include "ulp/libtorch/shape_propagation.h"

namespace ulp::exchange {

namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;
using Sizes = std::vector<int64_t>;

constexpr int64_t kBatches[] = {1, 2, 3, 5, 9};
/// A run at a larger batch takes too long.
constexpr int64_t kMostBatch = 128;
constexpr size_t kFewestRuns = 3;

/// A bound of a slice, counted from the front; 0 for what takes all of a dimension.
int64_t bound_of(const Node& node, const char* name) {
  const Argument& arg = node.arg(name);
  if (arg.kind != Argument::Kind::literal || !arg.literal.isInt()) return 0;
  return std::abs(arg.literal.toInt());
}

/// Bounds by which a call cuts a dimension whose size is free; empty for every other call.
std::vector<int64_t> cuts_of(const Node& node) {
  const bool slice = node.is("aten::slice"), narrow = node.is("aten::narrow");
  const bool parts = node.is("aten::chunk") || node.is("aten::split") || node.is("aten::split_with_sizes");
  if (!slice && !narrow && !parts) return {};
  const Value* x = node.args.at(0).value;
  const Argument& dim = node.arg("dim");
  if (x == nullptr || !x->meta || dim.kind != Argument::Kind::literal || !dim.literal.isInt()) return {};
  const int64_t rank = std::ssize(x->meta->sizes), at = dim.literal.toInt();
  if (at < -rank || at >= rank) return {};
  if (x->meta->sizes[static_cast<size_t>(at < 0 ? at + rank : at)].constant()) return {};
  if (parts) return {1};
  const std::vector<int64_t> bounds = {bound_of(node, "start"), bound_of(node, slice ? "end" : "length")};
  std::vector<int64_t> cuts;
  for (const int64_t bound : bounds) {
    if (bound > 0 && bound < std::numeric_limits<int32_t>::max()) cuts.push_back(bound);
  }
  // Every second element of 4 is 2 of them, and of 5 it is 3: as much as n - 2.
  if (slice && cuts.empty() && bound_of(node, "step") != 1) cuts.push_back(1);
  return cuts;
}

/// What is not known, or was seen at too few sizes to be: values without sizes, and what follows a cut of a
/// free dimension.
struct Unsure {
  std::vector<Value*> values;
  std::set<int64_t> around =
      {};  ///< sizes around the bounds of cuts: what they give there tells them from their like
};

Unsure unsure_of(const Graph& graph) {
  Unsure found;
  std::unordered_set<const Value*> cut;
  for (const auto& node : graph.nodes()) {
    if (!runs_in_eval(*node)) continue;
    const std::vector<int64_t> cuts = cuts_of(*node);
    for (const int64_t bound : cuts) {
      for (const int64_t size : {bound - 1, bound, bound + 1}) {
        if (size >= 1) found.around.insert(size);
      }
    }
    const bool follows = !cuts.empty() || std::ranges::any_of(node->reads(), [&](const Value* value) {
      return cut.contains(value);
    });
    for (const auto& output : node->outputs()) {
      if (follows) cut.insert(output.get());
      if (follows || !output->meta) found.values.push_back(output.get());
    }
  }
  return found;
}

/// Adds runs in which each free dimension alone has its two smallest sizes, and all have the smallest: a cut
/// that ends the same at larger ones may end elsewhere there, also where it cuts a multiple of the dimension.
void add_smallest(std::vector<Sizes>& points, const Graph& graph) {
  const Sizes usual = points.at(1);
  Sizes least = {usual[0]};
  for (size_t i = 0; i < graph.free.size(); ++i) {
    const graph::DynamicDimension& free = graph.free[i];
    const int64_t first = free.smallest();
    least.push_back(first);
    for (const int64_t size : {first, first + free.multiple}) {
      Sizes point = usual;
      point[i + 1] = std::min(size, std::max(first, free.max));
      if (std::ranges::find(points, point) == points.end()) points.push_back(std::move(point));
    }
  }
  if (std::ranges::find(points, least) == points.end()) points.push_back(std::move(least));
}

/// Batches beyond the range become those that far inside of its end, each once.
void bring_inside(std::vector<Sizes>& points, const BatchRange& range) {
  std::vector<Sizes> inside;
  for (Sizes& point : points) {
    if (point[0] < range.min) point[0] = range.nearest(range.min + point[0] - 1);
    if (point[0] > range.max) point[0] = range.nearest(range.max - point[0] % std::ssize(kBatches));
    if (std::ranges::find(inside, point) == inside.end()) inside.push_back(point);
  }
  points = std::move(inside);
}

/// The batch and then the free dimensions, for each run.
std::vector<Sizes> points_of(const Graph& graph, const std::set<int64_t>& around) {
  std::vector<Sizes> points;
  for (const int64_t batch : kBatches) {
    Sizes point = {batch};
    for (const graph::DynamicDimension& free : graph.free) {
      const int64_t steps = (batch - 1) * std::ssize(point);  // so that each goes its own way
      point.push_back(std::max(free.max - steps * free.multiple, free.min));
    }
    points.push_back(std::move(point));
  }
  for (const int64_t size : around) {
    Sizes point = {size <= kMostBatch ? size : kBatches[1]};
    for (const graph::DynamicDimension& free : graph.free)
      point.push_back(
          std::clamp(size / free.multiple * free.multiple, free.min, std::max(free.min, free.max)));
    if (std::ranges::find(points, point) == points.end()) points.push_back(std::move(point));
  }
  add_smallest(points, graph);
  bring_inside(points, graph.batch_range);
  return points;
}

/// The inputs of a run; nothing where sizes of one are not known.
std::optional<std::vector<at::Tensor>> inputs_at(const Graph& graph, const Sizes& point) {
  std::vector<at::Tensor> inputs;
  for (const Value* input : graph.inputs()) {
    if (!input->meta) return std::nullopt;
    Sizes shape;
    for (const SizeExpr& size : input->meta->sizes) shape.push_back(size.at(point));
    inputs.push_back(torch::zeros(shape, torch::dtype(input->meta->dtype)));
  }
  return inputs;
}

/// What a value was in a run; nothing for none.
struct Seen {
  at::ScalarType type;
  Sizes sizes;
};
using AllSeen = std::vector<std::optional<Seen>>;

/// The values in a run; none where it fails, as with an index beyond a batch of 1.
AllSeen run_at(const Graph& graph, const std::vector<Value*>& values, const Sizes& point) {
  const auto inputs = inputs_at(graph, point);
  if (!inputs) return {};
  AllSeen seen;
  try {
    libtorch::with_shapes([&] {
      seen.clear();
      for (const at::Tensor& tensor : seen_values(graph, values, *inputs)) {
        seen.emplace_back();
        if (tensor.defined()) seen.back() = Seen{tensor.scalar_type(), tensor.sizes().vec()};
      }
    });
  } catch (const std::exception&) {
    return {};
  }
  return seen;
}

/// What each of the values was in the runs that did not fail, and at which sizes.
struct Runs {
  std::vector<Sizes> points;
  std::vector<AllSeen> seen;
};

Runs runs_of(const Graph& graph, const Unsure& unsure) {
  Runs runs;
  for (const Sizes& point : points_of(graph, unsure.around)) {
    AllSeen seen = run_at(graph, unsure.values, point);
    if (seen.empty()) continue;
    runs.points.push_back(point);
    runs.seen.push_back(std::move(seen));
  }
  return runs;
}

/// Free dimensions by what they were in the runs.
class Names {
 public:
  Names(Graph& graph, const std::vector<Sizes>& points) : graph_(graph), points_(points) {
    for (size_t axis = 0; axis < points[0].size(); ++axis) {
      Sizes seen;
      for (const Sizes& point : points) seen.push_back(point[axis]);
      known_.try_emplace(std::move(seen), axis);
    }
  }

  /// `wish`: the name of a new one.
  SizeExpr size_of(const Sizes& seen, const std::string& wish) {
    if (std::ranges::count(seen, seen[0]) == std::ssize(seen)) return {0, 1, seen[0]};
    if (!known_.contains(seen)) {
      if (const auto line = line_of(seen)) return *line;
    }
    const auto [place, fresh] = known_.try_emplace(seen, graph_.free.size() + 1);
    if (fresh) {
      graph::DynamicDimension free;
      free.name = wish;
      free.min = std::ranges::min(seen);
      free.max = std::ranges::max(seen);
      graph_.free.push_back(std::move(free));
    }
    if (place->second == 0) return {1, 1, 0};
    SizeExpr size;
    size.rest.terms = {{1, 1, std::vector<int32_t>(place->second + 1, 0)}};
    size.rest.terms[0].powers.back() = 1;
    return size;
  }

 private:
  /// So many for each sample and some more, where nothing but the batch is free.
  std::optional<SizeExpr> line_of(const Sizes& seen) const {
    if (points_[0].size() > 1) return std::nullopt;
    const int64_t rise = seen[1] - seen[0], run = points_[1][0] - points_[0][0];
    if (rise % run != 0) return std::nullopt;
    const int64_t slope = rise / run, offset = seen[0] - slope * points_[0][0];
    for (size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] != slope * points_[i][0] + offset) return std::nullopt;
    }
    return SizeExpr{slope, 1, offset};
  }

  Graph& graph_;
  const std::vector<Sizes>& points_;
  std::map<Sizes, size_t> known_;  // to 0 for the batch, i + 1 for free dimension i
};

/// Whether the sizes that are known are those of every run.
bool fits(const SizeExpr& known, const std::vector<Sizes>& points, const Sizes& seen) {
  for (size_t i = 0; i < points.size(); ++i) {
    if (known.at(points[i]) != seen[i]) return false;
  }
  return true;
}

/// Of one value in all runs.
void name_value(Value& value, const AllSeen& seen, const std::vector<Sizes>& points, Names& names) {
  const auto is_alike = [&](const std::optional<Seen>& one) {
    return one && seen[0] && one->sizes.size() == seen[0]->sizes.size() && one->type == seen[0]->type;
  };
  if (!std::ranges::all_of(seen, is_alike)) return;
  graph::TensorMeta meta{.dtype = seen[0]->type, .sizes = {}};
  const bool known = value.meta && value.meta->sizes.size() == seen[0]->sizes.size();
  if (known) meta.channels_last = value.meta->channels_last;
  for (size_t d = 0; d < seen[0]->sizes.size(); ++d) {
    Sizes sizes;
    for (const auto& one : seen) sizes.push_back(one->sizes[d]);
    const SizeExpr* before = known ? &value.meta->sizes[d] : nullptr;
    meta.sizes.push_back(before != nullptr && fits(*before, points, sizes)
                             ? *before
                             : names.size_of(sizes, value.name + "." + std::to_string(d)));
  }
  value.meta = std::move(meta);
}

}  // namespace

void name_sizes(Graph& graph) {
  const Unsure unsure = unsure_of(graph);
  if (unsure.values.empty()) return;
  const Runs runs = runs_of(graph, unsure);
  if (runs.points.size() < kFewestRuns) return;
  Names names(graph, runs.points);
  for (size_t i = 0; i < unsure.values.size(); ++i) {
    AllSeen seen;
    for (const AllSeen& run : runs.seen) seen.push_back(run.at(i));
    name_value(*unsure.values[i], seen, runs.points, names);
  }
}

void see_sizes(Graph& graph, int64_t batch) {
  const Unsure unsure = unsure_of(graph);
  if (unsure.values.empty()) return;
  const AllSeen seen = run_at(graph, unsure.values, {batch});
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i]) continue;
    std::optional<graph::TensorMeta>& meta = unsure.values[i]->meta;
    const bool channels_last = meta && meta->channels_last;
    meta = graph::TensorMeta{.dtype = seen[i]->type, .sizes = {}, .channels_last = channels_last};
    for (const int64_t size : seen[i]->sizes) meta->sizes.push_back({0, 1, size});
  }
}

}  // namespace ulp::exchange
