#include "ulp/graph/capture/sizes.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::graph {
namespace {

constexpr const char* kCapture = "graph.capture";

/// A free dimension is seen at this many sizes: polynomials of degree 2 follow.
constexpr int kFreeDegree = 2;
/// All combinations are run: 2 * 3^3 of them.
constexpr size_t kMostFree = 3;

std::vector<int64_t> batch_dims_of(const std::vector<at::Tensor>& examples, const CaptureOptions& options) {
  std::vector<int64_t> dims = options.batch_dims;
  if (dims.empty()) {
    for (const at::Tensor& example : examples) dims.push_back(example.dim() > 0 ? 0 : -1);
  }
  if (dims.size() != examples.size())
    fail(kCapture, "expected a batch dimension for each of ", examples.size(), " inputs, got ", dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || dims[i] >= examples[i].dim()) {
      fail(kCapture, "expected the batch dimension of input ", i, " to be -1 to ", examples[i].dim() - 1,
           ", got ", dims[i]);
    }
  }
  return dims;
}

/// The batch size on which all inputs agree; 0 if no input has one.
int64_t batch_of(const std::vector<at::Tensor>& examples, const std::vector<int64_t>& dims) {
  int64_t batch = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (dims[i] < 0) continue;
    const int64_t size = examples[i].size(dims[i]);
    if (size == 0 || (batch && size != batch)) {
      fail(kCapture, "expected batch size ", batch ? std::to_string(batch) : "1 or more", " in dimension ",
           dims[i], " of input ", i, ", got ", size,
           "; say which dimensions are the batch with CaptureOptions::batch_dims");
    }
    batch = size;
  }
  return batch;
}

/// The model is run at the batch size of the examples, and with one sample and two samples more.
void check_batch(int64_t batch, const BatchRange& range) {
  if (range.min < 0 || range.max < 1)
    fail(kCapture, "expected a batch_range of sizes from 0 on, got ", range.min, " to ", range.max);
  if (batch == 0) return;
  constexpr int64_t kMore = 2;
  if (!range.contains(batch) || !range.contains(batch + kMore))
    fail(kCapture, "expected examples of which the batch and two samples more are ", range.text(),
         " (CaptureOptions::batch_range), got a batch of ", batch);
}

void check_place(const FreeSize& given, const std::vector<at::Tensor>& examples,
                 const std::vector<int64_t>& batch_dims) {
  if (given.name.empty()) fail(kCapture, "expected a name for each free dimension, got none");
  if (given.input >= examples.size())
    fail(kCapture, "expected '", given.name, "' in one of ", examples.size(), " inputs, got input ",
         given.input);
  if (given.dim < 0 || given.dim >= examples[given.input].dim()) {
    fail(kCapture, "expected '", given.name, "' in a dimension of input ", given.input, ", which has ",
         examples[given.input].dim(), ", got dimension ", given.dim);
  }
  if (given.dim == batch_dims[given.input])
    fail(kCapture, "expected '", given.name, "' beside the batch, got dimension ", given.dim, " of input ",
         given.input, ", which is the batch");
  if (given.min < 1 || given.multiple < 1 || given.max < 0)
    fail(kCapture, "expected limits of 1 or more for '", given.name, "', got ", given.min, ", ", given.max,
         " and multiples of ", given.multiple);
}

/// Limits of one dimension may be given at any of its places.
void join_limits(DynamicDimension& free, const FreeSize& given) {
  const auto join = [&](int64_t& known, int64_t value, int64_t unset, const char* what) {
    if (value == unset) return;
    if (known != unset && known != value)
      fail(kCapture, "expected one ", what, " for '", free.name, "', got ", known, " and ", value);
    known = value;
  };
  join(free.min, given.min, 1, "min");
  join(free.max, given.max, 0, "max");
  join(free.multiple, given.multiple, 1, "multiple");
}

std::vector<DynamicDimension> free_of(const std::vector<at::Tensor>& examples, const CaptureOptions& options,
                                      const std::vector<int64_t>& batch_dims) {
  std::vector<DynamicDimension> result;
  for (const FreeSize& given : options.free) {
    check_place(given, examples, batch_dims);
    auto at = std::ranges::find(result, given.name, &DynamicDimension::name);
    if (at == result.end()) at = result.insert(at, DynamicDimension{{given.name, 1, 0, 1}, {}});
    at->places.push_back({given.input, given.dim});
    join_limits(*at, given);
  }
  if (result.size() > kMostFree)
    fail(kCapture, "expected at most ", kMostFree, " free dimensions, got ", result.size());
  return result;
}

/// The size of the examples, which the limits must allow.
int64_t example_size(DynamicDimension& free, const std::vector<at::Tensor>& examples) {
  const int64_t size = examples[free.places[0].input].size(free.places[0].dim);
  for (const DynamicDimension::InputDimension& place : free.places) {
    const int64_t other = examples[place.input].size(place.dim);
    if (other != size)
      fail(kCapture, "expected size ", size, " in dimension ", place.dim, " of input ", place.input, ", as '",
           free.name, "' is in input ", free.places[0].input, ", got ", other);
  }
  if (free.max == 0) free.max = size;
  free.check(size, kCapture);
  return size;
}

/// The step from one size that is run to the next.
int64_t step_of(const DynamicDimension& free, int64_t size) {
  const int64_t reach = kFreeDegree * free.multiple;
  if (size - reach >= free.min) return -free.multiple;
  if (size + reach <= free.max) return free.multiple;
  fail(kCapture, "expected an example in which '", free.name, "' has at least ", free.min + reach,
       ", since it is run at ", kFreeDegree + 1, " sizes, got ", size);
}

/// A type of the same bytes in which LibTorch selects: it has no selection of wide whole numbers without a
/// sign.
at::ScalarType selectable(at::ScalarType type) {
  if (type == at::kUInt16) return at::kShort;
  if (type == at::kUInt32) return at::kInt;
  return type == at::kUInt64 ? at::kLong : type;
}

at::Tensor resized(const at::Tensor& example, int64_t dim, int64_t size) {
  if (example.size(dim) == size) return example;
  const at::Tensor index =
      torch::arange(size, at::TensorOptions(at::kLong).device(example.device())) % example.size(dim);
  const at::Tensor bytes = example.view(selectable(example.scalar_type()));
  return bytes.index_select(dim, index)
      .view(example.scalar_type())
      .contiguous(example.suggest_memory_format());
}

}  // namespace

RunSizes OpenSizes::at(std::vector<int64_t> sizes) const {
  RunSizes result{.values = std::move(sizes), .free_names = {}};
  for (const DynamicDimension& dimension : free) result.free_names.push_back(dimension.name);
  return result;
}

OpenSizes open_sizes(const std::vector<at::Tensor>& examples, const CaptureOptions& options) {
  OpenSizes open{.batch_dims = batch_dims_of(examples, options),
                 .batch_range = options.batch_range,
                 .free = {},
                 .example = {}};
  open.free = free_of(examples, options, open.batch_dims);
  open.example.push_back(batch_of(examples, open.batch_dims));
  check_batch(open.example[0], open.batch_range);
  for (DynamicDimension& free : open.free) open.example.push_back(example_size(free, examples));
  return open;
}

SizeGrid grid_of(const OpenSizes& open) {
  SizeGrid grid{{{open.example[0], 1, open.example[0] > 0 ? 1 : 0}}};
  for (size_t i = 0; i < open.free.size(); ++i)
    grid.axes.push_back({open.example[i + 1], step_of(open.free[i], open.example[i + 1]), kFreeDegree});
  return grid;
}

std::vector<std::vector<int64_t>> points_of(const OpenSizes& open, const SizeGrid& grid) {
  const int64_t more = grid.axes[0].degree;  // without a batch the runs at the examples' sizes are repeated
  std::vector<std::vector<int64_t>> points;
  for (int64_t i = 0; i < 3; ++i) {
    points.push_back(open.example);
    points.back()[0] += i * more;
  }
  for (const std::vector<int64_t>& point : grid.points()) {
    if (std::ranges::find(points, point) == points.end()) points.push_back(point);
  }
  std::vector<int64_t> beside = open.example;
  beside[0] += more;
  for (size_t i = 0; i < open.free.size(); ++i) {
    const int64_t step = grid.axes[i + 1].step;
    for (const int64_t size : {beside[i + 1] + (kFreeDegree + 1) * step, beside[i + 1] - step}) {
      if (size < open.free[i].min || size > open.free[i].max) continue;
      beside[i + 1] = size;
      break;
    }
  }
  if (std::ranges::find(points, beside) == points.end()) points.push_back(beside);
  return points;
}

std::vector<at::Tensor> resized(const std::vector<at::Tensor>& examples, const OpenSizes& open,
                                const std::vector<int64_t>& sizes) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < examples.size(); ++i) {
    at::Tensor example = examples[i].detach();
    if (open.batch_dims[i] >= 0) example = resized(example, open.batch_dims[i], sizes[0]);
    for (size_t f = 0; f < open.free.size(); ++f) {
      for (const DynamicDimension::InputDimension& place : open.free[f].places) {
        if (place.input == i) example = resized(example, place.dim, sizes[f + 1]);
      }
    }
    result.push_back(example.is_alias_of(examples[i]) ? example.clone() : example);
  }
  return result;
}

}  // namespace ulp::graph
