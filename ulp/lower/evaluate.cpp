#include "ulp/lower/evaluate.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

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

at::Tensor as_input(const TensorInfo& info, const at::Tensor& given) {
  std::vector<int64_t> expected = info.shape;
  if (given.dim() > 0 && !expected.empty() && expected[0] == runtime::kBatch) expected[0] = given.size(0);
  if (given.sizes() != at::IntArrayRef(expected)) {
    fail("lower.run_engine", "expected '", info.name, "' of sizes ", at::IntArrayRef(expected), ", got ",
         given.sizes());
  }
  return given.detach().to(at::kCPU).to(scalar_type(info)).contiguous(memory_format(info));
}

/// The size of dimension 0 of the inputs whose it is the batch; 1 where none has one.
int64_t common_batch(const runtime::Engine& engine, const std::vector<at::Tensor>& inputs) {
  std::optional<size_t> first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (engine.inputs()[i].shape[0] != runtime::kBatch) continue;
    if (!first) first = i;
    if (inputs[i].size(0) == inputs[*first].size(0)) continue;
    fail("lower.run_engine", "expected inputs of one batch size, got ", inputs[*first].size(0), " in '",
         engine.inputs()[*first].name, "' and ", inputs[i].size(0), " in '", engine.inputs()[i].name, "'");
  }
  return first ? inputs[*first].size(0) : 1;
}

}  // namespace

std::vector<at::Tensor> run_engine_all(runtime::Engine& engine, const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != engine.inputs().size()) {
    fail("lower.run_engine", "expected ", engine.inputs().size(), " inputs, got ", inputs.size());
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
    std::vector<int64_t> sizes = info.shape;
    if (sizes[0] == runtime::kBatch) sizes[0] = batch;
    results.push_back(
        at::empty(sizes, at::TensorOptions(scalar_type(info)).memory_format(memory_format(info))));
    out.push_back(results.back().mutable_data_ptr());
  }
  engine.run(batch, in, out);
  return results;
}

at::Tensor run_engine(runtime::Engine& engine, const at::Tensor& input, int64_t batch) {
  if (batch < 1) fail("lower.run_engine", "expected a batch of at least 1, got ", batch);
  if (input.dim() < 1 || input.size(0) < 1) fail("lower.run_engine", "expected at least one row of input");
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < input.size(0); row += batch) {
    const int64_t rows = std::min(batch, input.size(0) - row);
    parts.push_back(run_engine_all(engine, {input.narrow(0, row, rows)}).at(0));
  }
  return at::cat(parts);
}

at::Tensor random_input(const TensorInfo& info, int64_t batch) {
  std::vector<int64_t> sizes = info.shape;
  if (sizes.at(0) == runtime::kBatch) sizes[0] = batch;
  const bool ids = info.type == DataType::i32 || info.type == DataType::i64;
  return ids ? at::zeros(sizes, scalar_type(info)) : at::randn(sizes).to(scalar_type(info));
}

}  // namespace ulp
