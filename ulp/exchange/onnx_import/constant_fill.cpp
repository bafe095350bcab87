// Tensors that follow from sizes: filled ones, ranges, one-hot codes.
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

constexpr double kMostInRange = 1e9;

/// One number of a tensor.
at::Scalar number_in(const Call& call, const Tensor& value) {
  if (value.numel() != 1) call.refuse("expected one number as the value");
  if (value.scalar_type() == at::kFloat) return decimal(value.item<float>());
  return value.item();
}

void constant_of_shape(Call& call) {
  const FileAttribute* value = call.node().find("value");
  const Tensor one = value != nullptr && value->t.defined() ? value->t : at::zeros({1}, at::kFloat);
  call.set(at::full(call.ints(0), number_in(call, one), at::TensorOptions(one.scalar_type())));
}

/// start + i delta, counted as runtimes count: the difference rounded to the type.
Tensor float_range(const Call& call, const Tensor& start, const Tensor& limit, const Tensor& delta) {
  const double first = start.item<double>(), step = delta.item<double>();
  const double count = std::ceil((limit - start).item<double>() / step);
  if (!(count < kMostInRange)) call.refuse("expected a range that is not endless");
  const Tensor values = torch::empty({static_cast<int64_t>(std::max(count, 0.0))}, torch::kDouble);
  auto* value = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) value[i] = first + static_cast<double>(i) * step;
  return values.to(start.scalar_type());
}

void range(Call& call) {
  const auto number = [&](size_t i) {
    const std::optional<at::Scalar> found = call.scalar(i);
    if (!found) call.refuse("expected start, limit and delta to be known before the run");
    return *found;
  };
  const at::Scalar start = number(0), limit = number(1), delta = number(2);
  if (delta.toDouble() == 0) call.refuse("expected a delta other than 0");
  const at::ScalarType type = call.known(0).scalar_type();
  if (at::isFloatingType(type))
    return call.set(float_range(call, call.known(0), call.known(1), call.known(2)));
  const double count = (limit.toDouble() - start.toDouble()) / delta.toDouble();
  if (!(count < kMostInRange)) call.refuse("expected a range that is not endless");
  const auto options = at::TensorOptions(type);
  if (count <= 0) return call.set(at::empty({0}, options));
  call.set(at::arange(start, limit, delta, options));
}

void one_hot(Call& call) {
  const Tensor index = call.x(0);
  const std::vector<at::Scalar> values = call.numbers(2);
  const std::optional<at::Scalar> given = call.scalar(1);
  if (!given) call.refuse("expected a depth that is known before the run");
  const auto depth = static_cast<int64_t>(given->toDouble());
  const int64_t axis = call.dim(call.attribute("axis", int64_t{-1}), index.dim() + 1);
  if (values.size() != 2 || depth < 0) call.refuse("expected a depth, and two values");
  const Tensor places = at::arange(depth, index.options());
  std::vector<int64_t> along(static_cast<size_t>(index.dim()) + 1, 1);
  along[static_cast<size_t>(axis)] = depth;
  // Indices below 0 count from the end.
  const Tensor from_front = at::where(at::lt(index, 0), at::add(index, depth), index);
  const Tensor hit = at::eq(at::unsqueeze(from_front, axis), at::reshape(places, along));
  const at::ScalarType type = call.known(2).scalar_type();
  if (values[1].toDouble() == 1 && values[0].toDouble() == 0) return call.set(hit.to(type));
  const Tensor chosen = at::where(hit, values[1], values[0]);
  call.set(chosen.scalar_type() == type ? chosen : chosen.to(type));
}

/// 1 on a diagonal of a matrix, 0 elsewhere.
void eye_like(Call& call) {
  const std::vector<int64_t> sizes = call.sizes(0);
  if (sizes.size() != 2) call.refuse("expected a matrix, got ", sizes.size(), " dimensions");
  const int64_t type = call.attribute("dtype", int64_t{0});
  const Tensor x = call.x(0);
  const at::ScalarType made = type == 0 ? x.scalar_type() : scalar_type(type, call.node().label());
  const Tensor rows = at::arange(sizes[0], at::TensorOptions(at::kLong)),
               columns = at::arange(sizes[1], at::TensorOptions(at::kLong));
  const Tensor shifted = at::add(rows, call.attribute("k", int64_t{0}));
  call.set(at::eq(at::unsqueeze(shifted, 1), columns).to(made));
}

}  // namespace

ConverterTable fill_table() {
  static constexpr Converter kTable[] = {{"ConstantOfShape", constant_of_shape, filled},
                                         {"Range", range, range_bound},
                                         {"OneHot", one_hot, one_hot_bound},
                                         {"EyeLike", eye_like, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
