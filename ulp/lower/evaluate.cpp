#include "ulp/lower/evaluate.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp {
namespace {

using runtime::DataType;
using runtime::Layout;
using runtime::TensorInfo;

/// Every type of an input or output has one in LibTorch.
at::ScalarType scalar_type(const TensorInfo& info) {
  return libtorch::scalar_type_of(info.type).value();
}

at::MemoryFormat memory_format(const TensorInfo& info) {
  if (info.layout == Layout::plain) return at::MemoryFormat::Contiguous;
  return info.shape.size() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
}

/// Whether every number of the first type is one of the second.
bool holds_all_of(at::ScalarType type, at::ScalarType given) {
  return !at::isIntegralType(type, /*includeBool=*/true) || at::promoteTypes(type, given) == type;
}

/// Integers are ids, codes and counts: one that the type does not have would be another one.
void check_whole(const TensorInfo& info, const at::Tensor& given, const at::Tensor& converted) {
  if (holds_all_of(converted.scalar_type(), given.scalar_type())) return;
  const at::Tensor other = converted.to(given.scalar_type()).ne(given).flatten();
  if (!other.any().item<bool>()) return;
  const auto place = other.to(at::kByte).argmax().item<int64_t>();
  fail(ErrorCode::bad_shape, "lower.run_engine", "expected numbers of ", runtime::to_string(info.type),
       " in '", info.name, "', got ", given.flatten()[place].to(at::kDouble).item<double>(), " at element ",
       place);
}

at::Tensor as_input(const TensorInfo& info, const at::Tensor& given) {
  const std::vector<int64_t> expected = sizes_at(info, batch_in(info, given.sizes()));
  if (given.sizes() != at::IntArrayRef(expected)) {
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected '", info.name, "' of sizes ",
         at::IntArrayRef(expected), ", got ", given.sizes());
  }
  const at::Tensor numbers = given.detach().to(at::kCPU);
  const at::Tensor converted = numbers.to(scalar_type(info));
  check_whole(info, numbers, converted);
  return converted.contiguous(memory_format(info));
}

/// The batch of the inputs that have one; 1 where none has.
int64_t common_batch(const runtime::Engine& engine, const std::vector<at::Tensor>& inputs) {
  std::optional<size_t> first;
  const auto size_in = [&](size_t i) { return batch_in(engine.inputs()[i], inputs[i].sizes()); };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!batch_dimension(engine.inputs()[i])) continue;
    if (!first) first = i;
    if (size_in(i) == size_in(*first)) continue;
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected inputs of one batch size, got ", size_in(*first),
         " in '", engine.inputs()[*first].name, "' and ", size_in(i), " in '", engine.inputs()[i].name, "'");
  }
  return first ? size_in(*first) : 1;
}

/// The rows of some items of the batch, which is dimension `dim`.
at::Tensor items_of(const TensorInfo& info, const at::Tensor& input, int64_t dim, int64_t first,
                    int64_t count) {
  const int64_t inner = info.times / info.outer;
  if (info.outer == 1) return input.narrow(dim, first * inner, count * inner);
  const at::Tensor rows = input.unflatten(dim, {info.outer, input.size(dim) / info.outer});
  return rows.narrow(dim + 1, first * inner, count * inner).flatten(dim, dim + 1);
}

}  // namespace

std::vector<at::Tensor> run_engine_all(runtime::Engine& engine, const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != engine.inputs().size()) {
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected ", engine.inputs().size(), " inputs, got ",
         inputs.size());
  }
  std::vector<std::vector<int64_t>> shapes;
  for (const at::Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  engine.set_sizes(engine.sizes_for(shapes));
  engine.rewind();
  std::vector<at::Tensor> given, results;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(as_input(engine.inputs()[i], inputs[i]));
    in.push_back(given.back().const_data_ptr());
  }
  const int64_t batch = common_batch(engine, inputs);
  for (const TensorInfo& info : engine.outputs()) {
    results.push_back(at::empty(sizes_at(info, batch),
                                at::TensorOptions(scalar_type(info)).memory_format(memory_format(info))));
    out.push_back(results.back().mutable_data_ptr());
  }
  engine.run(batch, in, out);
  return results;
}

at::Tensor run_engine(runtime::Engine& engine, const at::Tensor& input, int64_t batch) {
  if (batch < 1)
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected a batch of at least 1, got ", batch);
  const TensorInfo& given = engine.inputs().at(0);
  const auto dim = static_cast<int64_t>(batch_dimension(given).value_or(0));
  if (input.dim() <= dim || input.size(dim) < 1)
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected at least one row of input");
  if (input.size(dim) % given.times != 0) {
    fail(ErrorCode::bad_shape, "lower.run_engine", "expected '", given.name, "' with ", given.times,
         " rows for each item of the batch, got ", input.size(dim));
  }
  const int64_t items = input.size(dim) / given.times;
  std::vector<at::Tensor> parts;
  for (int64_t first = 0, count = 0; first < items; first += count) {
    count = std::min(batch, items - first);
    parts.push_back(run_engine_all(engine, {items_of(given, input, dim, first, count)}).at(0));
  }
  const TensorInfo& info = engine.outputs().at(0);
  const auto made = static_cast<int64_t>(batch_dimension(info).value_or(0));
  if (info.outer == 1) return at::cat(parts, made);
  // Rows that stand before the batch are those of all items.
  for (at::Tensor& part : parts) part = part.unflatten(made, {info.outer, part.size(made) / info.outer});
  return at::cat(parts, made + 1).flatten(made, made + 1);
}

at::Tensor random_input(const TensorInfo& info, int64_t batch) {
  const std::vector<int64_t> sizes = sizes_at(info, batch);
  if (info.type == DataType::i32 || info.type == DataType::i64) return at::zeros(sizes, scalar_type(info));
  // Bytes below 0 are none.
  return info.type == DataType::u8 ? at::randint(256, sizes, scalar_type(info))
                                   : at::randn(sizes).to(scalar_type(info));
}

}  // namespace ulp
