// The search for bits and methods of each weight, and recipes with overrides.
#include "ulp/quant/weights/mixed_precision.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "small_bert.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using graph::GraphModule;

struct MixedNetImpl : torch::nn::Module {
  MixedNetImpl() {
    first = register_module("first", torch::nn::Linear(48, 64));
    middle = register_module("middle", torch::nn::Linear(64, 64));
    last = register_module("last", torch::nn::Linear(64, 6));
  }
  Tensor forward(const Tensor& x) {
    return last->forward(torch::relu(middle->forward(torch::relu(first->forward(x)))));
  }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
};
TORCH_MODULE(MixedNet);

/// A network trained on a random task.
struct MixedCase {
  MixedCase() {
    torch::manual_seed(3);
    const Tensor centres = torch::randn({6, 48});
    labels = torch::randint(0, 6, {512});
    x = centres.index_select(0, labels) + 1.6 * torch::randn({512, 48});
    torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-3));
    for (int step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      torch::nll_loss(torch::log_softmax(net->forward(x), 1), labels).backward();
      optimizer.step();
    }
    captured = capture(net, {x.narrow(0, 0, 2)});
    captured->eval();
  }
  double loss(GraphModule& model) const {
    const at::NoGradGuard no_grad;
    return torch::nll_loss(torch::log_softmax(model.forward(x), 1), labels).item<double>();
  }
  MixedPrecisionHooks hooks() const {
    return {.loss = [this](GraphModule& model) { return loss(model); }};
  }
  CalibrationData data() const {
    return [this](const RunBatch& run) {
      run({x.narrow(0, 0, 256)});
      run({x.narrow(0, 256, 256)});
    };
  }
  MixedNet net;
  Tensor x, labels;
  std::shared_ptr<GraphModule> captured;
};

WeightOnlyRecipe searching(std::vector<std::string> candidates, std::optional<int64_t> bytes,
                           std::optional<double> loss = {}) {
  WeightOnlyRecipe recipe{.bits = 4};
  recipe.search.emplace();
  recipe.search->candidates = std::move(candidates);
  if (bytes) recipe.search->max_bytes = ByteSize{*bytes};
  recipe.search->max_loss = loss;
  return recipe;
}

const std::vector<std::string> kMixedCandidates = {"8",    "4/8/gptq", "4/16/affine/hqq", "4/32",
                                                   "4/-1", "3/-1/awq", "2/-1/affine"};

TEST(MixedPrecision, IsNeverWorseThanASingleRecipe) {
  const MixedCase setup;
  const MixedPrecision all = search_mixed_precision(setup.captured, searching(kMixedCandidates, 1 << 20),
                                                    setup.data(), setup.hooks());
  ASSERT_GE(all.measured.size(), kMixedCandidates.size());
  for (size_t k = 0; k < kMixedCandidates.size(); ++k) {
    const MeasuredMix& single = all.measured[k];
    EXPECT_EQ(single.name, kMixedCandidates[k]);
    const MixedPrecision found = search_mixed_precision(
        setup.captured, searching(kMixedCandidates, single.bytes), setup.data(), setup.hooks());
    const MeasuredMix& best = found.measured[found.chosen];
    EXPECT_LE(best.bytes, single.bytes) << single.name;
    for (size_t other = 0; other < kMixedCandidates.size(); ++other) {
      if (all.measured[other].bytes <= single.bytes)
        EXPECT_LE(best.loss, all.measured[other].loss) << single.name;
    }
    EXPECT_EQ(setup.loss(*found.model), best.loss);
    // The recipe says it all again.
    const WeightOnlyRecipe read = WeightOnlyRecipe::from_json(found.recipe.to_json());
    EXPECT_EQ(read, found.recipe);
    const auto again = quantize_weights(setup.captured, read, setup.data());
    EXPECT_TRUE(again->forward(setup.x).equal(found.model->forward(setup.x)));
  }
}

TEST(MixedPrecision, FindsTheSmallestWithinALoss) {
  const MixedCase setup;
  int64_t before = 0;
  for (const double most : {0.5, 0.02, 0.002}) {
    const MixedPrecision found =
        search_mixed_precision(setup.captured, searching({"8", "4/16", "4/-1", "2/-1/affine"}, {}, most),
                               setup.data(), setup.hooks());
    const MeasuredMix& best = found.measured[found.chosen];
    EXPECT_LE(best.loss - found.float_loss, most);
    for (const MeasuredMix& one : found.measured) {
      if (one.loss - found.float_loss <= most) EXPECT_LE(best.bytes, one.bytes);
    }
    EXPECT_GE(best.bytes, before);
    before = best.bytes;
  }
}

TEST(MixedPrecision, MeasuresAsManyMixesAsThereAreFinalists) {
  const MixedCase setup;
  for (const int64_t bytes : {int64_t{9000}, INT64_MAX}) {
    WeightOnlyRecipe recipe = searching({"8", "4/4", "4/8", "4/16", "4/-1"}, bytes);
    recipe.search->finalists = 20;
    const MixedPrecision found = search_mixed_precision(setup.captured, recipe, setup.data(), setup.hooks());
    int64_t within = 0;
    for (const int64_t one : found.front_bytes) within += one <= bytes;
    EXPECT_EQ(static_cast<int64_t>(found.measured.size()) - 5, std::min<int64_t>(20, within)) << bytes;
  }
}

TEST(MixedPrecision, ASensitiveLayerKeepsItsBits) {
  torch::manual_seed(5);
  MixedNet net;
  {
    const at::NoGradGuard no_grad;
    net->last->weight.mul_(1e-3);  // what the other layers do is beside a large bias
    net->first->weight.select(1, 0).mul_(50);
  }
  const Tensor x = torch::randn({64, 48});
  const auto captured = capture(net, {x});
  const CalibrationData data = [&](const RunBatch& run) { run({x}); };
  const MixedPrecision found = search_mixed_precision(captured, searching({"8", "4/-1"}, 7000), data);
  EXPECT_EQ(found.layers.size(), 3U);
  EXPECT_EQ(found.front_bytes.size(), found.front_loss.size());
  EXPECT_EQ(found.layers[0].weight, "first.weight");
  EXPECT_GT(found.layers[0].loss[1], found.layers[1].loss[1]);
  EXPECT_EQ(found.layers[0].chosen, "8");
  EXPECT_EQ(found.layers[1].chosen, "4/-1");
  EXPECT_LE(found.measured[found.chosen].bytes, 7000);
  EXPECT_EQ(found.resolution, 1);
}

TEST(MixedPrecision, QuantizeFollowsARecipeWithASearch) {
  const auto captured = captured_bert(32, 48);
  const Tensor ids = at::randint(0, 256, {4, 9});
  const CalibrationData data = [&](const RunBatch& run) { run({ids}); };
  const WeightOnlyRecipe recipe = searching({"8", "4/16/gptq"}, {}, 1e-4);
  graph::PassReport report;
  std::vector<WeightError> errors;
  const auto model = quantize_weights(captured, recipe, data, &report, &errors);
  const MixedPrecision found = search_mixed_precision(captured, recipe, data);
  EXPECT_TRUE(model->forward(ids).equal(found.model->forward(ids)));
  EXPECT_EQ(report.changes, found.report.changes);
  const Tensor expected = captured->forward(ids), got = model->forward(ids);
  EXPECT_LE((got - expected).square().sum().item<double>() / expected.square().sum().item<double>(),
            1.001e-4);
  EXPECT_ERROR(quantize_weights(captured, recipe), "expected calibration data for the search, got none");
}

TEST(MixedPrecision, WhatItCannotDoIsSaid) {
  const MixedCase setup;
  const auto search = [&](const WeightOnlyRecipe& recipe) {
    return search_mixed_precision(setup.captured, recipe, setup.data(), setup.hooks());
  };
  EXPECT_ERROR(search(searching({"8"}, 100)), "expected max_bytes of at least");
  EXPECT_ERROR(search(searching({"2/-1"}, {}, 0.0)), "the least loss measured is");
  EXPECT_ERROR(search(searching({"8"}, {})), "expected max_bytes, max_loss or both, got none");
  EXPECT_ERROR(search(searching({}, 1 << 20)), "at least one candidate");
  EXPECT_ERROR(search(searching({"8", "4/32/magic"}, 1 << 20)), "got '4/32/magic'");
  EXPECT_ERROR(search(searching({"5/32"}, 1 << 20)), "in the candidate 5/32");
  EXPECT_ERROR(search(searching({"4/32", "4"}, 1 << 20)), "4/32 twice");
  EXPECT_ERROR(search(searching({"4/9223372036854775806"}, 1 << 20)), "expected group in [-1, 1048576]");
  EXPECT_ERROR(search({.bits = 4}), "expected a recipe with a search");
  WeightOnlyRecipe both = searching({"8"}, 1 << 20);
  both.overrides = {{.weight = "first", .bits = 8}};
  EXPECT_ERROR(search(both), "no overrides beside a search");
  EXPECT_ERROR(search_mixed_precision(setup.captured, searching({"8"}, 1 << 20), {}),
               "calibration data, got none");
  EXPECT_ERROR(search_mixed_precision(setup.captured, searching({"8"}, 1 << 20), [](const RunBatch&) {}),
               "expected batches of calibration data");
  EXPECT_ERROR(search_mixed_precision(setup.captured, searching({"8"}, 1 << 20), setup.data(),
                                      {.loss = [](GraphModule&) { return std::nan(""); }}),
               "a finite loss of the float model, got nan");
}

TEST(MixedPrecision, InterruptedKeepsTheBestSoFar) {
  const MixedCase setup;
  for (const int most : {0, 1, 4, 12}) {
    int calls = 0;
    MixedPrecisionHooks hooks = setup.hooks();
    hooks.loss = [&](GraphModule& model) {
      if (calls++ == most) throw Interrupted();
      return setup.loss(model);
    };
    const auto search = [&] {
      return search_mixed_precision(setup.captured, searching({"2/-1", "8", "4/16"}, 1 << 20), setup.data(),
                                    hooks);
    };
    if (most < 2) {
      EXPECT_THROW(search(), Interrupted);
      continue;
    }
    const MixedPrecision found = search();
    EXPECT_TRUE(found.interrupted);
    EXPECT_EQ(found.measured[found.chosen].loss, setup.loss(*found.model));
    for (const MeasuredMix& one : found.measured) EXPECT_GE(one.loss, found.measured[found.chosen].loss);
  }
}

TEST(WeightOverrides, GiveWeightsTheirOwnRecipe) {
  const auto captured = captured_bert(32, 48);
  WeightOnlyRecipe recipe{.bits = 4, .group = 16, .affine = true};
  graph::PassReport report;
  const auto found = [&](const std::string& text) {
    return std::ranges::any_of(report.changes,
                               [&](const auto& line) { return line.find(text) != std::string::npos; });
  };
  recipe.overrides = {{.weight = "*", .bits = 8}};
  quantize_weights(captured, recipe, &report);
  EXPECT_TRUE(found("8 bits"));
  EXPECT_FALSE(found("4 bits"));
  recipe.overrides.push_back({.weight = "*", .bits = 3, .group = 8, .affine = false});
  quantize_weights(captured, recipe, &report);
  EXPECT_TRUE(found("3 bits"));
  EXPECT_TRUE(found("4 bits")) << "tables";
  recipe.overrides = {{.weight = "nothing.*", .bits = 8}};
  EXPECT_ERROR(quantize_weights(captured, recipe),
               "expected overrides of weights that are stored small, got 'nothing.*'");
  recipe.overrides = {{.weight = "", .bits = 8}};
  EXPECT_ERROR(quantize_weights(captured, recipe), "expected overrides[0].weight to name weights");
  recipe.overrides = {{.weight = "*", .group = 7}};
  EXPECT_ERROR(quantize_weights(captured, recipe), "in overrides[0] of '*'");
  recipe.overrides = {{.weight = "*", .method = WeightMethod::awq}};
  EXPECT_ERROR(quantize_weights(captured, recipe), "expected calibration data for the method awq");
}

/// A later override has what an earlier one's bits and method left no meaning.
TEST(WeightOverrides, EarlierOnesLeaveNoMark) {
  WeightOnlyRecipe recipe{.bits = 4, .group = 16, .affine = true, .act_order = true, .static_groups = true};
  recipe.overrides = {{.weight = "*", .bits = 8, .method = WeightMethod::rtn},
                      {.weight = "first", .bits = 3, .method = WeightMethod::gptq}};
  recipe.validate();
  const WeightOnlyRecipe first = recipe.of_weight("first.weight"), last = recipe.of_weight("last.weight");
  EXPECT_TRUE(first.affine && first.act_order && first.static_groups);
  EXPECT_FALSE(last.affine || last.act_order || last.static_groups);
  last.validate();
  recipe.overrides[0].affine = true;
  EXPECT_ERROR(recipe.validate(), "in overrides[0] of '*'");
  // Each of these is right alone.
  WeightOnlyRecipe odd{.bits = 8};
  odd.overrides = {{.weight = "*", .group = 7}, {.weight = "first", .bits = 4}};
  odd.validate();
  MixedNet net;
  const auto captured = capture(net, {torch::randn({2, 48})});
  EXPECT_ERROR(quantize_weights(captured, odd), "in the overrides of 'first.weight'");
  odd.overrides[0].group = 0;
  EXPECT_ERROR(quantize_weights(captured, odd), "expected an even group, or -1, got 0");
}

/// Each weight's codes are those that a recipe for all makes, where data do not say otherwise.
TEST(WeightOverrides, AreTheCodesOfASingleRecipe) {
  torch::manual_seed(8);
  MixedNet net;
  const Tensor x = torch::randn({40, 48});
  const auto captured = capture(net, {x});
  const CalibrationData data = [&](const RunBatch& run) { run({x}); };
  WeightOnlyRecipe mixed{.bits = 4, .group = 16};
  mixed.overrides = {{.weight = "middle", .bits = 2, .group = -1, .affine = true},
                     {.weight = "last.weight", .group = 8, .method = WeightMethod::hqq}};
  const auto attribute = [](const GraphModule& model, const std::string& name) {
    const graph::Attribute* found = model.graph().find_attribute(name);
    EXPECT_NE(found, nullptr) << name;
    return found->tensor;
  };
  const auto plain = quantize_weights(captured, {.bits = 4, .group = 16});
  const auto low = quantize_weights(captured, {.bits = 2, .group = -1, .affine = true});
  const auto half = quantize_weights(captured, {.bits = 4, .group = 8, .method = WeightMethod::hqq});
  for (const bool by_data : {false, true}) {
    if (by_data) mixed.overrides.push_back({.weight = "first", .method = WeightMethod::gptq});
    const auto model = quantize_weights(captured, mixed, data);
    for (const std::string part : {"int4", "scale"}) {
      EXPECT_TRUE(attribute(*model, "middle.weight." + part).equal(attribute(*low, "middle.weight." + part)));
      EXPECT_TRUE(attribute(*model, "last.weight." + part).equal(attribute(*half, "last.weight." + part)));
      if (!by_data)
        EXPECT_TRUE(
            attribute(*model, "first.weight." + part).equal(attribute(*plain, "first.weight." + part)));
    }
    if (!by_data) continue;
    const auto gptq_model = gptq(captured, data, {.bits = 4, .group = 16});
    EXPECT_TRUE(attribute(*model, "first.weight.int4").equal(attribute(*gptq_model, "first.weight.int4")));
  }
}

/// A layer that awq scales the input of stands behind one with minima.
TEST(WeightOverrides, ScalesOfInputsGoIntoMinimaToo) {
  torch::manual_seed(9);
  MixedNet net;
  const Tensor x = torch::randn({300, 48}).abs() * torch::linspace(0.01, 8, 48);
  {
    const at::NoGradGuard no_grad;
    net->first->weight.mul_(torch::linspace(0.05, 4, 64).unsqueeze(1));
  }
  const auto captured = capture(net, {x});
  const CalibrationData data = [&](const RunBatch& run) { run({x}); };
  WeightOnlyRecipe mixed{.bits = 4, .group = 16, .affine = true, .method = WeightMethod::hqq};
  const double before =
      (quantize_weights(captured, mixed)->forward(x) - captured->forward(x)).square().sum().item<double>();
  mixed.overrides = {{.weight = "middle", .method = WeightMethod::awq}};
  graph::PassReport report;
  const auto model = quantize_weights(captured, mixed, data, &report);
  bool folded = false;
  for (const std::string& line : report.changes)
    folded = folded || line.find("1 / s is in first") != std::string::npos;
  EXPECT_TRUE(folded);
  const double after = (model->forward(x) - captured->forward(x)).square().sum().item<double>();
  EXPECT_LT(after, 1.5 * before);
}

}  // namespace
}  // namespace ulp::quant
