// Taking tensors apart and putting them together.
#include <algorithm>
#include <numeric>

#include "ulp/exchange/coreml/along.h"

namespace ulp::exchange::coreml {

namespace {

using graph::Argument;
using graph::Node;
using graph::Value;

/// The tensors of a list.
std::vector<std::string> list_of(Builder& builder, const Node& node) {
  const Argument& tensors = node.args.at(0);
  if (tensors.kind != Argument::Kind::list) refuse(node, "expected a list of tensors");
  std::vector<std::string> names;
  for (const Argument& item : tensors.items) {
    if (!item.is_value()) refuse(node, "expected a list of tensors");
    names.push_back(builder.name_of(item.value));
  }
  return names;
}

Inputs joined(Builder& builder, std::vector<std::string> parts, int64_t dim) {
  return {{"values", std::move(parts)}, {"axis", builder.integer(dim)}, {"interleave", builder.flag(false)}};
}

void cat(Builder& builder, const Node& node) {
  builder.result(node, "concat", joined(builder, list_of(builder, node), int_arg(node, "dim")));
}

void stack(Builder& builder, const Node& node) {
  builder.result(node, "stack",
                 {{"values", list_of(builder, node)}, {"axis", builder.integer(int_arg(node, "dim"))}});
}

/// chunk, split and split_with_sizes: what they make says where they cut.
void split(Builder& builder, const Node& node) {
  const int64_t dim = int_arg(node, "dim");
  std::vector<int64_t> pieces;
  for (const auto& output : node.outputs()) pieces.push_back(fixed_size(node, *output, dim));
  if (pieces.size() == 1) return builder.alias(node.output(), builder.in(node, "self"));
  builder.results(node, "split",
                  {{"x", builder.in(node, "self")},
                   {"split_sizes", builder.ints(pieces)},
                   {"axis", builder.integer(dim)}});
}

std::vector<int64_t> self_shape(const Node& node) {
  return shape_of(node, *value_arg(node, "self"));
}

int64_t self_dim(const Node& node) {
  return dim_arg(node, "dim", std::ssize(self_shape(node)));
}

/// Index `at` of a dimension, which goes.
void pick(Builder& builder, const Node& node, int64_t at, size_t output) {
  const std::vector<int64_t> shape = self_shape(node);
  const int64_t dim = self_dim(node);
  if (at < 0) at += shape.at(static_cast<size_t>(dim));
  builder.result(node, "slice_by_index",
                 sliced(builder, builder.in(node, "self"), shape,
                        {.dim = dim, .begin = at, .end = at + 1, .drop = true}),
                 output);
}

void unbind(Builder& builder, const Node& node) {
  for (size_t i = 0; i < node.outputs().size(); ++i) pick(builder, node, static_cast<int64_t>(i), i);
}

void select(Builder& builder, const Node& node) {
  pick(builder, node, int_arg(node, "index"), 0);
}

void slice(Builder& builder, const Node& node) {
  const std::vector<int64_t> shape = self_shape(node);
  const int64_t dim = self_dim(node), size = shape.at(static_cast<size_t>(dim));
  const auto bound = [&](const char* argument, int64_t otherwise) {
    const int64_t at = node.arg(argument).is_none() ? otherwise : int_arg(node, argument);
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  builder.result(node, "slice_by_index",
                 sliced(builder, builder.in(node, "self"), shape,
                        {.dim = dim,
                         .begin = bound("start", 0),
                         .end = bound("end", size),
                         .step = int_arg(node, "step")}));
}

void narrow(Builder& builder, const Node& node) {
  const std::vector<int64_t> shape = self_shape(node);
  const int64_t dim = self_dim(node);
  int64_t start = int_arg(node, "start");
  if (start < 0) start += shape.at(static_cast<size_t>(dim));
  builder.result(node, "slice_by_index",
                 sliced(builder, builder.in(node, "self"), shape,
                        {.dim = dim, .begin = start, .end = start + int_arg(node, "length")}));
}

/// What leaves at one end comes in at the other.
void roll(Builder& builder, const Node& node) {
  const std::vector<int64_t> shifts = ints_arg(node, "shifts"), dims = ints_arg(node, "dims");
  if (shifts.empty() || shifts.size() != dims.size()) refuse(node, "expected a shift for each dimension");
  const std::vector<int64_t> shape = self_shape(node);
  std::string x = builder.in(node, "self");
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] < 0 ? dims[i] + std::ssize(shape) : dims[i];
    const int64_t size = shape.at(static_cast<size_t>(dim)), cut = size - ((shifts[i] % size) + size) % size;
    const auto part = [&](int64_t begin, int64_t end) {
      std::vector<int64_t> sizes = shape;
      sizes[static_cast<size_t>(dim)] = end - begin;
      return builder.call(node, "slice_by_index",
                          sliced(builder, x, shape, {.dim = dim, .begin = begin, .end = end}),
                          {type_of(*node.output()), sizes});
    };
    if (cut != size) x = builder.call(node, "concat", joined(builder, {part(cut, size), part(0, cut)}, dim));
  }
  builder.alias(node.output(), x);
}

void gather_rows(Builder& builder, const Node& node, const std::string& ids, int64_t dim) {
  builder.result(node, "gather",
                 {{"x", builder.in(node, "self")},
                  {"indices", ids},
                  {"axis", builder.integer(dim)},
                  {"batch_dims", builder.integer(0)}});
}

/// Backwards.
void flip(Builder& builder, const Node& node) {
  Along along(builder, node, *value_arg(node, "self"));
  for (int64_t dim : ints_arg(node, "dims")) {
    if (dim < 0) dim += std::ssize(along.shape());
    std::vector<int64_t> ids(static_cast<size_t>(along.shape().at(static_cast<size_t>(dim))));
    std::iota(ids.rbegin(), ids.rend(), 0);
    along.pick(dim, ids);
  }
  along.finish();
}

/// Each element as often as it is said.
void repeat_interleave(Builder& builder, const Node& node) {
  if (optional_value(node, "repeats") != nullptr) refuse(node, "expected repeats that are one number");
  if (node.arg("dim").is_none()) refuse(node, "expected a dimension");
  Along along(builder, node, *value_arg(node, "self"));
  const int64_t times = int_arg(node, "repeats"), dim = dim_arg(node, "dim", std::ssize(along.shape()));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < along.shape().at(static_cast<size_t>(dim)); ++i)
    ids.insert(ids.end(), static_cast<size_t>(times), i);
  if (ids.empty()) refuse(node, "expected a result with elements");
  along.pick(dim, ids);
  along.finish();
}

void index_select(Builder& builder, const Node& node) {
  gather_rows(builder, node, builder.in(node, "index"), int_arg(node, "dim"));
}

/// Core ML's has ids for the whole of the other dimensions.
void gather(Builder& builder, const Node& node) {
  std::vector<int64_t> from = self_shape(node), ids = shape_of(node);
  const auto dim = static_cast<size_t>(self_dim(node));
  from.at(dim) = ids.at(dim) = 0;
  if (from != ids) refuse(node, "expected ids for all of the other dimensions");
  builder.result(node, "gather_along_axis",
                 {{"x", builder.in(node, "self")},
                  {"indices", builder.in(node, "index")},
                  {"axis", builder.integer(static_cast<int64_t>(dim))}});
}

/// One tensor of ids in one dimension.
void index(Builder& builder, const Node& node) {
  const auto& indices = node.arg("indices").items;
  const auto is_there = [](const Argument& item) { return !item.is_none(); };
  const auto found = std::ranges::find_if(indices, is_there);
  if (std::ranges::count_if(indices, is_there) != 1 || !found->is_value() ||
      type_of(*found->value) == at::kBool)
    refuse(node, "expected ids that are integers, for one dimension");
  gather_rows(builder, node, builder.name_of(found->value), found - indices.begin());
}

}  // namespace

Inputs sliced(Builder& builder, const std::string& x, const std::vector<int64_t>& shape, const Slice& slice) {
  const auto dim = static_cast<size_t>(slice.dim);
  const std::vector<bool> none(shape.size(), false);
  std::vector<int64_t> begin(shape.size(), 0), end = shape, step(shape.size(), 1);
  std::vector<bool> squeeze = none;
  begin.at(dim) = slice.begin;
  end.at(dim) = slice.end;
  step.at(dim) = slice.step;
  squeeze.at(dim) = slice.drop;
  return {{"x", x},
          {"begin", builder.ints(begin)},
          {"end", builder.ints(end)},
          {"stride", builder.ints(step)},
          {"begin_mask", builder.flags(none)},
          {"end_mask", builder.flags(none)},
          {"squeeze_mask", builder.flags(squeeze)}};
}

ConverterTable piece_converters() {
  static constexpr Converter kTable[] = {
      {"aten::flip", flip},     {"aten::repeat_interleave", repeat_interleave},
      {"aten::cat", cat},       {"aten::concat", cat},
      {"aten::stack", stack},   {"aten::chunk", split},
      {"aten::split", split},   {"aten::split_with_sizes", split},
      {"aten::unbind", unbind}, {"aten::select", select},
      {"aten::slice", slice},   {"aten::narrow", narrow},
      {"aten::roll", roll},     {"aten::index_select", index_select},
      {"aten::gather", gather}, {"aten::index", index}};
  return kTable;
}

}  // namespace ulp::exchange::coreml
