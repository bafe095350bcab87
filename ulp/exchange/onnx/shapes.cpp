// Ops that change the shape of a tensor and leave its elements as they are, or repeat them.
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx/converters.h"

namespace ulp::exchange::onnx {

namespace {

using graph::Node;
using graph::SizeExpr;
using graph::Value;

/// The sizes of a reshape's result as ONNX can say them in a constant: -1 for one free size, 0 for those that the
/// input has in the same place. Empty where that is not enough.
std::vector<int64_t> constant_target(const std::vector<SizeExpr>& from, const std::vector<SizeExpr>& to) {
  std::vector<int64_t> target;
  std::vector<size_t> free;
  for (const SizeExpr& size : to) {
    if (!size.constant()) free.push_back(target.size());
    target.push_back(size.offset);
  }
  for (size_t& place : free) {
    const bool kept = free.size() > 1 && place < from.size() && from[place] == to[place];
    target[place] = kept ? 0 : -1;
  }
  return std::ranges::count(target, -1) <= 1 ? target : std::vector<int64_t>();
}

void reshape(Builder& builder, const Node& node) {
  reshape_to_output(builder, node, builder.in(node, "self"));
}

/// An Unsqueeze where a Reshape would have to know sizes that do not follow from those of the inputs.
void unsqueeze(Builder& builder, const Node& node) {
  const std::vector<SizeExpr>& to = sizes_of(node, *node.output());
  const std::string x = builder.in(node, "self");
  if (!constant_target(sizes_of(node, *value_arg(node, "self")), to).empty())
    return reshape_to_output(builder, node, x);
  int64_t dim = int_arg(node, "dim");
  if (dim < 0) dim += std::ssize(to);
  builder.result(node, "Unsqueeze", {x, builder.ints({dim})});
}

void transpose(Builder& builder, const Node& node, std::vector<int64_t> order) {
  const Value& x = *value_arg(node, "self");
  if (const at::Tensor stored = builder.graph().attribute_tensor(&x); stored.defined()) {
    std::string form = "permuted";
    for (const int64_t dim : order) form += " " + std::to_string(dim);
    const auto permuted = [&] { return stored.permute(order); };
    return builder.alias(node.output(), builder.derived(x.producer->target(), form, permuted));
  }
  builder.result(node, "Transpose", {builder.in(node, "self")}, {{"perm", std::move(order)}});
}

void permute(Builder& builder, const Node& node) {
  transpose(builder, node, permuted_dims(node));
}

/// A transpose that linear layers do not need: they read the weight itself.
void turn(Builder& builder, const Node& node) {
  if (before_turn(builder.graph(), *node.output()) == nullptr) permute(builder, node);
}

void expand(Builder& builder, const Node& node) {
  builder.result(node, "Expand",
                 {builder.in(node, "self"), builder.sizes(node, sizes_of(node, *node.output()))});
}

void repeat(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  std::vector<SizeExpr> times = sizes_arg(node, node.is("aten::tile") ? "dims" : "repeats");
  while (std::ssize(times) < rank_of(node, x)) times.insert(times.begin(), SizeExpr{0, 1, 1});
  std::vector<SizeExpr> shape(times.size() - static_cast<size_t>(rank_of(node, x)), SizeExpr{0, 1, 1});
  const bool widens = !shape.empty();
  shape.insert(shape.end(), sizes_of(node, x).begin(), sizes_of(node, x).end());
  const std::string& name = builder.name_of(&x);
  const std::string wide = widens ? builder.call(node, "Reshape", {name, builder.sizes(node, shape)}) : name;
  builder.result(node, "Tile", {wide, builder.sizes(node, times)});
}

/// Each element as often as a number says, one after the other; all elements without a dimension.
void repeat_each(Builder& builder, const Node& node) {
  const Value& x = *value_arg(node, "self");
  const bool flat = node.arg("dim").is_none();
  const int64_t rank = flat ? 1 : rank_of(node, x), dim = flat ? 0 : dim_arg(node, "dim", rank);
  std::string name = builder.name_of(&x);
  if (flat) name = builder.call(node, "Reshape", {name, builder.ints({-1})});
  std::vector<SizeExpr> times(static_cast<size_t>(rank + 1), SizeExpr{0, 1, 1});
  SizeExpr& each = times[static_cast<size_t>(dim + 1)];
  if (optional_value(node, "repeats") != nullptr) {
    const at::Tensor repeats = stored_argument(builder, node, "repeats");
    if (repeats.numel() != 1) {
      const at::Tensor places = at::repeat_interleave(repeats);
      return builder.result(node, "Gather", {name, builder.constant(places, "places")}, {{"axis", dim}});
    }
    each.offset = repeats.item<int64_t>();  // of one number for all
  } else {
    each = size_arg(node, node.arg("repeats"));
  }
  const std::string apart = builder.call(node, "Unsqueeze", {name, builder.ints({dim + 1})});
  const std::string wide = builder.call(node, "Expand", {apart, builder.sizes(node, times)});
  builder.result(node, "Reshape", {wide, builder.sizes(node, sizes_of(node, *node.output()))});
}

/// Each tensor along a dimension of its own, repeated along the others. By "xy" the first two change places.
void meshgrid(Builder& builder, const Node& node) {
  const graph::Argument& tensors = node.args.at(0);
  if (tensors.kind != graph::Argument::Kind::list) refuse(node, "expected a list of tensors");
  const std::string indexing = has_arg(node, "indexing") ? text_arg(node, "indexing") : "ij";
  const size_t count = tensors.items.size();
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    if (!tensors.items.at(i).is_value()) refuse(node, "expected a list of tensors");
    std::vector<int64_t> shape(count, 1);
    shape[indexing == "xy" && i < 2 && count > 1 ? 1 - i : i] = -1;
    const std::string& x = builder.name_of(tensors.items[i].value);
    const std::string along = builder.call(node, "Reshape", {x, builder.ints(shape)});
    builder.result(node, "Expand", {along, builder.sizes(node, sizes_of(node, *node.output(i)))}, {}, i);
  }
}

}  // namespace

void reshape_to_output(Builder& builder, const Node& node, const std::string& x) {
  const std::vector<SizeExpr>& to = sizes_of(node, *node.output());
  const Value* from = node.args.at(0).value;
  const std::vector<int64_t> target =
      constant_target(from != nullptr && from->meta ? from->meta->sizes : std::vector<SizeExpr>(), to);
  const bool known = !target.empty() || to.empty();
  builder.result(node, "Reshape", {x, known ? builder.ints(target) : builder.sizes(node, to)});
}

ConverterTable shape_converters() {
  static constexpr Converter kTable[] = {{"aten::view", reshape},
                                         {"aten::reshape", reshape},
                                         {"aten::_unsafe_view", reshape},
                                         {"aten::view_as", reshape},
                                         {"aten::reshape_as", reshape},
                                         {"aten::flatten", reshape},
                                         {"aten::unflatten", reshape},
                                         {"aten::squeeze", reshape},
                                         {"aten::unsqueeze", unsqueeze},
                                         {"aten::transpose", permute},
                                         {"aten::swapdims", permute},
                                         {"aten::t", turn},
                                         {"aten::permute", permute},
                                         {"aten::movedim", permute},
                                         {"aten::moveaxis", permute},
                                         {"aten::mT", permute},
                                         {"aten::meshgrid", meshgrid},
                                         {"aten::expand", expand},
                                         {"aten::expand_as", expand},
                                         {"aten::broadcast_to", expand},
                                         {"aten::repeat", repeat},
                                         {"aten::tile", repeat},
                                         {"aten::repeat_interleave.self_int", repeat_each},
                                         {"aten::repeat_interleave.self_Tensor", repeat_each}};
  return kTable;
}

}  // namespace ulp::exchange::onnx
