// Networks over tokens: the engine against LibTorch, in f32 and with dynamic int8 layers.
#include <gtest/gtest.h>

#include <algorithm>

#include "int8_support.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {
namespace {

models::BertConfig small_bert() {
  models::BertConfig config = models::BertConfig::tiny();
  config.width = 48;
  config.heads = 3;
  config.intermediate = 80;
  return config;
}

/// Tokens of which some texts end in padding (0).
at::Tensor padded_tokens(int64_t count, int64_t length) {
  at::Tensor tokens = torch::randint(1, 256, {count, length});
  for (int64_t i = 0; i < count; ++i) tokens[i].narrow(0, length - i % length, i % length).zero_();
  return tokens;
}

std::shared_ptr<graph::GraphModule> captured_bert(const models::BertConfig& config, int64_t length) {
  torch::manual_seed(5);
  auto model = models::make_bert(config);
  const torch::NoGradGuard no_grad;
  // Deviations of 0.02 would leave attention nearly uniform and layer norms without effect.
  for (at::Tensor& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
  return captured(model, padded_tokens(2, length));
}

TEST(Text, BertInTheEngineIsLibTorchsWithinRounding) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_bert(small_bert(), 13);
  const runtime::Plan plan = lower(*module);
  const at::Tensor tokens = padded_tokens(40, 13);
  const at::Tensor expected = module->forward(tokens);
  for (const kernels::Isa isa : kernels::available_isas()) {
    for (const int64_t batch : {1, 3, 40}) {
      runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
      EXPECT_LE(relative_error(run_engine(engine, tokens, batch), expected), rounding_bound(plan, kF32, kF32))
          << kernels::to_string(isa) << ", batch " << batch;
    }
  }
}

TEST(Text, BertWithoutPaddingNeedsNoMask) {
  const torch::NoGradGuard no_grad;
  models::BertConfig config = small_bert();
  config.padding_token = -1;
  const auto module = captured_bert(config, 7);
  const runtime::Plan plan = lower(*module);
  EXPECT_EQ(listing(plan).find("token_mask"), std::string::npos);
  runtime::Engine engine(plan);
  const at::Tensor tokens = padded_tokens(5, 7);
  EXPECT_LE(relative_error(run_engine(engine, tokens), module->forward(tokens)),
            rounding_bound(plan, kF32, kF32));
}

TEST(Text, ATextOfPaddingOnlyGivesLibTorchsNumbers) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_bert(small_bert(), 6);
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  const at::Tensor tokens = torch::zeros({2, 6}, torch::kLong);
  EXPECT_LE(relative_error(run_engine(engine, tokens), module->forward(tokens)),
            rounding_bound(plan, kF32, kF32));
}

TEST(Text, GeluTanhAndResidualsBecomePartOfTheirLayer) {
  const auto module = captured_bert(small_bert(), 5);
  const std::string steps = listing(lower(*module));
  const auto count = [&](const std::string& what) {
    int found = 0;
    for (size_t at = steps.find(what); at != std::string::npos; at = steps.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("attention "), 2) << steps;
  EXPECT_EQ(count("layer_norm "), 5) << steps;
  EXPECT_EQ(count(" gelu"), 2) << steps;
  EXPECT_EQ(count(" tanh"), 1) << steps;
  EXPECT_EQ(count("add "), 1) << "the positions\n" << steps;
  EXPECT_EQ(count("token_mask "), 1) << "one for both blocks\n" << steps;
  EXPECT_EQ(count("convert "), 0) << steps;
}

TEST(Text, InBf16TheLinearLayersAreBf16) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_bert(small_bert(), 9);
  const runtime::Plan plan = lower(*module, {.precision = LowerOptions::Precision::bf16});
  runtime::Engine engine(plan);
  const at::Tensor tokens = padded_tokens(6, 9);
  const double error = relative_error(run_engine(engine, tokens), module->forward(tokens));
  EXPECT_LE(error, rounding_bound(plan, kBF16, kBF16));
  EXPECT_GT(error, rounding_bound(plan, kF32, kF32)) << "it is bf16";
}

/// Each dynamic layer by itself, fed with the graph's own tensors: the same numbers but for what follows it.
TEST(Text, DynamicLayersGiveTheGraphsNumbers) {
  torch::manual_seed(6);
  const torch::NoGradGuard no_grad;
  for (const bool per_tensor : {false, true}) {
    auto net = std::make_shared<Net>();
    auto first = net->add("first", torch::nn::Linear(70, 50));
    auto second = net->add("second", torch::nn::Linear(torch::nn::LinearOptions(70, 50).bias(false)));
    net->body = [=](const at::Tensor& x) mutable {
      return torch::relu(first->forward(x) + second->forward(x));
    };
    const auto quantized =
        quant::quantize_dynamic(captured(net, torch::randn({2, 6, 70})), {.per_tensor = per_tensor});
    const runtime::Plan plan = lower(*quantized);
    EXPECT_EQ(plan.steps.size(), 2U) << listing(plan);
    const at::Tensor x = torch::randn({5, 6, 70}) * 3;
    const at::Tensor expected = quantized->forward(x);
    for (const kernels::Isa isa : kernels::available_isas()) {
      runtime::Engine engine(plan, {.isa = kernels::to_string(isa)});
      EXPECT_TRUE(run_engine(engine, x).equal(expected)) << kernels::to_string(isa) << " " << per_tensor;
    }
  }
}

TEST(Text, DynamicBertInTheEngineIsNearTheGraph) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_bert(small_bert(), 13);
  const auto quantized = quant::quantize_dynamic(module);
  const runtime::Plan plan = lower(*quantized);
  const std::string steps = listing(plan);
  EXPECT_EQ(steps.find("\nlinear"), std::string::npos) << steps;
  runtime::Engine engine(plan);
  const at::Tensor tokens = padded_tokens(40, 13);
  const at::Tensor exact = module->forward(tokens), expected = quantized->forward(tokens);
  const at::Tensor got = run_engine(engine, tokens);
  // Rounding before a layer moves single codes; their effect stays below that of quantization itself.
  EXPECT_LE(relative_error(got, expected), relative_error(expected, exact));
  EXPECT_LE(relative_error(got, exact), 0.1);
}

/// Embeddings and layer norms are float; every linear layer and attention works on integers.
TEST(Text, StaticallyQuantizedBertIsTheGraphStepByStep) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_bert(small_bert(), 13);
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->forward(padded_tokens(16, 13));
  graph::PassReport report;
  const auto quantized = quant::convert(prepared, &report);
  EXPECT_EQ(report.changes.size(), 16U) << testing::PrintToString(report.changes);
  const runtime::Plan plan = lower(*quantized);
  for (const runtime::Step& step : plan.steps) {
    if (step.op == runtime::Op::attention) {
      EXPECT_EQ(info(plan, step.output).type, runtime::DataType::u8) << step.name;
      for (size_t i = 0; i < 3; ++i) {
        const auto maker = std::ranges::find(plan.steps, step.inputs[i], &runtime::Step::output);
        EXPECT_EQ(maker->op, runtime::Op::linear) << "nothing stands between a layer and attention";
        EXPECT_EQ(info(plan, step.inputs[i]).type, runtime::DataType::u8) << step.name;
      }
    }
    if (step.op != runtime::Op::linear) continue;
    EXPECT_EQ(info(plan, step.inputs[0]).type, runtime::DataType::u8) << step.name;
  }
  const at::Tensor tokens = padded_tokens(40, 13);
  RecordProperty("worst_step", expect_steps_as_graph(*quantized, plan, tokens));
  const at::Tensor exact = module->forward(tokens), expected = quantized->forward(tokens);
  const double graph_db = quant::quantization_error(exact, expected).sqnr_db;
  RecordProperty("graph_db", std::to_string(graph_db));
  EXPECT_GE(graph_db, 28);
  for (const kernels::Isa isa : kernels::available_isas()) {
    runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
    const double db = quant::quantization_error(exact, run_engine(engine, tokens)).sqnr_db;
    RecordProperty("engine_db", std::to_string(db));
    EXPECT_GE(db, 28) << kernels::to_string(isa);
  }
}

TEST(Text, CodedWeightsGiveTheGraphsNumbersAndSmallFiles) {
  const torch::NoGradGuard no_grad;
  models::BertConfig config = small_bert();
  config.width = 96;
  config.intermediate = 192;
  const auto module = captured_bert(config, 11);
  const at::Tensor tokens = padded_tokens(9, 11);
  const auto bytes = [](const runtime::Plan& plan, const char* part) {
    size_t sum = 0;
    for (const runtime::Step& step : plan.steps) {
      if (step.op != runtime::Op::linear) continue;
      for (const auto& [role, name] : step.constants) {
        if (role.starts_with(part)) sum += plan.constants.at(name).bytes.size();
      }
    }
    return static_cast<double>(sum);
  };
  const double plain = bytes(lower(*module), "weight");
  struct Case {
    quant::WeightOptions options;
    double share;
  };
  for (const Case& c :
       {Case{{}, 0.27}, Case{{.bits = 4}, 0.16}, Case{{.bits = 4, .group = 48, .affine = true}, 0.16},
        Case{{.bits = 4, .group = 48, .affine = true, .method = quant::WeightMethod::hqq}, 0.18},
        Case{
            {.bits = 4, .overrides = {{.weight = "*.weight", .bits = 8, .method = quant::WeightMethod::hqq}}},
            0.27}}) {
    const auto quantized = quant::quantize_weights(module, c.options);
    const runtime::Plan plan = lower(*quantized);
    EXPECT_LE(bytes(plan, "weight"), c.share * plain);
    const at::Tensor expected = quantized->forward(tokens);
    for (const kernels::Isa isa : kernels::available_isas()) {
      runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
      EXPECT_LE(relative_error(run_engine(engine, tokens), expected), rounding_bound(plan, kF32, kF32))
          << kernels::to_string(isa) << ", " << c.options.bits << " bits";
    }
  }
}

/// Words and the embeddings of their places, which are looked up by numbers that forward makes.
struct PlacedWords : torch::nn::Module {
  PlacedWords() {
    words = register_module("words", torch::nn::Embedding(50, 32));
    places = register_module("places", torch::nn::Embedding(16, 32));
    head = register_module("head", torch::nn::Linear(32, 50));
  }
  at::Tensor forward(const at::Tensor& ids) {
    return head(words(ids) + places(torch::arange(ids.size(1), torch::kLong)));
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::nn::Linear head{nullptr};
};

TEST(Text, CodedTablesOfPlacesAreNumbersOfTheEngine) {
  const torch::NoGradGuard no_grad;
  PlacedWords model;
  const at::Tensor ids = torch::randint(50, {3, 7});
  const auto captured = ulp::capture(model, {ids});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    captured->to(type);
    for (const quant::WeightOptions& options :
         {quant::WeightOptions{}, quant::WeightOptions{.bits = 4, .group = 16}}) {
      const auto quantized = quant::quantize_weights(captured, options);
      const runtime::Plan plan = lower(*quantized);
      EXPECT_EQ(plan.steps.front().op, runtime::Op::embedding);
      runtime::Engine engine(plan);
      const at::Tensor expected = quantized->forward(ids).to(at::kFloat);
      const double bound = type == at::kFloat ? rounding_bound(plan, kF32, kF32) : 0.02;
      EXPECT_LE(relative_error(run_engine(engine, ids), expected), bound) << listing(plan);
    }
  }
}

/// Words of any width, read by a layer and by themselves.
struct WideWords : torch::nn::Module {
  explicit WideWords(int64_t width) {
    words = register_module("words", torch::nn::Embedding(50, width));
    head = register_module("head", torch::nn::Linear(width, width));
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor x = words(ids);
    return head(x) + x;
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear head{nullptr};
};

TEST(Text, CodedTablesOfWidthsThatLeaveAShortLastGroup) {
  torch::manual_seed(6);
  const torch::NoGradGuard no_grad;
  const at::Tensor ids = torch::randint(50, {3, 7});
  for (const int64_t width : {6, 33, 40, 64}) {
    WideWords model(width);
    const auto captured = ulp::capture(model, {ids});
    for (const quant::WeightOptions& options :
         {quant::WeightOptions{}, quant::WeightOptions{.bits = 4},
          quant::WeightOptions{.bits = 4, .group = 16, .affine = true},
          quant::WeightOptions{.bits = 3, .group = 16, .affine = true, .method = quant::WeightMethod::hqq}}) {
      const auto quantized = quant::quantize_weights(captured, options);
      const runtime::Plan plan = lower(*quantized);
      const at::Tensor expected = quantized->forward(ids);
      for (const kernels::Isa isa : kernels::available_isas()) {
        runtime::Engine engine(plan, {.threads = 1, .isa = kernels::to_string(isa)});
        EXPECT_LE(relative_error(run_engine(engine, ids), expected), rounding_bound(plan, kF32, kF32))
            << width << ", " << options.bits << " bits\n"
            << listing(plan);
      }
    }
  }
}

TEST(Text, AComparisonThatIsNoMaskOfAttentionGivesZerosAndOnes) {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randint(0, 2, {2, 3, 4}).to(at::kFloat);
  const auto module = captured_body([](const at::Tensor& v) { return v.ne(0).unsqueeze(1); }, x);
  runtime::Engine engine(lower(*module));
  EXPECT_TRUE(torch::equal(run_engine(engine, x), x.ne(0).unsqueeze(1).to(at::kFloat)));
}

}  // namespace
}  // namespace ulp::test
