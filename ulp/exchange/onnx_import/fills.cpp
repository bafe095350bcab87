// Tensors that follow from sizes: filled ones, ranges, one-hot codes.
#include <torch/types.h>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

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

void range(Call& call) {
  const auto number = [&](size_t i) {
    const std::optional<at::Scalar> found = call.scalar(i);
    if (!found) call.refuse("expected start, limit and delta to be known before the run");
    return *found;
  };
  const at::Scalar start = number(0), limit = number(1), delta = number(2);
  if (delta.toDouble() == 0) call.refuse("expected a delta other than 0");
  const double count = (limit.toDouble() - start.toDouble()) / delta.toDouble();
  constexpr double kMost = 1e9;
  if (!(count < kMost)) call.refuse("expected a range that is not endless");
  const at::ScalarType type = call.known(0).scalar_type();
  const auto options = at::TensorOptions(type);
  if (count <= 0) return call.set(at::empty({0}, options));
  call.set(at::arange(start, limit, delta, options));
}

void one_hot(Call& call) {
  const Tensor index = call.x(0), values = call.known(2);
  const int64_t depth = call.integer(1);
  const int64_t axis = call.dim(call.attribute("axis", int64_t{-1}), index.dim() + 1);
  if (values.numel() != 2 || depth < 0) call.refuse("expected a depth, and two values");
  const Tensor places = at::arange(depth, index.options());
  std::vector<int64_t> along(static_cast<size_t>(index.dim()) + 1, 1);
  along[static_cast<size_t>(axis)] = depth;
  const Tensor hit = at::eq(at::unsqueeze(index, axis), at::reshape(places, along));
  const Tensor typed = hit.to(values.scalar_type());
  const double off = values.to(at::kDouble).const_data_ptr<double>()[0],
               on = values.to(at::kDouble).const_data_ptr<double>()[1];
  call.set(on == 1 && off == 0 ? typed : at::add(at::mul(typed, on - off), off));
}

}  // namespace

ConverterTable fill_table() {
  static constexpr Converter kTable[] = {{"ConstantOfShape", constant_of_shape, filled},
                                         {"Range", range, range_bound},
                                         {"OneHot", one_hot, one_hot_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
