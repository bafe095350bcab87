// Parts of tensors by conditions and lengths: Compress, ReverseSequence.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>

#include "ulp/exchange/onnx_import/constants.h"
#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

Tensor beside_capture_longs(const std::vector<int64_t>& values) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  return torch::tensor(values, at::kLong);
}

/// The elements where the condition is true, which is known.
void compress(Call& call) {
  const Tensor x = call.x(0);
  const bool flat = !call.has_attribute("axis");
  const Tensor rows = flat ? at::reshape(x, {-1}) : x;
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), rows.dim());
  const std::vector<at::Scalar> condition = call.numbers(1);
  if (static_cast<int64_t>(condition.size()) > rows.size(dim))
    call.refuse("expected at most ", rows.size(dim), " conditions, got ", condition.size());
  std::vector<int64_t> places;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i].toLong() != 0) places.push_back(static_cast<int64_t>(i));
  }
  call.set(at::index_select(rows, dim, constant_of_node(call, ".places", beside_capture_longs(places))));
}

/// The first elements of each sequence in reverse.
void reverse_sequence(Call& call) {
  const Tensor x = call.x(0);
  const int64_t batch = call.attribute("batch_axis", int64_t{1}),
                time = call.attribute("time_axis", int64_t{0});
  if (x.dim() < 2 || batch + time != 1 || batch * time != 0)
    call.refuse("expected a batch and a time as the first two of the dimensions, got ", x.sizes());
  const Tensor places = at::arange(x.size(time), at::TensorOptions(at::kLong));
  const Tensor lengths = at::unsqueeze(call.x(1), 1);
  const Tensor turned =
      at::where(at::lt(places, lengths), at::sub(at::sub(lengths, 1), places), places);  // [batch, time]
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(batch)] = turned.size(0);
  sizes[static_cast<size_t>(time)] = turned.size(1);
  const Tensor rows = at::reshape(time == 1 ? turned : at::transpose(turned, 0, 1), sizes);
  call.set(at::gather(x, time, at::expand_copy(rows, x.sizes())));
}

/// With the places in a sequence, which are there for an empty batch, too.
double reversed_bound(Call& call) {
  double longest = 0;
  for (const int64_t size : call.sizes(0)) longest = std::max(longest, static_cast<double>(size));
  return twice(call) + longest;
}

}  // namespace

ConverterTable sequence_table() {
  static constexpr Converter kTable[] = {{"Compress", compress, twice},
                                         {"ReverseSequence", reverse_sequence, reversed_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
