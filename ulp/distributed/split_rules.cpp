#include "ulp/distributed/split_rules.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "ulp/graph/passes/pattern.h"

namespace ulp::distributed {

namespace {

using graph::Argument;
using graph::Node;
using graph::Value;

constexpr int64_t kBatch = 7919;

const std::string kDone;

int64_t product(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  return std::accumulate(sizes.begin() + static_cast<ptrdiff_t>(begin),
                         sizes.begin() + static_cast<ptrdiff_t>(end), int64_t{1}, std::multiplies<>());
}

/// A dimension that may be counted from the end; -1 where it is no number.
int64_t dim_of(const Argument& argument, size_t dims) {
  const auto dim = graph::integer(argument);
  if (!dim) return -1;
  return *dim < 0 ? *dim + static_cast<int64_t>(dims) : *dim;
}

void set(SplitFlow& flow, const Value* value, const Split& split) {
  flow.splits[value] = split;
}

std::string follow_pointwise(SplitFlow& flow, Node& node) {
  const auto result = static_cast<int64_t>(sizes_of(node.output()).size());
  std::optional<int64_t> from_end;
  Split split;
  for (const Value* value : node.reads()) {
    const auto found = flow.splits.find(value);
    if (found == flow.splits.end()) continue;
    const int64_t own_from_end = static_cast<int64_t>(sizes_of(value).size()) - found->second.dim;
    if (from_end && (own_from_end != *from_end || found->second.outer != split.outer ||
                     found->second.units != split.units || found->second.inner != split.inner))
      return "its arguments are split in different ways";
    split = found->second;
    from_end = own_from_end;
  }
  for (const Value* value : node.reads()) {
    if (flow.splits.contains(value)) continue;
    const auto sizes = sizes_of(value);
    const auto dims = static_cast<int64_t>(sizes.size());
    if (dims >= *from_end && sizes[static_cast<size_t>(dims - *from_end)] != 1)
      return "one of its arguments is not split";
  }
  split.dim = result - *from_end;
  set(flow, node.output(), split);
  return kDone;
}

/// Changes entry `index` of a list of sizes to what this rank has.
void scale_size(Argument& list, size_t index, int64_t own, int64_t whole) {
  if (list.kind == Argument::Kind::literal) {
    auto numbers = list.literal.toIntVector();
    if (numbers[index] >= 0) numbers[index] = numbers[index] / whole * own;
    list.literal = numbers;
    return;
  }
  Argument& item = list.items[index];
  if (item.kind == Argument::Kind::batch) {
    item.batch.numerator = item.batch.numerator / whole * own;
    item.batch.offset = item.batch.offset / whole * own;
  } else if (item.literal.toInt() >= 0) {
    item.literal = item.literal.toInt() / whole * own;
  }
}

/// The split of a reshaped value: dimensions of both shapes fall into groups of equal products; units stay together
/// where a dimension of the result holds them as outer * units * inner.
std::optional<Split> reshaped(const std::vector<int64_t>& from, const std::vector<int64_t>& to, Split split) {
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    size_t i_end = i + 1, j_end = j + 1;
    int64_t left = from[i], right = to[j];
    while (left != right) {
      if (left < right && i_end < from.size())
        left *= from[i_end++];
      else if (left > right && j_end < to.size())
        right *= to[j_end++];
      else
        return std::nullopt;
    }
    const auto at = static_cast<size_t>(split.dim);
    if (at >= i && at < i_end) {
      const int64_t outer = product(from, i, at) * split.outer;
      const int64_t inner = split.inner * product(from, at + 1, i_end);
      for (size_t d = j; d < j_end; ++d) {
        const int64_t before = product(to, j, d), behind = product(to, d + 1, j_end);
        if (outer % before != 0 || inner % behind != 0) continue;
        const Split result{static_cast<int64_t>(d), outer / before, split.units, inner / behind};
        if (result.size() == to[d]) return result;
      }
      return std::nullopt;
    }
    i = i_end;
    j = j_end;
  }
  return std::nullopt;
}

std::string follow_reshape(SplitFlow& flow, Node& node) {
  const Value* input = node.args[0].value;
  const auto split = reshaped(sizes_of(input), sizes_of(node.output()), *flow.of(node.args[0]));
  if (!split) return "it divides a unit";
  set(flow, node.output(), *split);
  if (node.is("aten::flatten")) return kDone;
  const int64_t units = flow.own(split->units, *split);
  if (node.is("aten::reshape_as") || node.is("aten::view_as")) {
    std::vector<Argument> sizes(node.output()->meta->sizes.begin(), node.output()->meta->sizes.end());
    Argument shape = Argument::list(std::move(sizes));
    scale_size(shape, static_cast<size_t>(split->dim), units, split->units);
    flow.edits.emplace_back([&graph = flow.graph, &node, shape] {
      graph.retarget(&node, "aten::reshape", {node.args[0], shape});
    });
    return kDone;
  }
  const int64_t first = node.is("aten::unflatten") ? dim_of(node.arg("dim"), sizes_of(input).size()) : 0;
  Argument* sizes = &node.arg(node.is("aten::reshape")     ? "shape"
                              : node.is("aten::unflatten") ? "sizes"
                                                           : "size");
  const auto index = split->dim - first;
  const auto length = sizes_of(node.output()).size() - sizes_of(input).size() + 1;
  if (node.is("aten::unflatten") && (index < 0 || index >= static_cast<int64_t>(length))) return kDone;
  flow.edits.emplace_back([sizes, index, units, whole = split->units] {
    scale_size(*sizes, static_cast<size_t>(index), units, whole);
  });
  return kDone;
}

std::string follow_transpose(SplitFlow& flow, Node& node) {
  Split split = *flow.of(node.args[0]);
  const size_t dims = sizes_of(node.args[0].value).size();
  if (node.is("aten::permute")) {
    const auto order = graph::integers(node.arg("dims"));
    if (!order) return "its order of dimensions is not known";
    for (size_t d = 0; d < order->size(); ++d) {
      if (((*order)[d] + static_cast<int64_t>(dims)) % static_cast<int64_t>(dims) != split.dim) continue;
      split.dim = static_cast<int64_t>(d);
      break;
    }
  } else {
    const int64_t a = dim_of(node.arg("dim0"), dims), b = dim_of(node.arg("dim1"), dims);
    split.dim = split.dim == a ? b : split.dim == b ? a : split.dim;
  }
  set(flow, node.output(), split);
  return kDone;
}

/// chunk and split into equal parts, along the outer parts of the split or along another dimension.
std::string follow_chunk(SplitFlow& flow, Node& node) {
  Split split = *flow.of(node.args[0]);
  const auto sizes = sizes_of(node.args[0].value);
  if (dim_of(node.arg("dim"), sizes.size()) == split.dim) {
    const auto parts = static_cast<int64_t>(node.outputs().size());
    if (split.outer != parts ||
        sizes_of(node.output())[static_cast<size_t>(split.dim)] * parts != split.size())
      return "it divides the units";
    split.outer = 1;
    const int64_t own = flow.own(split.units * split.inner, split);
    if (node.is("aten::split")) {
      Argument* size = &node.args[1];
      if (!graph::integer(*size)) return "its parts are not of one size";
      flow.edits.emplace_back([size, own] { size->literal = own; });
    } else if (!node.is("aten::chunk")) {
      return "it divides the units";
    }
  }
  for (const auto& output : node.outputs()) set(flow, output.get(), split);
  return kDone;
}

/// Products of matrices, one for each place in the other dimensions.
std::string follow_products(SplitFlow& flow, Node& node) {
  const bool attention = node.is("aten::scaled_dot_product_attention");
  const size_t operands = attention ? 3 : 2;
  const Split* split = flow.of(node.args[0]);
  const auto dims = static_cast<int64_t>(sizes_of(node.output()).size());
  for (size_t i = 0; i < operands; ++i) {
    const Split* other = flow.of(node.args[i]);
    if (split == nullptr || other == nullptr || !(*other == *split))
      return "its arguments are split in different ways";
  }
  if (split->dim >= dims - 2) return "it adds up over the units";
  if (attention && node.args[3].is_value()) {
    const auto mask = sizes_of(node.args[3].value);
    const int64_t at = static_cast<int64_t>(mask.size()) - (dims - split->dim);
    if (flow.of(node.args[3]) != nullptr || (at >= 0 && mask[static_cast<size_t>(at)] != 1))
      return "its mask differs between heads";
  }
  set(flow, node.output(), *split);
  return kDone;
}

std::string follow_softmax(SplitFlow& flow, Node& node) {
  const Split& split = *flow.of(node.args[0]);
  if (dim_of(node.arg("dim"), sizes_of(node.output()).size()) == split.dim)
    return "it adds up over the units";
  set(flow, node.output(), split);
  return kDone;
}

using Rule = std::string (*)(SplitFlow& flow, Node& node);

const std::map<std::string_view, Rule>& rules() {
  static const std::map<std::string_view, Rule> table = [] {
    std::map<std::string_view, Rule> made = {
        {"aten::view", follow_reshape},         {"aten::reshape", follow_reshape},
        {"aten::reshape_as", follow_reshape},   {"aten::view_as", follow_reshape},
        {"aten::_unsafe_view", follow_reshape}, {"aten::flatten", follow_reshape},
        {"aten::unflatten", follow_reshape},    {"aten::transpose", follow_transpose},
        {"aten::permute", follow_transpose},    {"aten::chunk", follow_chunk},
        {"aten::split", follow_chunk},          {"aten::matmul", follow_products},
        {"aten::bmm", follow_products},         {"aten::scaled_dot_product_attention", follow_products},
        {"aten::softmax", follow_softmax},      {"aten::_softmax", follow_softmax}};
    for (const char* op :
         {"aten::relu",     "aten::gelu",      "aten::silu",       "aten::mish",       "aten::tanh",
          "aten::sigmoid",  "aten::hardswish", "aten::hardtanh",   "aten::leaky_relu", "aten::elu",
          "aten::softplus", "aten::exp",       "aten::neg",        "aten::abs",        "aten::square",
          "aten::sqrt",     "aten::pow",       "aten::clamp",      "aten::dropout",    "aten::contiguous",
          "aten::clone",    "aten::to",        "aten::alias",      "aten::add",        "aten::sub",
          "aten::mul",      "aten::div",       "aten::masked_fill"})
      made[op] = follow_pointwise;
    return made;
  }();
  return table;
}

}  // namespace

const Split* SplitFlow::of(const Argument& argument) const {
  if (!argument.is_value()) return nullptr;
  const auto found = splits.find(argument.value);
  return found == splits.end() ? nullptr : &found->second;
}

int64_t SplitFlow::own(int64_t whole, const Split& split) const {
  return whole / split.units * split.units_of(rank, ranks);
}

std::vector<int64_t> sizes_of(const Value* value) {
  std::vector<int64_t> sizes;
  if (!value->meta) return sizes;
  for (const graph::SizeExpr& size : value->meta->sizes) sizes.push_back(size.at(kBatch));
  return sizes;
}

bool draws_random_numbers(const Node& node) {
  return node.op().find("dropout") != std::string_view::npos || node.is("aten::scaled_dot_product_attention");
}

bool can_follow(const Node& node) {
  return node.kind() == Node::Kind::call && rules().contains(node.op());
}

std::string follow(SplitFlow& flow, Node& node) {
  if (!can_follow(node)) return "it is not known to compute with parts";
  for (const auto& output : node.outputs())
    if (!output->meta) return "its sizes are not known";
  const Rule rule = rules().at(node.op());
  if (rule != follow_pointwise && flow.of(node.args[0]) == nullptr) return "its first argument is not split";
  return rule(flow, node);
}

}  // namespace ulp::distributed
