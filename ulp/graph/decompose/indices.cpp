// Elements by stored places: picked, and written.
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "ulp/graph/decompose/table.h"
#include "ulp/graph/mutated_buffers.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

/// The constants of an index list, a mask as the indices of what is true in it, with the dimension of the
/// first one.
struct StoredIndices {
  int64_t first = -1;
  std::vector<at::Tensor> tensors;
};

/// Of dimensions that are neighbours; throws CannotWrite for others.
StoredIndices stored_indices(Formula& f) {
  const Argument& list = f.node().arg("indices");
  if (list.kind != Argument::Kind::list) throw CannotWrite{"expected a list of indices"};
  StoredIndices found;
  int64_t dim = 0;
  for (const Argument& item : list.items) {
    if (!item.is_value()) {
      ++dim;
      continue;
    }
    const at::Tensor tensor = stored_operand(f, item);
    if (found.first < 0) found.first = dim;
    if (found.first + std::ssize(found.tensors) != dim) throw CannotWrite{"expected neighbouring dimensions"};
    const bool mask = tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    for (const at::Tensor& one : mask ? tensor.nonzero().unbind(1) : std::vector<at::Tensor>{tensor}) {
      found.tensors.push_back(one.to(at::kLong));
      ++dim;
    }
  }
  if (found.first < 0) throw CannotWrite{"expected at least one index"};
  return found;
}

/// The indices as those of the dimensions joined.
at::Tensor joined_places(const StoredIndices& indices, V x) {
  at::Tensor ids = torch::zeros({}, at::kLong);
  for (size_t i = 0; i < indices.tensors.size(); ++i) {
    const int64_t size = Formula::size(x, indices.first + static_cast<int64_t>(i));
    const at::Tensor& own = indices.tensors[i];
    ids = ids * size + torch::where(own < 0, own + size, own);
  }
  if (ids.numel() == 0) throw CannotWrite{"expected at least one element"};
  return ids;
}

/// Neighbouring dimensions as one.
V joined(Formula& f, V x, int64_t first, int64_t count) {
  if (count == 1) return x;
  Formula::Sizes sizes = x->meta->sizes;
  int64_t size = 1;
  for (int64_t i = 0; i < count; ++i) size *= Formula::size(x, first + i);
  const auto begin = sizes.begin() + first;
  sizes.insert(sizes.erase(begin, begin + count), fixed(size));
  return f.view(x, sizes);
}

/// x[..., i, j, ...]: several dimensions as one, of which the places are picked.
void pick_elements(Formula& f) {
  const std::vector<Argument>& items = f.node().arg("indices").items;
  const auto is_given = [](const Argument& one) { return one.is_value(); };
  const auto is_list = [](const Argument& one) {  // no mask
    return one.is_value() && one.value->meta && at::isIntegralType(one.value->meta->dtype, false) &&
           one.value->meta->dtype != at::kByte;
  };
  if (std::ranges::count_if(items, is_given) == 1 && std::ranges::any_of(items, is_list)) return;
  V x = f.operand("self");
  const StoredIndices indices = stored_indices(f);
  const at::Tensor ids = joined_places(indices, x);
  V flat = joined(f, x, indices.first, std::ssize(indices.tensors));
  f.result(f.view(f.pick(flat, indices.first, ids.reshape({-1}), "ids"), f.node().output()->meta->sizes));
}

/// The places of an index, counted from the front.
at::Tensor places_of(Formula& f, const char* argument, int64_t size) {
  const at::Tensor given = stored_operand(f, argument).to(at::kLong).reshape({-1});
  return torch::where(given < 0, given + size, given);
}

/// Whether each place of a dimension is in the index, which may be computed; of so many dimensions.
V is_placed(Formula& f, int64_t size, int64_t dim, int64_t rank) {
  const Argument& index = f.node().arg("index");
  std::vector<int64_t> along(static_cast<size_t>(rank), 1);
  along[static_cast<size_t>(dim)] = size;
  if (f.graph().attribute_tensor(index.value).defined() && !WrittenState(f.graph()).holds(index.value)) {
    at::Tensor mask = torch::zeros({size}, torch::kBool);
    mask.index_fill_(0, places_of(f, "index", size), true);
    return f.constant(mask.reshape(along), "mask");
  }
  V ids = f.operand("index");
  const int64_t count = ids->meta->sizes.empty() ? 1 : Formula::size(ids, 0);
  ids = f.to(f.view(ids, fixed(std::vector<int64_t>{count, 1})), at::kLong);
  V counted =
      f.where(f.compare("aten::lt", ids, 0.0), f.add(ids, f.constant(torch::full({1}, size), "size")), ids);
  V hits = f.to(f.compare("aten::eq", counted, f.places(size, 1, 2, at::kLong)), at::kFloat);
  return f.view(f.compare("aten::gt", f.reduce("aten::amax", hits, {0}), 0.0), fixed(along));
}

void index_fill(Formula& f) {
  V x = f.operand("self");
  if (x->meta->sizes.empty()) throw CannotWrite{"expected one dimension or more"};
  const int64_t dim = f.dim("dim", x), rank = std::ssize(x->meta->sizes);
  V mask = is_placed(f, Formula::size(x, dim), dim, rank);
  if (f.is_tensor("value")) return f.result(f.where(mask, f.to(f.operand("value"), f.type()), x));
  const Argument& value = f.node().arg("value");
  if (value.kind != Argument::Kind::literal || !value.literal.isScalar())
    throw CannotWrite{"expected a value that is a number"};
  const at::Tensor filled = torch::full({1}, value.literal.toScalar(), f.type());
  f.result(f.where(mask, f.constant(filled, "value"), x));
}

/// x with parts of the source added to its places, each to the one that its index says.
void index_add(Formula& f) {
  V x = f.operand("self"), source = f.operand("source"), index = f.operand("index");
  if (x->meta->sizes.empty() || source->meta->sizes.size() != x->meta->sizes.size())
    throw CannotWrite{"expected a source of as many dimensions"};
  const int64_t dim = f.dim("dim", x), rank = std::ssize(x->meta->sizes);
  const double alpha = f.number("alpha");
  if (alpha != 1) source = f.mul(source, alpha);
  std::vector<int64_t> along(static_cast<size_t>(rank), 1);
  along[static_cast<size_t>(dim)] = Formula::size(source, dim);
  V ids = f.expand(f.view(f.to(index, at::kLong), fixed(along)), source->meta->sizes);
  f.result(f.call("aten::scatter_add", {x, c10::IValue(dim), ids, source}, f.type(), x->meta->sizes));
}

/// x with the elements of `part` at these places of a dimension, in its order; of several for one place the
/// last.
V written(Formula& f, V x, V part, int64_t dim, const at::Tensor& places) {
  const int64_t size = Formula::size(x, dim);
  at::Tensor order = torch::arange(size);
  for (int64_t i = 0; i < places.numel(); ++i) order[places[i].item<int64_t>()] = size + i;
  return f.pick(f.cat({x, f.to(part, f.type())}, dim), dim, order, "order");
}

void index_copy(Formula& f) {
  V x = f.operand("self"), source = f.operand("source");
  if (x->meta->sizes.empty() || source->meta->sizes.size() != x->meta->sizes.size())
    throw CannotWrite{"expected a source of as many dimensions"};
  const int64_t dim = f.dim("dim", x);
  f.result(written(f, x, source, dim, places_of(f, "index", Formula::size(x, dim))));
}

/// What is left of the row on both sides, and the part between.
void give_between(Formula& f, V x, V part, int64_t dim, int64_t start) {
  const int64_t size = Formula::size(x, dim), end = start + Formula::size(part, dim);
  std::vector<V> parts;
  if (start > 0) parts.push_back(f.slice(x, dim, 0, start));
  parts.push_back(f.to(part, f.type()));
  if (end < size) parts.push_back(f.slice(x, dim, end, size - end));
  f.result(f.cat(parts, dim));
}

/// x[mask] = values, or += values, of a mask that may be computed; null where the values are one for each
/// place that is true, of which there may be any number.
V put_where(Formula& f, V x, V values) {
  const Argument& list = f.node().arg("indices");
  if (list.kind != Argument::Kind::list || list.items.empty() || !list.items.back().is_value())
    return nullptr;
  const auto first = std::ssize(list.items) - 1;
  if (std::any_of(list.items.begin(), list.items.end() - 1,
                  [](const Argument& one) { return one.is_value(); }))
    return nullptr;
  const Value* given = list.items.back().value;
  const bool truth = given->meta && (given->meta->dtype == at::kBool || given->meta->dtype == at::kByte);
  if (!truth || given->meta->sizes.empty()) return nullptr;
  const int64_t rank = std::ssize(given->meta->sizes);
  const int64_t behind = std::ssize(x->meta->sizes) - first - rank;
  // Values are [dimensions before the mask, places, dimensions behind it], as many of the last as they have.
  Formula::Sizes sizes = values->meta->sizes;
  if (const int64_t places = std::ssize(sizes) - 1 - behind; places >= 0) {
    if (sizes[static_cast<size_t>(places)] != fixed(1)) return nullptr;
    const auto at = sizes.erase(sizes.begin() + places);
    sizes.insert(at, static_cast<size_t>(rank), fixed(1));
    values = f.view(values, sizes);
  }
  sizes = given->meta->sizes;
  sizes.insert(sizes.end(), static_cast<size_t>(behind), fixed(1));
  V mask = list.items.back().value;
  if (given->meta->dtype == at::kByte) mask = f.compare("aten::ne", mask, 0.0);
  if (behind > 0) mask = f.view(mask, sizes);
  values = f.to(values, f.type());
  return f.where(mask, f.flag("accumulate") ? f.add(x, values) : values, x);
}

/// x with values at places of its dimensions.
void index_put(Formula& f) {
  V x = f.operand("self"), values = f.operand("values");
  if (V made = put_where(f, x, values)) return f.result(made);
  if (f.flag("accumulate")) throw CannotWrite{"expected places that are written, not added to"};
  const StoredIndices indices = stored_indices(f);
  const at::Tensor ids = joined_places(indices, x);
  const Formula::Sizes sizes = x->meta->sizes;
  const int64_t count = std::ssize(indices.tensors);
  Formula::Sizes placed(sizes.begin(), sizes.begin() + indices.first);
  for (const int64_t size : ids.sizes()) placed.push_back(fixed(size));
  placed.insert(placed.end(), sizes.begin() + indices.first + count, sizes.end());
  V part = f.expand(f.to(values, f.type()), placed);
  if (ids.dim() == 0) part = f.unsqueeze(part, indices.first);
  if (ids.dim() > 1) part = joined(f, part, indices.first, ids.dim());
  V whole = joined(f, x, indices.first, count);
  f.result(f.view(written(f, whole, part, indices.first, ids.reshape({-1})), sizes));
}

void select_scatter(Formula& f) {
  V x = f.operand("self"), part = f.operand("src");
  const int64_t dim = f.dim("dim", x), index = f.integer("index");
  Formula::Sizes row = x->meta->sizes;
  row[static_cast<size_t>(dim)] = fixed(1);
  if (std::ssize(part->meta->sizes) + 1 != std::ssize(row))
    throw CannotWrite{"expected a part of its own sizes"};
  give_between(f, x, f.view(part, row), dim, index < 0 ? index + Formula::size(x, dim) : index);
}

void slice_scatter(Formula& f) {
  V x = f.operand("self"), part = f.operand("src");
  const int64_t dim = f.dim("dim", x), size = Formula::size(x, dim), step = f.integer("step");
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t given = f.node().arg(name).is_none() ? otherwise : f.integer(name);
    return std::clamp<int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const int64_t start = bound("start", 0), end = bound("end", size);
  if (start >= end) throw CannotWrite{"expected a part of at least one element"};
  Formula::Sizes sizes = x->meta->sizes;
  sizes[static_cast<size_t>(dim)] = fixed((end - start + step - 1) / step);
  if (part->meta->sizes != sizes) part = f.expand(part, sizes);
  if (step == 1) return give_between(f, x, part, dim, start);
  f.result(written(f, x, part, dim, torch::arange(start, end, step)));
}

}  // namespace

DecomposeTable decomposed_indices() {
  static constexpr DecomposeRow kTable[] = {
      {"aten::index.Tensor", pick_elements}, {"aten::index_fill", index_fill},
      {"aten::index_add", index_add},        {"aten::index_copy", index_copy},
      {"aten::index_put", index_put},        {"aten::select_scatter", select_scatter},
      {"aten::slice_scatter", slice_scatter}};
  return kTable;
}

}  // namespace ulp::graph
