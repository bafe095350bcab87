// Parts of tensors, and tensors of parts.
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;
using Sizes = std::vector<int64_t>;

void concat(Call& call) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < call.inputs(); ++i) parts.push_back(call.x(i));
  call.set(at::cat(parts, call.dim(call.attribute("axis", int64_t{1}), parts.at(0).dim())));
}

void split(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  const auto count = static_cast<int64_t>(call.results().size());
  std::vector<Tensor> parts;
  if (const auto sizes = call.list("split", 1)) {
    parts = at::split_with_sizes(x, *sizes, dim);
  } else {
    const int64_t wanted = call.attribute("num_outputs", count);
    if (wanted != count) call.refuse("expected as many results as num_outputs, ", wanted, ", got ", count);
    parts = at::split(x, (x.size(dim) + count - 1) / count, dim);
  }
  if (static_cast<int64_t>(parts.size()) != count)
    call.refuse("expected ", count, " parts, got ", parts.size());
  for (size_t i = 0; i < parts.size(); ++i) call.set(parts[i], i);
}

/// One dimension from the back to the front.
Tensor reversed(const Tensor& x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  const int64_t size = x.size(dim);
  const int64_t from = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size - 1);
  const int64_t to = std::clamp<int64_t>(end < 0 ? end + size : end, -1, size - 1);
  const int64_t count = from > to ? (from - to - step - 1) / -step : 0;
  const int64_t lowest = from + (count - 1) * step;
  if (count <= 0) return at::slice(x, dim, 0, 0);
  return at::flip(at::slice(x, dim, lowest, from + 1, -step), {dim});
}

void slice(Call& call) {
  Tensor x = call.x(0);
  const bool inputs = call.has(1);
  const Sizes starts = inputs ? call.ints(1) : call.attribute("starts", Sizes());
  const Sizes ends = inputs ? call.ints(2) : call.attribute("ends", Sizes());
  Sizes axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes = inputs && call.has(3) ? call.ints(3) : call.attribute("axes", axes);
  const Sizes steps = call.has(4) ? call.ints(4) : Sizes(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    call.refuse("expected as many ends, axes and steps as starts");
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t dim = call.dim(axes[i], x.dim()), step = steps[i];
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) call.refuse("expected a step other than 0");
    const bool whole = starts[i] == 0 && step == 1 && ends[i] >= std::numeric_limits<int32_t>::max();
    if (whole || x.size(dim) == 0) continue;
    x = step > 0
            ? at::slice(x, dim, starts[i], ends[i], step)
            : reversed(x, dim, std::max(starts[i], -x.size(dim)), std::max(ends[i], -x.size(dim) - 1), step);
  }
  call.set(x);
}

Tensor whole_numbers(const Tensor& x) {
  return x.scalar_type() == at::kLong ? x : x.to(at::kLong);
}

/// Indices from the back count from the size on.
Tensor from_front(const Tensor& index, int64_t size) {
  return at::where(at::lt(index, 0), at::add(index, size), index);
}

/// Rows of a table where the indices follow the inputs; else numbers in the call's arguments, or a selection.
void gather(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  const bool known = call.is_known(1);
  if (known && call.known(1).dim() == 0 && call.known(1).numel() == 1)
    return call.set(at::select(x, dim, call.integer(1)));
  const Tensor index = whole_numbers(call.x(1));
  if (!known && dim == 0 && x.dim() == 2 && at::isFloatingType(x.scalar_type()))
    return call.set(at::embedding(x, index));
  const Tensor places = known ? from_front(index, x.size(dim)) : index;
  const Tensor flat = at::reshape(places, {-1});
  Tensor rows = at::index_select(x, dim, flat);
  if (index.dim() == 1) return call.set(rows);
  Sizes sizes = x.sizes().vec();
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin() + dim, index.sizes().begin(), index.sizes().end());
  call.set(at::reshape(rows, sizes));
}

void gather_elements(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  call.set(at::gather(x, dim, from_front(whole_numbers(call.x(1)), x.size(dim))));
}

/// Indices [..., k] into the first k dimensions.
void gather_nd(Call& call) {
  if (call.attribute("batch_dims", int64_t{0}) != 0) call.refuse("expected no batch_dims");
  const Tensor x = call.x(0), index = whole_numbers(call.x(1));
  const int64_t depth = index.dim() > 0 ? index.size(-1) : 0;
  if (depth < 1 || depth > x.dim())
    call.refuse("expected indices of 1 to ", x.dim(), " dimensions, got ", depth);
  c10::List<std::optional<Tensor>> places;
  for (int64_t d = 0; d < depth; ++d) places.push_back(at::select(index, -1, d));
  call.set(at::index(x, places));
}

void scatter_elements(Call& call) {
  if (call.attribute("reduction", "none") != "none") call.refuse("expected no reduction");
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  call.set(at::scatter(x, dim, from_front(whole_numbers(call.x(1)), x.size(dim)), call.x(2)));
}

void scatter_nd(Call& call) {
  if (call.attribute("reduction", "none") != "none") call.refuse("expected no reduction");
  const Tensor x = call.x(0), index = whole_numbers(call.x(1));
  const int64_t depth = index.dim() > 0 ? index.size(-1) : 0;
  if (depth < 1 || depth > x.dim())
    call.refuse("expected indices of 1 to ", x.dim(), " dimensions, got ", depth);
  c10::List<std::optional<Tensor>> places;
  for (int64_t d = 0; d < depth; ++d) places.push_back(at::select(index, -1, d));
  call.set(at::index_put(x, places, call.x(2)));
}

}  // namespace

ConverterTable piece_table() {
  static constexpr Converter kTable[] = {{"Concat", concat, sum_of_inputs},
                                         {"Split", split, first_input},
                                         {"Slice", slice, first_input},
                                         {"Gather", gather, gathered},
                                         {"GatherElements", gather_elements, by_index},
                                         {"GatherND", gather_nd, by_index},
                                         {"ScatterElements", scatter_elements, first_input},
                                         {"ScatterND", scatter_nd, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
