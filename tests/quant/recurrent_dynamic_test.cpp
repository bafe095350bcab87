// Dynamic LSTM and GRU layers: the operators against PyTorch's own, and the pass.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "boxed.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/lstm.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::quant {
namespace {

using torch::nn::GRU;
using torch::nn::GRUOptions;
using torch::nn::LSTM;
using torch::nn::LSTMOptions;

/// A layer whose sequence and last h are both results.
template <typename Layer>
struct RecurrentNet : torch::nn::Module {
  explicit RecurrentNet(Layer layer) : layer(register_module("layer", layer)) {}
  std::vector<at::Tensor> forward(at::Tensor x) {
    if constexpr (std::is_same_v<Layer, LSTM>) {
      const auto [y, states] = layer->forward(x);
      return {y, std::get<0>(states), std::get<1>(states)};
    } else {
      const auto [y, h] = layer->forward(x);
      return {y, h};
    }
  }
  Layer layer;
};

template <typename Layer>
std::shared_ptr<graph::GraphModule> captured(Layer layer, const at::Tensor& x, int64_t batch_dim = 0) {
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<RecurrentNet<Layer>>(layer);
  net->eval();
  auto module = capture(net, {x}, {.batch_dims = {batch_dim}});
  module->eval();
  return module;
}

/// Signal over noise in decibels.
double sqnr(const at::Tensor& exact, const at::Tensor& got) {
  return 10 * std::log10((exact.pow(2).sum() / (exact - got).pow(2).sum()).item<double>());
}

TEST(RecurrentDynamic, EveryFormIsNearTheFloatLayer) {
  torch::manual_seed(1);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({4, 12, 10});
  for (const bool bidirectional : {false, true}) {
    for (const bool bias : {false, true}) {
      for (const bool per_tensor : {false, true}) {
        const auto lstm = captured(
            LSTM(LSTMOptions(10, 24).num_layers(2).bias(bias).batch_first(true).bidirectional(bidirectional)),
            x);
        const auto gru = captured(
            GRU(GRUOptions(10, 24).num_layers(2).bias(bias).batch_first(true).bidirectional(bidirectional)),
            x);
        for (const auto& module : {lstm, gru}) {
          const auto quantized = quantize_dynamic(module, {.per_tensor = per_tensor});
          quantized->graph().verify();
          const auto expected = module->forward_all({x}), got = quantized->forward_all({x});
          ASSERT_EQ(got.size(), expected.size());
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i].sizes(), expected[i].sizes());
            EXPECT_GT(sqnr(expected[i], got[i]), 34) << "result " << i << " of " << quantized->graph();
            EXPECT_FALSE(got[i].equal(expected[i])) << "it is quantized";
          }
        }
      }
    }
  }
}

TEST(RecurrentDynamic, TimeFirstGivesTheNumbersOfBatchFirst) {
  torch::manual_seed(2);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({3, 7, 5});
  const GRU first(GRUOptions(5, 6).batch_first(true)), second(GRUOptions(5, 6));
  for (size_t i = 0; i < first->parameters().size(); ++i)
    second->parameters()[i].copy_(first->parameters()[i]);
  const auto a = quantize_dynamic(captured(first, x))->forward_all({x});
  const auto b = quantize_dynamic(captured(second, x.transpose(0, 1), 1))->forward_all({x.transpose(0, 1)});
  EXPECT_TRUE(a[0].equal(b[0].transpose(0, 1)));
  EXPECT_TRUE(a[1].equal(b[1]));
}

/// PyTorch's dynamic LSTM of 8-bit activations (reduce_range off) with the codes of the graph.
at::Tensor pytorch_lstm(const graph::Graph& graph, const at::Tensor& x, int64_t hidden) {
  at::globalContext().setQEngine(at::QEngine::FBGEMM);
  const auto tensor = [&](const std::string& name) { return graph.find_attribute("layer." + name)->tensor; };
  const auto packed = [&](const std::string& which) {
    const at::Tensor scale = tensor("weight_" + which + "_l0.scale").to(at::kDouble);
    const at::Tensor weight = at::_make_per_channel_quantized_tensor(
        tensor("weight_" + which + "_l0.int8"), scale, at::zeros({scale.size(0)}, at::kLong), 0);
    return boxed("quantized::linear_prepack", "", {weight, tensor("bias_" + which + "_l0")});
  };
  const c10::IValue cell =
      boxed("quantized::make_quantized_cell_params_dynamic", "",
            {packed("ih"), packed("hh"), tensor("bias_ih_l0"), tensor("bias_hh_l0"), false});
  c10::impl::GenericList cells(cell.type());
  cells.push_back(cell);
  const at::Tensor zeros = at::zeros({1, x.size(0), hidden});
  return boxed("aten::quantized_lstm", "input",
               {x, c10::List<at::Tensor>({zeros, zeros}), cells, true, int64_t{1}, 0.0, false, false, true,
                c10::IValue(at::kChar), true})
      .toTensor();
}

TEST(RecurrentDynamic, PerTensorGivesPyTorchsNumbers) {
  if (pytorch_saturates()) GTEST_SKIP() << "PyTorch's own sums are wrong on this processor";
  torch::manual_seed(3);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({5, 9, 14});
  const auto quantized =
      quantize_dynamic(captured(LSTM(LSTMOptions(14, 16).batch_first(true)), x), {.per_tensor = true});
  const at::Tensor ours = quantized->forward_all({x})[0], theirs = pytorch_lstm(quantized->graph(), x, 16);
  // The same integers until a rounding moves a code of h: 1 / 255 of its range.
  EXPECT_LE((ours - theirs).abs().max().item<double>(), 2e-3);
  EXPECT_LE((ours.select(1, 0) - theirs.select(1, 0)).abs().max().item<double>(), 0x1p-20);
}

TEST(RecurrentDynamic, LayersAreReportedAndSkippedByName) {
  torch::manual_seed(4);
  const auto model = models::make_lstm({.vocab_size = 30, .embedding = 8, .hidden = 12});
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto module = capture(model, {torch::randint(0, 30, {2, 6})});
  graph::PassReport report;
  quantize_dynamic(module, {}, &report);
  EXPECT_EQ(report.changes, (std::vector<std::string>{"lstm quantizes its input as it runs",
                                                      "head quantizes its input as it runs"}));
  const auto quantized = quantize_dynamic(module, {.skip_modules = {"lstm"}}, &report);
  EXPECT_EQ(report.near_misses, std::vector<std::string>{"lstm stays in float: skipped by name"});
  EXPECT_EQ(report.changes.size(), 1U);
}

TEST(RecurrentDynamic, WhatItCannotTakeStaysInFloatOrIsRefused) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 4});
  const auto message = [&](const std::shared_ptr<graph::GraphModule>& module) -> std::string {
    try {
      quantize_dynamic(module);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto projected = captured(LSTM(LSTMOptions(4, 6).batch_first(true).proj_size(3)), x);
  EXPECT_NE(message(projected).find("layer stays in float: it has projections"), std::string::npos)
      << message(projected);
  const LSTM bad(LSTMOptions(4, 6).batch_first(true));
  bad->named_parameters()["weight_hh_l0"][1][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(message(captured(bad, x)).find("1 NaN and 0 infinite values in 'layer.weight_hh_l0'"),
            std::string::npos);
}

TEST(RecurrentDynamic, StaticQuantizationLeavesTheLayerInFloatAndSaysWhy) {
  torch::manual_seed(6);
  const auto model = models::make_lstm({.vocab_size = 30, .embedding = 16, .hidden = 32});
  model->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor tokens = torch::randint(0, 30, {8, 10});
  const auto module = capture(model, {tokens});
  module->eval();
  graph::PassReport report;
  const auto prepared = prepare(module, Recipe::x86_int8());
  prepared->forward(tokens);
  const auto quantized = convert(prepared, &report);
  EXPECT_NE(
      std::ranges::find(report.near_misses,
                        "lstm (aten::lstm) not quantized: recurrent layers are quantized dynamically only"),
      report.near_misses.end());
  EXPECT_NE(std::ranges::find(report.changes, "head quantized"), report.changes.end());
  EXPECT_GT(sqnr(module->forward(tokens), quantized->forward(tokens)), 30);
}

}  // namespace
}  // namespace ulp::quant
