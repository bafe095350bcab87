// Networks whose inputs may have other sizes than the captured ones: texts, signals, clouds of points, images.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/same.h"
#include "lower/support.h"
#include "networks.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {
namespace {

/// A network with its free dimensions, and two settings of their sizes beside the captured one.
struct AnyLength {
  std::string name;
  std::vector<graph::FreeSize> free;
  std::vector<std::vector<int64_t>> others;  ///< a size for each entry
};

const std::vector<AnyLength>& any_lengths() {
  static const std::vector<AnyLength> all = {
      {"bert", {{0, 1, "time"}}, {{7}, {1}}},
      {"gpt", {{0, 1, "time"}}, {{9}, {1}}},
      {"llama", {{0, 1, "time"}}, {{5}, {1}}},
      {"pointnet", {{0, 2, "points"}}, {{20}, {3}}},
      // Its border of 2 is mirrored.
      {"super_resolution", {{0, 2, "height", 0, 3}, {0, 3, "width", 0, 3}}, {{7, 12}, {16, 5}}},
      {"tcn", {{0, 2, "time"}}, {{33}, {12}}},
      {"wavenet", {{0, 2, "time"}}, {{63}, {40}}}};
  return all;
}

const Network& network_of(const std::string& name) {
  return *std::ranges::find(networks(), name, &Network::name);
}

/// Inputs of a batch size, cut to these sizes.
Tensors draw(const AnyLength& any, int64_t batch, const std::vector<int64_t>& sizes) {
  torch::manual_seed(static_cast<uint64_t>(batch) * 1000 + static_cast<uint64_t>(sizes[0]));
  Tensors inputs = network_of(any.name).inputs(batch);
  for (size_t i = 0; i < any.free.size(); ++i) {
    at::Tensor& input = inputs[any.free[i].input];
    input = input.narrow(any.free[i].dim, 0, sizes[i]).contiguous();
  }
  return inputs;
}

std::vector<int64_t> example_sizes(const AnyLength& any) {
  const Tensors inputs = network_of(any.name).inputs(2);
  std::vector<int64_t> sizes;
  for (const graph::FreeSize& free : any.free) sizes.push_back(inputs[free.input].size(free.dim));
  return sizes;
}

class AnyLengths : public testing::TestWithParam<size_t> {};

TEST_P(AnyLengths, GraphAndEngineAreTheModelAtEach) {
  const AnyLength& any = any_lengths()[GetParam()];
  torch::manual_seed(1);
  const Instance model = network_of(any.name).make();
  const std::vector<int64_t> captured_at = example_sizes(any);
  const auto graph =
      graph::capture(*model.root, model.forward, draw(any, 4, captured_at), {.free = any.free});
  const Named tensors = named(*model.root);
  const Forward replay = [&](const Tensors& given) { return graph->run(given); };
  graph->eval();
  runtime::Engine engine(lower(*graph));
  std::vector<std::vector<int64_t>> settings = any.others;
  settings.push_back(captured_at);
  for (const std::vector<int64_t>& sizes : settings) {
    for (const int64_t batch : {1, 4, 7}) {
      const std::string what =
          any.name + " of " + std::to_string(sizes[0]) + ", batch " + std::to_string(batch);
      const Tensors inputs = draw(any, batch, sizes);
      for (const bool training : {true, false}) {
        model.root->train(training);
        graph->train(training);
        if (training && batch == 1) continue;  // a batch norm refuses one value
        const Outcome want = outcome(model.forward, tensors, inputs, training, false);
        expect_same(want, outcome(replay, tensors, inputs, training, false), tensors, what);
      }
      const torch::NoGradGuard no_grad;
      const Tensors want = graph->forward_all(inputs), got = run_engine_all(engine, inputs);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_GE(quant::quantization_error(want[i].to(at::kFloat), got[i].to(at::kFloat)).sqnr_db, 80)
            << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnyLengths, testing::Range<size_t>(0, any_lengths().size()),
                         [](const auto& info) { return any_lengths()[info.param].name; });

}  // namespace
}  // namespace ulp::test
