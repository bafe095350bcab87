// Parameters and multiplications of a graph, as it is and as a cut would leave it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "ulp/base/error.h"
#include "ulp/prune/structured/removed.h"
#include "ulp/prune/structured/select.h"
#include "ulp/prune/structured/size_counter.h"

namespace ulp::prune {

using graph::Argument;
using graph::Node;
using graph::Value;

namespace {

using Sizes = std::vector<int64_t>;
/// The sizes of a value for one item of the batch; empty where they are not known.
using SizesOf = std::function<Sizes(const Value*)>;

int64_t product(const Sizes& sizes, size_t first = 0) {
  int64_t result = 1;
  for (size_t i = first; i < sizes.size(); ++i) result *= sizes[i];
  return result;
}

Sizes item_sizes(const graph::Graph& graph) {
  Sizes sizes{1};
  for (const graph::DynamicDimension& free : graph.free) sizes.push_back(free.max);
  return sizes;
}

/// An expression at one item; sizes that only several items have (N / 2) are counted per item.
double at_item(const graph::SizeExpr& size, const Sizes& item) {
  if (size.denominator > 1 && size.rest.terms.empty())
    return static_cast<double>(size.numerator) / static_cast<double>(size.denominator) +
           static_cast<double>(size.offset);
  return static_cast<double>(size.at(item));
}

int64_t macs_of(const Node& node, const SizesOf& sizes) {
  const auto of = [&](const char* name) { return sizes(node.arg(name).value); };
  const auto at = [&](size_t i) { return sizes(node.args.at(i).value); };
  const Sizes out = node.outputs().empty() ? Sizes{} : sizes(node.output());
  const std::string_view op = node.op();
  if (op == "aten::conv1d" || op == "aten::conv2d" || op == "aten::conv3d")
    return product(out) * product(of("weight"), 1);
  if (op.starts_with("aten::conv_transpose")) return product(of("input")) * product(of("weight"), 1);
  if (op == "aten::convolution" || op == "aten::_convolution") {
    const bool transposed = node.arg("transposed").literal.toBool();
    return product(transposed ? of("input") : out) * product(of("weight"), 1);
  }
  if (op == "aten::linear") return product(out) * of("input").back();
  if (op == "aten::matmul" || op == "aten::mm" || op == "aten::bmm" || op == "aten::mv")
    return product(out) * at(0).back();
  if (op == "aten::addmm" || op == "aten::baddbmm") return product(out) * at(1).back();
  if (op == "aten::scaled_dot_product_attention") {
    const Sizes q = of("query"), k = of("key");
    return (product(q) + product(out)) * k.at(k.size() - 2);
  }
  const bool cell = op.ends_with("_cell");
  if (cell) return at(0).at(0) * (product(of("w_ih")) + product(of("w_hh")));
  if (op == "aten::lstm" || op == "aten::gru" || op == "aten::rnn_tanh" || op == "aten::rnn_relu") {
    int64_t weights = 0;
    for (const Argument& weight : node.arg("params").items) {
      if (sizes(weight.value).size() == 2) weights += product(sizes(weight.value));
    }
    const Sizes x = at(0);
    return x.at(0) * x.at(1) * weights;
  }
  return 0;
}

ModelSize count(const graph::Graph& graph, const SizesOf& sizes,
                const std::function<int64_t(const std::string&)>& elements) {
  ModelSize result;
  std::set<const void*> seen;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (!seen.insert(attribute.tensor.unsafeGetTensorImpl()).second) continue;
    const int64_t left = elements(name);
    if (attribute.kind == graph::Attribute::Kind::parameter) result.parameters += left;
    result.bytes += left * static_cast<int64_t>(attribute.tensor.element_size());
  }
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && !node->train_only) result.macs += macs_of(*node, sizes);
  }
  return result;
}

Sizes plain_sizes(const Value* value, const Sizes& item) {
  Sizes result;
  if (!value->meta) fail("prune.size_of", "expected '", value->name, "' to have known sizes, got none");
  for (const graph::SizeExpr& size : value->meta->sizes)
    result.push_back(static_cast<int64_t>(std::llround(at_item(size, item))));
  return result;
}

}  // namespace

SizeCounter::SizeCounter(const graph::Graph& graph, const Groups& groups)
    : graph_(graph), groups_(groups), tracker_(graph, groups.options), item_(item_sizes(graph)) {}

ModelSize SizeCounter::operator()(const Removals& removals) const {
  const Survivors left = survivors(tracker_, groups_, removals);
  const SizesOf sizes = [&](const Value* value) {
    Sizes result = plain_sizes(value, item_);
    const Layout& layout = tracker_.layout(value);
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      const int64_t all = static_cast<int64_t>(layout.dims[d].size()), kept = left.count(layout.dims[d]);
      if (kept != all) result[d] = result[d] / all * kept;
    }
    return result;
  };
  return count(graph_, sizes, [&](const std::string& name) {
    const auto layout = tracker_.attributes().find(name);
    if (layout == tracker_.attributes().end()) return graph_.find_attribute(name)->tensor.numel();
    int64_t elements = 1;
    for (const Axis& axis : layout->second.dims) elements *= left.count(axis);
    return elements;
  });
}

ModelSize size_of(const graph::Graph& graph) {
  const Sizes item = item_sizes(graph);
  return count(
      graph, [&](const Value* value) { return plain_sizes(value, item); },
      [&](const std::string& name) { return graph.find_attribute(name)->tensor.numel(); });
}

ModelSize size_after(const graph::Graph& graph, const Groups& groups, const Removals& removals) {
  return SizeCounter(graph, groups)(removals);
}

ModelSize rounding_cost(const graph::Graph& graph, const Groups& groups, const Importance& importance,
                        const UnitSelection& options) {
  const SizeCounter counter(graph, groups);
  UnitSelection plain = options;
  plain.round_to = 1;
  plain.widen = {};
  const ModelSize with = counter(select_units(groups, importance, options)),
                  without = counter(select_units(groups, importance, plain));
  return {.parameters = with.parameters - without.parameters,
          .macs = with.macs - without.macs,
          .bytes = with.bytes - without.bytes};
}

double measured(const ModelSize& size, Measure measure) {
  if (measure == Measure::latency)
    fail("prune.measured", "expected macs, parameters or bytes, got latency, which needs a clock");
  return static_cast<double>(measure == Measure::macs    ? size.macs
                             : measure == Measure::bytes ? size.bytes
                                                         : size.parameters);
}

double amount_for_target(const graph::Graph& graph, const Groups& groups, const Importance& importance,
                         const UnitSelection& options, const Target& target) {
  if (target.measure == Measure::latency)
    fail("prune.select_target",
         "expected macs, parameters or bytes, got latency, which select_latency() measures");
  if (!(target.share > 0 && target.share <= 1))
    fail("prune.select_target", "expected a share in (0, 1], got ", target.share);
  const SizeCounter counter(graph, groups);
  const double whole = measured(size_of(graph), target.measure);
  if (whole == 0)
    fail("prune.select_target", "expected a network with ", enum_name(target.measure), ", got one without");
  const auto share_at = [&](double amount) {
    UnitSelection chosen = options;
    chosen.amount = amount;
    return measured(counter(select_units(groups, importance, chosen)), target.measure) / whole;
  };
  const double smallest = share_at(1);
  if (smallest > target.share)
    fail("prune.select_target", "expected ", enum_name(target.measure), " of at most ", target.share,
         " of the network's, got ", smallest, " at the closest");
  double low = 0, high = 1;
  if (share_at(0) <= target.share) return 0;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (share_at(middle) <= target.share ? high : low) = middle;
  }
  return high;
}

Removals select_target(const graph::Graph& graph, const Groups& groups, const Importance& importance,
                       const UnitSelection& options, const Target& target) {
  UnitSelection chosen = options;
  chosen.amount = amount_for_target(graph, groups, importance, options, target);
  return select_units(groups, importance, chosen);
}

}  // namespace ulp::prune
