// Parts of tensors, and tensors of parts.
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/windows.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

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

/// One dimension from the back to the front, at any size of it. Counted from the other end, a place p is -p -
/// 1, which needs no size. A start before the first element is that element, as ONNX has it.
Tensor reversed(const Call& call, Tensor x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  int64_t until = ~end;
  if (start < -1) {
    if (end < -1 && end >= start)
      call.refuse("expected an end in front of the start, for steps to the front, got ", start, " and ", end);
    x = at::cat({at::slice(x, dim, 0, 1), at::slice(at::slice(x, dim, 1), dim, 0, start + 1)}, dim);
    if (end < -1) until = start - end;
    start = -1;
  }
  return at::slice(at::flip(x, {dim}), dim, ~start, until, -step);
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
    // The largest number is the end, also where it lies in front.
    const bool to_front =
        ends[i] == std::numeric_limits<int32_t>::max() || ends[i] == std::numeric_limits<int64_t>::max();
    if (step > 0) {
      x = at::slice(x, dim, starts[i], ends[i], step);
      continue;
    }
    const int64_t end = to_front ? std::numeric_limits<int64_t>::min() : ends[i];
    x = reversed(call, x, dim, std::min<int64_t>(starts[i], std::numeric_limits<int32_t>::max()), end, step);
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

/// Ops whose results are places that count from the front, and those that only move numbers.
constexpr std::string_view kPlaces[] = {"ArgMax", "ArgMin", "TopK", "Shape", "Size", "NonZero", "Abs"};
constexpr std::string_view kMovers[] = {"Cast",   "Reshape",   "Squeeze", "Unsqueeze", "Flatten", "Slice",
                                        "Gather", "Transpose", "Expand",  "Tile",      "Split",   "Identity"};

/// Whether an index that follows the inputs is none below 0.
bool counts_from_front(const Call& call, size_t i) {
  // What our exporter writes as a Gather is an embedding or a selection, which know no places below 0, unless
  // it says so.
  const Store& store = call.run().store();
  if (store.model().producer == "ulp") return !store.counts_from_end(call.node().outputs.at(0));
  const FileNode* maker = call.analysis().maker(call.name(i));
  for (int depth = 0; depth < 16 && maker != nullptr; ++depth) {
    if (std::ranges::find(kPlaces, maker->op) != std::end(kPlaces)) return true;
    const bool moves = std::ranges::find(kMovers, maker->op) != std::end(kMovers);
    maker = moves && !maker->inputs.empty() ? call.analysis().maker(maker->inputs[0]) : nullptr;
  }
  return false;
}

/// The indices of input `i` as places from the front.
Tensor places_of(Call& call, size_t i, int64_t size) {
  const Tensor index = whole_numbers(call.x(i));
  if (!call.is_known(i)) return counts_from_front(call, i) ? index : from_front(index, size);
  const std::vector<at::Scalar> numbers = call.numbers(i);
  const bool below = std::ranges::any_of(numbers, [](const at::Scalar& one) { return one.toLong() < 0; });
  return below ? from_front(index, size) : index;
}

/// Rows of a table where the indices follow the inputs; else numbers in the call's arguments, or a selection.
void gather(Call& call) {
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  const bool known = call.is_known(1);
  if (known && call.known(1).dim() == 0 && call.known(1).numel() == 1)
    return call.set(at::select(x, dim, call.integer(1)));
  const Tensor index = places_of(call, 1, x.size(dim));
  if (!known && dim == 0 && x.dim() == 2 && at::isFloatingType(x.scalar_type()))
    return call.set(at::embedding(x, index));
  const Tensor flat = at::reshape(index, {-1});
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
  const Tensor index = whole_numbers(call.x(1));
  call.set(at::gather(x, dim, from_front(index, x.size(dim))));
}

/// The columns of indices [..., k], one list for each of the k dimensions behind the first `from`.
using Places = c10::List<std::optional<Tensor>>;
Places columns_of(Call& call, const Tensor& x, const Tensor& index, int64_t from = 0) {
  const int64_t depth = index.dim() > 0 ? index.size(-1) : 0;
  if (depth < 1 || depth > x.dim() - from)
    call.refuse("expected indices of 1 to ", x.dim() - from, " dimensions, got ", depth);
  Places places;
  // Items of the batch pick among themselves: each has its own number along each batch dimension.
  for (int64_t d = 0; d < from; ++d) {
    Sizes along(static_cast<size_t>(index.dim() - 1), 1);
    along.at(static_cast<size_t>(d)) = index.size(d);
    places.push_back(at::reshape(at::arange(index.size(d), at::TensorOptions(at::kLong)), along));
  }
  for (int64_t d = 0; d < depth; ++d) places.push_back(at::select(index, -1, d));
  return places;
}

/// Indices [..., k] into the first k dimensions, or those behind the batch dimensions.
void gather_nd(Call& call) {
  const Tensor x = call.x(0), index = whole_numbers(call.x(1));
  const int64_t batch = call.attribute("batch_dims", int64_t{0});
  if (batch < 0 || batch >= std::min(x.dim(), index.dim()))
    call.refuse("expected batch_dims from 0 to ", std::min(x.dim(), index.dim()) - 1, ", got ", batch);
  call.set(at::index(x, columns_of(call, x, index, batch)));
}

/// The word that LibTorch has for a reduction of ONNX; empty for none.
std::string reduction_of(Call& call) {
  const std::string word = call.attribute("reduction", "none");
  if (word == "none") return "";
  if (word == "add") return "sum";
  if (word == "mul") return "prod";
  if (word == "max") return "amax";
  if (word == "min") return "amin";
  call.refuse("expected the reduction none, add, mul, max or min, got ", word);
}

void scatter_elements(Call& call) {
  const std::string reduction = reduction_of(call);
  const Tensor x = call.x(0);
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), x.dim());
  const Tensor index = from_front(whole_numbers(call.x(1)), x.size(dim)), source = call.x(2);
  call.set(reduction.empty() ? at::scatter(x, dim, index, source)
                             : at::scatter_reduce(x, dim, index, source, reduction));
}

/// The indexed dimensions as one, into which whole rows are reduced.
void scatter_rows(Call& call, const Tensor& x, const Tensor& index, const std::string& reduction) {
  const int64_t depth = index.dim() > 0 ? index.size(-1) : 0;
  if (depth < 1 || depth > x.dim())
    call.refuse("expected indices of 1 to ", x.dim(), " dimensions, got ", depth);
  Tensor rows;
  int64_t count = 1;
  for (int64_t d = 0; d < depth; ++d) {
    const Tensor place = from_front(at::select(index, -1, d), x.size(d));
    rows = rows.defined() ? at::add(at::mul(rows, x.size(d)), place) : place;
    count *= x.size(d);
  }
  const Tensor flat = at::reshape(x, {count, -1});
  const Tensor source = at::reshape(call.x(2), {-1, flat.size(1)});
  const Tensor spread = at::reshape(rows, {-1, 1}).expand({-1, flat.size(1)});
  call.set(at::reshape(at::scatter_reduce(flat, 0, spread, source, reduction), x.sizes()));
}

void scatter_nd(Call& call) {
  const std::string reduction = reduction_of(call);
  const Tensor x = call.x(0), index = whole_numbers(call.x(1));
  if (!reduction.empty() && reduction != "sum") return scatter_rows(call, x, index, reduction);
  call.set(at::index_put(x, columns_of(call, x, index), call.x(2), /*accumulate=*/!reduction.empty()));
}

/// Where known numbers are none of 0, [dimensions, count]: of others, the count would follow the data.
void non_zero(Call& call) {
  const Tensor x = call.known(0);
  if (x.dim() == 0) call.refuse("expected one dimension or more, got a single number");
  const Tensor places = at::nonzero(x).t().contiguous();
  const int64_t* numbers = places.const_data_ptr<int64_t>();
  call.expect_the_same(Sizes(numbers, numbers + places.numel()),
                       "expected the same lengths and places at all sizes of the inputs");
  call.set(places);
}

double non_zero_bound(Call& call) {
  return first_input(call) * static_cast<double>(call.sizes(0).size() + 1);
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
                                         {"Scatter", scatter_elements, first_input},
                                         {"ScatterND", scatter_nd, first_input},
                                         {"NonZero", non_zero, non_zero_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
