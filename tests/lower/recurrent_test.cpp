// LSTM and GRU: the engine against LibTorch.
#include <gtest/gtest.h>

#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/lstm.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"

namespace ulp::test {
namespace {

/// Every step of time adds the roundings of its products and curves to those before it; 2^-22 each at most.
double bound(int64_t steps, int64_t layers = 1) {
  return static_cast<double>(16 + steps * layers) * 0x1p-21;
}

void expect_engine_gives(const std::shared_ptr<graph::GraphModule>& module,
                         const std::vector<at::Tensor>& inputs, double limit) {
  const torch::NoGradGuard no_grad;
  const runtime::Plan plan = lower(*module);
  const std::vector<at::Tensor> expected = module->forward_all(inputs);
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int threads : {1, 2}) {
      runtime::Engine engine(plan, {.threads = threads, .isa = kernels::to_string(isa)});
      const std::vector<at::Tensor> got = run_engine_all(engine, inputs);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].sizes(), expected[i].sizes());
        EXPECT_LE(relative_error(got[i], expected[i]), limit) << kernels::to_string(isa) << " result " << i;
      }
    }
  }
}

void expect_engine_gives(const std::shared_ptr<graph::GraphModule>& module, const at::Tensor& input,
                         double limit) {
  expect_engine_gives(module, std::vector<at::Tensor>{input}, limit);
}

/// A layer of either kind with what is read of its results.
template <typename Layer>
std::shared_ptr<graph::GraphModule> captured_layer(
    Layer layer, std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> read, const at::Tensor& x) {
  auto net = std::make_shared<Net>();
  net->add("layer", layer);
  net->body = [=](const at::Tensor& input) mutable {
    if constexpr (std::is_same_v<Layer, torch::nn::LSTM>) {
      const auto [y, states] = layer->forward(input);
      return read(y, std::get<0>(states));
    } else {
      const auto [y, states] = layer->forward(input);
      return read(y, states);
    }
  };
  return captured(net, x);
}

at::Tensor sequence(const at::Tensor& y, const at::Tensor&) {
  return y;
}

TEST(Recurrent, LayersInTheEngineAreLibTorchsWithinRounding) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({5, 11, 9});
  for (const bool bidirectional : {false, true}) {
    for (const int64_t layers : {1, 2}) {
      for (const bool bias : {true, false}) {
        const auto lstm = torch::nn::LSTM(torch::nn::LSTMOptions(9, 20)
                                              .num_layers(layers)
                                              .bias(bias)
                                              .batch_first(true)
                                              .dropout(layers > 1 ? 0.4 : 0)
                                              .bidirectional(bidirectional));
        const auto gru = torch::nn::GRU(
            torch::nn::GRUOptions(9, 20).num_layers(layers).bias(bias).batch_first(true).bidirectional(
                bidirectional));
        expect_engine_gives(captured_layer(lstm, sequence, x), x, bound(11, layers));
        expect_engine_gives(captured_layer(gru, sequence, x), x, bound(11, layers));
      }
    }
  }
}

TEST(Recurrent, LastStatesAreCutOutOfTheSequences) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({3, 6, 4});
  const auto both =
      torch::nn::LSTM(torch::nn::LSTMOptions(4, 7).num_layers(2).batch_first(true).bidirectional(true));
  const auto ends = [](const at::Tensor&, const at::Tensor& h) { return torch::cat({h[-2], h[-1]}, 1); };
  expect_engine_gives(captured_layer(both, ends, x), x, bound(6, 2));
  const auto one = torch::nn::GRU(torch::nn::GRUOptions(4, 7).batch_first(true));
  const auto squeezed = [](const at::Tensor&, const at::Tensor& h) { return h.squeeze(0); };
  expect_engine_gives(captured_layer(one, squeezed, x), x, bound(6));
  const auto last = [](const at::Tensor& y, const at::Tensor&) { return y.select(1, -1); };
  expect_engine_gives(captured_layer(one, last, x), x, bound(6));
}

/// A time-major layer around which a model swaps time and batch.
std::shared_ptr<graph::GraphModule> time_major(std::function<at::Tensor(const at::Tensor&)> behind,
                                               const at::Tensor& x) {
  auto net = std::make_shared<Net>();
  auto layer = net->add("layer", torch::nn::GRU(torch::nn::GRUOptions(4, 7).num_layers(2)));
  net->body = [=](const at::Tensor& input) mutable {
    return behind(std::get<0>(layer->forward(input.transpose(0, 1))));
  };
  return captured(net, x);
}

TEST(Recurrent, TimeFirstNeedsNoTransposition) {
  torch::manual_seed(4);
  const at::Tensor x = torch::randn({3, 6, 4});
  const auto back = time_major([](const at::Tensor& y) { return y.permute({1, 0, 2}); }, x);
  EXPECT_EQ(lower(*back).steps.size(), 2U);
  expect_engine_gives(back, x, bound(6, 2));
  expect_engine_gives(time_major([](const at::Tensor& y) { return y[-1]; }, x), x, bound(6, 2));
  expect_engine_gives(time_major([](const at::Tensor& y) { return y.sum(0); }, x), x, bound(6, 2));
}

/// A layer whose states the caller keeps, as where numbers come one by one: x, h, c -> y, h, c.
struct Started : torch::nn::Module {
  torch::nn::LSTM layer;
  explicit Started(const torch::nn::LSTM& lstm) : layer(register_module("layer", lstm)) {}
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& h,
                                                         const at::Tensor& c) {
    const auto [y, states] = layer->forward(x, std::make_tuple(h, c));
    return {y, std::get<0>(states), std::get<1>(states)};
  }
};

TEST(Recurrent, StatesComeInAndGoOutInLibTorchsShapes) {
  torch::manual_seed(10);
  for (const bool batch_first : {true, false}) {
    for (const int64_t layers : {1, 2}) {
      for (const bool both : {false, true}) {
        auto net = std::make_shared<Started>(torch::nn::LSTM(
            torch::nn::LSTMOptions(4, 7).num_layers(layers).batch_first(batch_first).bidirectional(both)));
        const int64_t states = layers * (both ? 2 : 1);
        const auto inputs = [&](int64_t batch) -> std::vector<at::Tensor> {
          const at::Tensor x = batch_first ? torch::randn({batch, 6, 4}) : torch::randn({6, batch, 4});
          return {x, torch::randn({states, batch, 7}), torch::randn({states, batch, 7})};
        };
        const auto module = capture(net, inputs(3), {.batch_dims = {batch_first ? 0 : 1, 1, 1}});
        module->eval();
        for (const int64_t batch : {1, 3, 5, 300})
          expect_engine_gives(module, inputs(batch), bound(6, layers));
        const auto dynamic = quant::quantize_dynamic(module);
        const std::vector<at::Tensor> given = inputs(4);
        const torch::NoGradGuard no_grad;
        runtime::Engine engine(lower(*dynamic));
        const std::vector<at::Tensor> got = run_engine_all(engine, given),
                                      expected = dynamic->forward_all(given);
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(expected[i])) << i;
      }
    }
  }
}

TEST(Recurrent, StepByStepIsTheWholeSequence) {
  torch::manual_seed(11);
  const torch::NoGradGuard no_grad;
  auto net = std::make_shared<Started>(torch::nn::LSTM(torch::nn::LSTMOptions(4, 7).num_layers(2)));
  const at::Tensor x = torch::randn({9, 3, 4}), zeros = torch::zeros({2, 3, 7});
  const std::vector<at::Tensor> example = {x.narrow(0, 0, 1), zeros, zeros};
  const auto module = capture(net, example, {.batch_dims = {1, 1, 1}});
  module->eval();
  runtime::Engine engine(lower(*module));
  std::vector<at::Tensor> results = example;
  std::vector<at::Tensor> written;
  for (int64_t t = 0; t < x.size(0); ++t) {
    results = run_engine_all(engine, {x.narrow(0, t, 1), results[1], results[2]});
    written.push_back(results[0]);
  }
  const auto [y, h, c] = net->forward(x, zeros, zeros);
  EXPECT_LE(relative_error(torch::cat(written), y), bound(9, 2));
  EXPECT_LE(relative_error(results[1], h), bound(9, 2));
  EXPECT_LE(relative_error(results[2], c), bound(9, 2));
}

TEST(Recurrent, StatesMayBeLearnedOrComeFromAnotherLayer) {
  using torch::nn::GRU;
  using torch::nn::GRUOptions;
  torch::manual_seed(12);
  const at::Tensor x = torch::randn({3, 6, 4});
  auto learned = std::make_shared<Net>();
  auto gru = learned->add("gru", GRU(GRUOptions(4, 7).num_layers(2).batch_first(true)));
  const at::Tensor first = learned->register_parameter("first", torch::randn({2, 1, 7}));
  learned->body = [=](const at::Tensor& input) mutable {
    const auto [y, h] = gru->forward(input, first.expand({2, input.size(0), 7}));
    return torch::cat({y, h.transpose(0, 1)}, 1);
  };
  expect_engine_gives(captured(learned, x), x, bound(6, 2));
  auto pair = std::make_shared<Net>();
  auto encoder = pair->add("encoder", torch::nn::LSTM(torch::nn::LSTMOptions(4, 7).batch_first(true)));
  auto decoder = pair->add("decoder", torch::nn::LSTM(torch::nn::LSTMOptions(4, 7).batch_first(true)));
  pair->body = [=](const at::Tensor& input) mutable {
    const auto [codes, states] = encoder->forward(input);
    // The first state of a kind alone is zeros.
    const auto fresh = std::make_tuple(std::get<0>(states), torch::zeros_like(std::get<1>(states)));
    return std::get<0>(decoder->forward(input.flip(1), states)) +
           std::get<0>(decoder->forward(input, fresh)) + codes;
  };
  expect_engine_gives(captured(pair, x), x, bound(6, 3));
}

TEST(Recurrent, LastCellStatesAreResults) {
  torch::manual_seed(13);
  const at::Tensor x = torch::randn({3, 5, 4});
  auto net = std::make_shared<Net>();
  auto layer =
      net->add("layer", torch::nn::LSTM(torch::nn::LSTMOptions(4, 6).num_layers(2).batch_first(true)));
  net->body = [=](const at::Tensor& input) mutable {
    const auto [y, states] = layer->forward(input);
    const auto& [h, c] = states;
    return torch::cat({y.select(1, -1), h[0], c[0], c[1], h.transpose(0, 1).flatten(1)}, 1);
  };
  expect_engine_gives(captured(net, x), x, bound(5, 2));
}

TEST(Recurrent, StepsAreNamedLikeTheLayersAndFilesKeepTheDirection) {
  const at::Tensor x = torch::randn({2, 5, 3});
  const auto layer =
      torch::nn::GRU(torch::nn::GRUOptions(3, 4).num_layers(2).batch_first(true).bidirectional(true));
  const runtime::Plan plan = lower(*captured_layer(layer, sequence, x));
  ASSERT_EQ(plan.steps.size(), 6U) << listing(plan);
  EXPECT_EQ(plan.steps[0].name, "layer.l0");
  EXPECT_EQ(plan.steps[4].name, "layer.l1_reverse");
  EXPECT_TRUE(plan.steps[4].get<runtime::RecurrentAttributes>().reverse &&
              !plan.steps[3].get<runtime::RecurrentAttributes>().reverse);
  EXPECT_TRUE(plan.constants.contains("layer.weight_hh_l1_reverse"));
}

TEST(Recurrent, TheLanguageModelLowers) {
  torch::manual_seed(3);
  const auto model =
      models::make_lstm({.vocab_size = 40, .embedding = 12, .hidden = 24, .layers = 2, .dropout = 0.5});
  const at::Tensor tokens = torch::randint(0, 40, {6, 15});
  expect_engine_gives(captured(model, tokens), tokens, bound(15, 2));
}

TEST(Recurrent, InBf16TheLayersWeightsAreBf16) {
  torch::manual_seed(9);
  const torch::NoGradGuard no_grad;
  const auto model = models::make_lstm({.vocab_size = 40, .embedding = 12, .hidden = 24});
  const at::Tensor tokens = torch::randint(0, 40, {6, 15});
  const auto module = captured(model, tokens);
  const runtime::Plan plan = lower(*module, {.precision = LowerOptions::Precision::bf16});
  runtime::Engine engine(plan);
  const double error = relative_error(run_engine(engine, tokens), module->forward(tokens));
  EXPECT_LE(error, rounding_bound(plan, kBF16, kBF16));
  EXPECT_GT(error, bound(15)) << "its weights are bf16: " << listing(plan);
  const auto lstm = std::ranges::find(plan.steps, runtime::Op::lstm, &runtime::Step::op);
  ASSERT_NE(lstm, plan.steps.end());
  EXPECT_EQ(plan.constants.at(lstm->constants.at("weight_hh")).type, DataType::bf16);
  EXPECT_EQ(plan.constants.at(lstm->constants.at("bias_hh")).type, DataType::f32);
}

TEST(Recurrent, TheClassifierLowersWithAndWithoutPadding) {
  torch::manual_seed(8);
  at::Tensor tokens = torch::randint(1, 30, {6, 9});
  tokens[1].narrow(0, 4, 5).zero_();
  tokens[2].zero_();
  for (const int64_t padding : {-1, 0}) {
    const auto model = models::make_lstm(
        {.vocab_size = 30, .embedding = 8, .hidden = 16, .num_classes = 3, .padding_token = padding});
    const auto module = captured(model, tokens);
    expect_engine_gives(module, tokens, bound(9));
    EXPECT_EQ(lower(*module).steps.size(), 4U) << "embedding, lstm, token_mean, head";
    const auto quantized = quant::quantize_dynamic(module);
    runtime::Engine engine(lower(*quantized));
    const torch::NoGradGuard no_grad;
    EXPECT_LE(relative_error(run_engine(engine, tokens), module->forward(tokens)), 0.1);
  }
}

TEST(Recurrent, DynamicLayersGiveTheGraphsBits) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({5, 11, 9});
  const auto lstm =
      torch::nn::LSTM(torch::nn::LSTMOptions(9, 20).num_layers(2).batch_first(true).bidirectional(true));
  const auto gru = torch::nn::GRU(torch::nn::GRUOptions(9, 20).num_layers(2).batch_first(true).bias(false));
  for (const auto& module : {captured_layer(lstm, sequence, x), captured_layer(gru, sequence, x)}) {
    for (const bool per_tensor : {false, true}) {
      const auto quantized = quant::quantize_dynamic(module, {.per_tensor = per_tensor});
      const runtime::Plan plan = lower(*quantized);
      const at::Tensor expected = quantized->forward(x);
      for (const kernels::Isa isa : kernels::available_isas()) {
        runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
        EXPECT_TRUE(run_engine(engine, x).equal(expected)) << kernels::to_string(isa) << " " << per_tensor;
      }
    }
  }
}

TEST(Recurrent, TheDynamicLanguageModelGivesTheGraphsBits) {
  torch::manual_seed(6);
  const torch::NoGradGuard no_grad;
  const auto model = models::make_lstm({.vocab_size = 40, .embedding = 12, .hidden = 24, .layers = 2});
  const at::Tensor tokens = torch::randint(0, 40, {6, 15});
  const auto quantized = quant::quantize_dynamic(captured(model, tokens));
  const runtime::Plan plan = lower(*quantized);
  runtime::Engine engine(plan);
  EXPECT_TRUE(run_engine(engine, tokens).equal(quantized->forward(tokens))) << listing(plan);
}

TEST(Recurrent, StaticallyQuantizedModelsKeepTheLayerInFloat) {
  torch::manual_seed(7);
  const torch::NoGradGuard no_grad;
  const auto model = models::make_lstm({.vocab_size = 40, .embedding = 16, .hidden = 32});
  const at::Tensor tokens = torch::randint(0, 40, {8, 10});
  const auto module = captured(model, tokens);
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  prepared->forward(tokens);
  const auto quantized = quant::convert(prepared);
  const runtime::Plan plan = lower(*quantized);
  runtime::Engine engine(plan);
  const at::Tensor got = run_engine(engine, tokens), exact = module->forward(tokens);
  EXPECT_LE(relative_error(got, exact), 0.05);
  EXPECT_GT(relative_error(got, exact), 0) << "its head is quantized: " << listing(plan);
}

/// The error of lowering a layer.
template <typename Layer>
std::string refusal(Layer layer,
                    std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> read = sequence) {
  try {
    lower(*captured_layer(layer, read, torch::randn({3, 5, 4})));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Recurrent, FormsThatTheEngineHasNotAreNamed) {
  const torch::NoGradGuard no_grad;
  using torch::nn::LSTM;
  using torch::nn::LSTMOptions;
  const LSTM plain(LSTMOptions(4, 6).batch_first(true));
  const std::string projected = refusal(LSTM(LSTMOptions(4, 6).batch_first(true).proj_size(3)));
  expect_part(projected, "aten::lstm.input 'lstm' in layer: expected 4 weights and biases, got 5");
  auto net = std::make_shared<Started>(plain);
  const at::Tensor x = torch::randn({3, 5, 4}), state = torch::zeros({1, 3, 6});
  const auto module = capture(net, {x, state, state}, {.batch_dims = {0, 1, 1}});
  module->eval();
  graph::Graph& graph = module->graph();
  graph.set_attribute("start", {graph::Attribute::Kind::parameter, torch::ones({1, 3, 6})});
  graph.replace_uses(graph.inputs()[1], graph.attribute("start"));
  try {
    lower(*module);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    expect_part(error.what(), "'start' does not come from the model's inputs");
  }
}

}  // namespace
}  // namespace ulp::test
