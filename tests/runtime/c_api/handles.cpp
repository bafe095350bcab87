#include "handles.h"

#include <fstream>
#include <iterator>

namespace ulp::runtime::testing {

std::vector<std::byte> file_of(const Plan& plan) {
  const TemporaryFolder folder;
  plan.save(folder / "plan.ulp");
  std::ifstream in(folder / "plan.ulp", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

EngineHandle engine_of(const Plan& plan) {
  const std::vector<std::byte> file = file_of(plan);
  ulp_engine* engine = nullptr;
  EXPECT_EQ(ulp_engine_load_memory(file.data(), file.size(), nullptr, &engine), ULP_OK) << ulp_last_error();
  return EngineHandle(engine);
}

ContextHandle context_of(const ulp_engine* engine, int threads) {
  const ulp_context_options options = {.struct_size = sizeof options, .threads = threads};
  ulp_context* context = nullptr;
  EXPECT_EQ(ulp_context_create(engine, &options, &context), ULP_OK) << ulp_last_error();
  return ContextHandle(context);
}

std::vector<ulp_const_buffer> const_buffers(const std::vector<Bytes>& bytes) {
  std::vector<ulp_const_buffer> made;
  for (const Bytes& each : bytes) made.push_back({each.data(), each.size()});
  return made;
}

std::vector<ulp_buffer> buffers(std::vector<Bytes>& bytes) {
  std::vector<ulp_buffer> made;
  for (Bytes& each : bytes) made.push_back({each.data(), each.size()});
  return made;
}

std::vector<Bytes> run(ulp_context* context, int64_t batch, const std::vector<Bytes>& inputs) {
  std::vector<Bytes> outputs;
  size_t bytes = 0;
  while (ulp_context_output_bytes(context, outputs.size(), batch, &bytes) == ULP_OK)
    outputs.emplace_back(bytes);
  const std::vector<ulp_const_buffer> in = const_buffers(inputs);
  const std::vector<ulp_buffer> out = buffers(outputs);
  EXPECT_EQ(ulp_context_run(context, batch, in.data(), in.size(), out.data(), out.size()), ULP_OK)
      << ulp_last_error();
  return outputs;
}

namespace {

/// relu of a value whose last dimension follows the free one.
Plan relu_along(std::vector<int64_t> shape, const DynamicDimension& free) {
  Builder b(Numbers::f32);
  const size_t last = shape.size() - 1;
  b.output(b.op(Op::relu, {b.input(std::move(shape))}, ActivationAttributes{Activation::relu}));
  b.plan.following.free = {free};
  for (size_t i = 0; i < b.plan.tensors.size(); ++i)
    b.plan.following.numbers.push_back(
        {"/tensors/" + std::to_string(i) + "/shape/" + std::to_string(last), {{{1, 1, {1}}}}});
  return b.plan;
}

}  // namespace

Plan any_width() {
  return relu_along({kBatch, 3, 12}, {"width", 2, 12, 2});
}

Plan decoding_dimension() {
  Plan plan = relu_along({kBatch, 8}, {"time", 1, 8});
  plan.continued = "time";
  return plan;
}

Plan with_rows_of(int64_t times) {
  Builder b(Numbers::f32);
  const ActivationAttributes relu{Activation::relu};
  b.output(b.op(Op::relu, {b.input({kBatch, 2})}, relu));
  const int32_t rows = b.input({kBatch, 2});
  b.plan.tensors.back().times = times;
  b.output(b.op(Op::relu, {rows}, relu));
  b.plan.tensors.back().times = times;
  return b.plan;
}

Plan time_by_batch() {
  Builder b(Numbers::f32);
  const int32_t x = b.op(Op::relu, {b.input({kBatch, 5, 2})}, ActivationAttributes{Activation::relu});
  b.output(b.op(Op::regroup, {b.op(Op::move_batch, {x}, MoveBatchAttributes{1})}, RegroupAttributes{}));
  b.plan.tensors.back().times = b.plan.tensors.back().outer = 5;
  return b.plan;
}

}  // namespace ulp::runtime::testing
