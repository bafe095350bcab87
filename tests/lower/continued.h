// Texts that contexts write part by part, for tests of runs that continue each other.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/runtime/engine/context.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

using Tensors = std::vector<at::Tensor>;

inline constexpr int64_t kLongest = 24, kTokens = 50;

inline at::Tensor tokens(int64_t batch, int64_t length, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return torch::randint(0, kTokens, {batch, length}, at::kLong);
}

/// Runs these tokens behind what the context has taken.
inline at::Tensor write(runtime::Context& context, const at::Tensor& given) {
  context.set_sizes({{"time", given.size(1)}});
  const at::Tensor ids = given.contiguous();
  std::vector<int64_t> shape = context.outputs()[0].shape;
  shape[0] = given.size(0);
  const at::Tensor result = torch::empty(shape);
  const std::array<const void*, 1> in = {ids.const_data_ptr()};
  const std::array<void*, 1> out = {result.mutable_data_ptr()};
  context.run(given.size(0), in, out);
  return result;
}

/// The results of parts of these lengths, side by side.
inline at::Tensor write_parts(runtime::Context& context, const at::Tensor& text,
                              const std::vector<int64_t>& lengths) {
  std::vector<at::Tensor> parts;
  for (const int64_t length : lengths)
    parts.push_back(write(context, text.narrow(1, context.position(), length)));
  return torch::cat(parts, 1);
}

/// Captured with a free length.
template <typename Model>
std::shared_ptr<graph::GraphModule> captured_text(Model& model, int64_t longest = kLongest) {
  model.eval();
  const torch::NoGradGuard no_grad;
  auto graph = ulp::capture(model, Tensors{tokens(2, longest)}, {.free = {{0, 1, "time"}}});
  graph->eval();
  return graph;
}

inline void expect_near(const at::Tensor& want, const at::Tensor& got, double floor_db) {
  ASSERT_EQ(want.sizes(), got.sizes());
  EXPECT_GE(quant::quantization_error(want, got).sqnr_db, floor_db);
}

/// All ways of cutting a text give the whole text's numbers.
inline void expect_continues(graph::GraphModule& graph, const LowerOptions& options, double floor_db,
                             int64_t longest) {
  const torch::NoGradGuard no_grad;
  const runtime::Engine engine(ulp::lower(graph, options), {.threads = 2});
  for (const int64_t batch : {1, 3, 9}) {
    const at::Tensor text = tokens(batch, longest, static_cast<uint64_t>(batch));
    const at::Tensor want = graph.forward({text});
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{longest}, {1, longest - 1}, {longest - 2, 1, 1}, {5, 1, 7, longest - 13}}) {
      runtime::Context context(engine, {.threads = 2});
      expect_near(want, write_parts(context, text, cuts), floor_db);
      EXPECT_EQ(context.position(), longest);
    }
    runtime::Context context(engine);
    expect_near(want, write_parts(context, text, std::vector<int64_t>(longest, 1)), floor_db);
  }
}

inline constexpr LowerOptions::Precision kF32Precision = LowerOptions::Precision::f32;
inline constexpr LowerOptions::Precision kBF16Precision = LowerOptions::Precision::bf16;

}  // namespace ulp::test
