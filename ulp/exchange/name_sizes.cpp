#include "ulp/exchange/name_sizes.h"

#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <vector>

#include "ulp/exchange/seen_values.h"

namespace ulp::exchange {

namespace {

using graph::Graph;
using graph::SizeExpr;
using graph::Value;
using Sizes = std::vector<int64_t>;

constexpr int64_t kBatches[] = {1, 2, 3, 5, 9};

/// The batch and then the free dimensions, for each run.
std::vector<Sizes> points_of(const Graph& graph) {
  std::vector<Sizes> points;
  for (const int64_t batch : kBatches) {
    Sizes point = {batch};
    for (const graph::FreeDimension& free : graph.free) {
      const int64_t steps = (batch - 1) * std::ssize(point);  // so that each goes its own way
      point.push_back(std::max(free.max - steps * free.multiple, free.min));
    }
    points.push_back(std::move(point));
  }
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

std::vector<Value*> unseen_values(const Graph& graph) {
  std::vector<Value*> values = computed_values(graph);
  std::erase_if(values, [](const Value* value) { return value->meta.has_value(); });
  return values;
}

/// The values in a run; none where it fails, as with an index beyond a batch of 1.
std::vector<at::Tensor> run_at(const Graph& graph, const std::vector<Value*>& values, const Sizes& point) {
  const auto inputs = inputs_at(graph, point);
  if (!inputs) return {};
  try {
    return seen_values(graph, values, *inputs);
  } catch (const std::exception&) {
    return {};
  }
}

/// Free dimensions by what they were in the runs.
class Names {
 public:
  Names(Graph& graph, const std::vector<Sizes>& points) : graph_(graph) {
    for (size_t axis = 0; axis < points[0].size(); ++axis) {
      Sizes seen;
      for (const Sizes& point : points) seen.push_back(point[axis]);
      known_.try_emplace(std::move(seen), axis);
    }
  }

  /// `wish`: the name of a new one.
  SizeExpr size_of(const Sizes& seen, const std::string& wish) {
    if (std::ranges::count(seen, seen[0]) == std::ssize(seen)) return {0, 1, seen[0]};
    const auto [place, fresh] = known_.try_emplace(seen, graph_.free.size() + 1);
    if (fresh) {
      graph::FreeDimension free;
      free.name = wish;
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
  Graph& graph_;
  std::map<Sizes, size_t> known_;  // to 0 for the batch, i + 1 for free dimension i
};

/// Of one value in all runs.
void name_value(Value& value, const std::vector<at::Tensor>& seen, Names& names) {
  const auto is_alike = [&](const at::Tensor& one) {
    return one.defined() && one.dim() == seen[0].dim() && one.scalar_type() == seen[0].scalar_type();
  };
  if (!std::ranges::all_of(seen, is_alike)) return;
  graph::TensorMeta meta{.dtype = seen[0].scalar_type(), .sizes = {}};
  for (int64_t d = 0; d < seen[0].dim(); ++d) {
    Sizes sizes;
    for (const at::Tensor& one : seen) sizes.push_back(one.size(d));
    meta.sizes.push_back(names.size_of(sizes, value.name + "." + std::to_string(d)));
  }
  value.meta = std::move(meta);
}

}  // namespace

void name_sizes(Graph& graph) {
  const std::vector<Value*> values = unseen_values(graph);
  if (values.empty()) return;
  const std::vector<Sizes> points = points_of(graph);
  std::vector<std::vector<at::Tensor>> runs;
  for (const Sizes& point : points) {
    runs.push_back(run_at(graph, values, point));
    if (runs.back().empty()) return;
  }
  Names names(graph, points);
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<at::Tensor> seen;
    for (const auto& run : runs) seen.push_back(run.at(i));
    name_value(*values[i], seen, names);
  }
}

void see_sizes(Graph& graph, int64_t batch) {
  const std::vector<Value*> values = unseen_values(graph);
  const std::vector<at::Tensor> seen = run_at(graph, values, {batch});
  for (size_t i = 0; i < seen.size(); ++i) {
    if (!seen[i].defined()) continue;
    graph::TensorMeta meta{.dtype = seen[i].scalar_type(), .sizes = {}};
    for (const int64_t size : seen[i].sizes()) meta.sizes.push_back({0, 1, size});
    values[i]->meta = std::move(meta);
  }
}

}  // namespace ulp::exchange
