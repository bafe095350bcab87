// One plan for every size of the free dimensions: the engine gives the graph's numbers at each of them.
#include <gtest/gtest.h>

#include <filesystem>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/context.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using Sizes = std::map<std::string, int64_t>;
using Tensors = std::vector<at::Tensor>;

/// What the engine makes of these inputs at the context's sizes.
Tensors run(runtime::Engine& engine, const Tensors& given) {
  Tensors inputs, outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < given.size(); ++i) {
    inputs.push_back(given[i].contiguous());
    EXPECT_EQ(engine.inputs()[i].shape.size(), static_cast<size_t>(given[i].dim()));
    for (int64_t d = 1; d < given[i].dim(); ++d) EXPECT_EQ(engine.inputs()[i].shape[d], given[i].size(d));
    in.push_back(inputs.back().const_data_ptr());
  }
  for (const runtime::TensorInfo& info : engine.outputs()) {
    std::vector<int64_t> shape = info.shape;
    if (shape[0] == runtime::kBatch) shape[0] = given[0].size(0);
    outputs.push_back(torch::empty(shape, info.type == runtime::DataType::i64 ? at::kLong : at::kFloat));
    out.push_back(outputs.back().mutable_data_ptr());
  }
  engine.run(given[0].size(0), in, out);
  return outputs;
}

/// The engine against the graph at one setting; `floor_db` of signal to noise.
void expect_near(graph::GraphModule& graph, runtime::Engine& engine, const Sizes& sizes,
                 const Tensors& inputs, double floor_db) {
  const torch::NoGradGuard no_grad;
  engine.set_sizes(sizes);
  const Tensors want = graph.forward_all(inputs), got = run(engine, inputs);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(want[i].sizes(), got[i].sizes());
    const double db = quant::quantization_error(want[i].to(at::kFloat), got[i].to(at::kFloat)).sqnr_db;
    EXPECT_GE(db, floor_db) << inputs[0].sizes();
  }
}

constexpr double kF32Db = 90, kBF16Db = 25;

at::Tensor random_texts(int64_t batch, int64_t time, int64_t width = 6) {
  torch::manual_seed(batch * 100 + time);
  return torch::randn({batch, time, width});
}

/// Lowered once, in f32 and bf16, and tried at every length.
void expect_any_length(const Body& body, const std::shared_ptr<Net>& net,
                       const std::vector<int64_t>& lengths = {1, 2, 3, 9, 16, 23, 24}) {
  net->body = body;
  net->eval();
  const auto graph = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time", 24}}});
  graph->eval();
  for (const bool bf16 : {false, true}) {
    const runtime::Plan plan = ulp::lower(
        *graph, {.precision = bf16 ? LowerOptions::Precision::bf16 : LowerOptions::Precision::f32});
    runtime::Engine engine(plan);
    for (const int64_t length : lengths) {
      for (const int64_t batch : {1, 3, 4})
        expect_near(*graph, engine, {{"time", length}}, {random_texts(batch, length)},
                    bf16 ? kBF16Db : kF32Db);
    }
  }
}

TEST(FreeSizes, LinearLayersAndNorms) {
  const auto net = std::make_shared<Net>();
  auto fc = net->add("fc", nn::Linear(6, 8));
  auto norm = net->add("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  expect_any_length([=](const at::Tensor& x) mutable { return torch::gelu(norm(fc(x))).mean(1); }, net);
}

TEST(FreeSizes, AttentionWithPositionsAndCausalMask) {
  const auto net = std::make_shared<Net>();
  auto q = net->add("q", nn::Linear(6, 6)), k = net->add("k", nn::Linear(6, 6)),
       v = net->add("v", nn::Linear(6, 6));
  auto table = net->add("positions", nn::Embedding(24, 6));
  expect_any_length(
      [=](const at::Tensor& given) mutable {
        const int64_t b = given.size(0), t = given.size(1);
        const at::Tensor x = given + table(torch::arange(t));
        const auto heads = [&](const at::Tensor& y) { return y.view({b, t, 2, 3}).transpose(1, 2); };
        const at::Tensor hidden = torch::ones({t, t}, torch::kBool).triu(1);
        const at::Tensor scores = torch::matmul(heads(q(x)), heads(k(x)).transpose(2, 3)) / std::sqrt(3.0);
        const at::Tensor weights = torch::softmax(scores.masked_fill(hidden, -1e9), -1);
        return torch::matmul(weights, heads(v(x))).transpose(1, 2).reshape({b, t, 6});
      },
      net);
}

TEST(FreeSizes, RelativePositionsAsConstants) {
  // A bias by distance that is no mask: it stays a constant, of which each length uses a corner.
  const auto net = std::make_shared<Net>();
  auto q = net->add("q", nn::Linear(6, 6));
  auto bias = net->add("bias", nn::Embedding(9, 1));
  expect_any_length(
      [=](const at::Tensor& x) mutable {
        const at::Tensor steps = torch::arange(x.size(1));
        const at::Tensor distance = (steps.unsqueeze(0) - steps.unsqueeze(1)).clamp(-4, 4) + 4;
        const at::Tensor scores = torch::matmul(q(x), x.transpose(1, 2)) + bias(distance).squeeze(2);
        return torch::matmul(scores.softmax(-1), x);
      },
      net);
}

TEST(FreeSizes, MovesAndReductions) {
  const auto net = std::make_shared<Net>();
  auto fc = net->add("fc", nn::Linear(6, 6));
  expect_any_length(
      [=](const at::Tensor& x) mutable {
        const int64_t t = x.size(1);
        const at::Tensor y = torch::cat({x, x.flip({1}), fc(x)}, 1);
        const at::Tensor pairs = y.unsqueeze(2) - x.unsqueeze(1);
        return pairs.abs().amax(2).reshape({x.size(0), 3 * t * 6}).view({x.size(0), 3, t, 6}).sum(2) +
               x.select(1, t - 1).unsqueeze(1) + x.cumsum(1).select(1, t - 1).unsqueeze(1) / t;
      },
      net);
}

TEST(FreeSizes, RecurrentLayersAndConvolutionsOverTime) {
  const auto net = std::make_shared<Net>();
  auto lstm = net->add("lstm", nn::LSTM(nn::LSTMOptions(6, 5).batch_first(true).bidirectional(true)));
  auto conv = net->add("conv", nn::Conv1d(nn::Conv1dOptions(10, 7, 3).padding(1)));
  expect_any_length(
      [=](const at::Tensor& x) mutable {
        const at::Tensor states = std::get<0>(lstm(x));
        return torch::relu(conv(states.transpose(1, 2))).amax(2);
      },
      net);
}

TEST(FreeSizes, ImagesOfTwoFreeSides) {
  const auto net = std::make_shared<Net>();
  auto down = net->add("down", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1)));
  auto mix = net->add("mix", nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)));
  auto fc = net->add("fc", nn::Linear(8, 4));
  net->body = [=](const at::Tensor& x) mutable {
    const at::Tensor y = torch::max_pool2d(torch::relu(down(x)), 2);
    const at::Tensor wide =
        torch::upsample_nearest2d(mix(y), {x.size(2) / 2, x.size(3) / 2}, std::nullopt, std::nullopt);
    return fc(wide.mean({2, 3}));
  };
  net->eval();
  const auto images = [](int64_t batch, int64_t height, int64_t width) {
    torch::manual_seed(batch + height * 7 + width);
    return torch::randn({batch, 3, height, width});
  };
  const auto graph =
      ulp::capture(net, Tensors{images(2, 16, 12)},
                   {.free = {{0, 2, "height", 32, 1, 4},
                             {.input = 0, .dim = 3, .name = "width", .max = 40, .multiple = 4}}});
  graph->eval();
  runtime::Engine engine(ulp::lower(*graph));
  for (const auto& [height, width] : {std::pair{32, 40}, {16, 12}, {4, 4}, {8, 40}, {28, 8}}) {
    for (const int64_t batch : {1, 3, 9})
      expect_near(*graph, engine, {{"height", height}, {"width", width}}, {images(batch, height, width)},
                  kF32Db);
  }
  EXPECT_ERROR(engine.set_sizes({{"height", 10}}),
               "expected 'height' to be 1 to 32 and a multiple of 4, got 10");
  EXPECT_ERROR(engine.set_sizes({{"depth", 4}}), "which has 'height', 'width', got 'depth'");
}

/// A text network at four lengths in all forms.
void expect_text_network(const char* name, models::TextTask task) {
  SCOPED_TRACE(name);
  torch::manual_seed(3);
  const auto model = models::make_text_model(name, {.task = task, .max_length = 40});
  model->eval();
  const auto tokens = [](int64_t batch, int64_t length) {
    torch::manual_seed(batch + length);
    return Tensors{torch::randint(0, 256, {batch, length}, at::kLong)};
  };
  const torch::NoGradGuard no_grad;
  const auto graph = ulp::capture(*model, tokens(2, 40), {.free = {{0, 1, "time"}}});
  graph->eval();
  const auto prepared = quant::prepare(graph, quant::Recipe::x86_int8());
  for (const int64_t length : {40, 17}) prepared->run(tokens(4, length));
  const auto converted = quant::convert(prepared);
  const auto dynamic = quant::quantize_dynamic(graph), weights = quant::quantize_weights(graph);
  const std::vector<std::tuple<graph::GraphModule*, LowerOptions::Precision, double>> forms = {
      {graph.get(), LowerOptions::Precision::f32, 80},
      {graph.get(), LowerOptions::Precision::bf16, 20},
      {converted.get(), LowerOptions::Precision::f32, 15},
      {dynamic.get(), LowerOptions::Precision::f32, 30},
      {weights.get(), LowerOptions::Precision::f32, 80}};
  for (const auto& [module, precision, floor] : forms) {
    module->eval();
    runtime::Engine engine(ulp::lower(*module, {.precision = precision}));
    for (const int64_t length : {1, 7, 39, 40}) {
      for (const int64_t batch : {1, 4})
        expect_near(*module, engine, {{"time", length}}, tokens(batch, length), floor);
    }
  }
}

TEST(FreeSizes, Bert) {
  expect_text_network("bert", models::TextTask::classification);
}
TEST(FreeSizes, Gpt2) {
  expect_text_network("gpt2", models::TextTask::language_modelling);
}
TEST(FreeSizes, Lstm) {
  expect_text_network("lstm", models::TextTask::language_modelling);
  expect_text_network("lstm", models::TextTask::classification);
}

/// A captured network with a free length, and its plan.
struct Lowered {
  std::shared_ptr<Net> net = std::make_shared<Net>();
  std::shared_ptr<graph::GraphModule> graph;
  runtime::Plan plan;
  explicit Lowered(int64_t max = 24) {
    auto fc = net->add("fc", nn::Linear(6, 6));
    auto table = net->add("positions", nn::Embedding(24, 6));
    net->body = [=](const at::Tensor& x) mutable { return fc(x + table(torch::arange(x.size(1)))).sum(1); };
    net->eval();
    graph = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time", max}}});
    graph->eval();
    plan = ulp::lower(*graph);
  }
};

TEST(FreeSizes, EngineFilesKeepThem) {
  Lowered made;
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "ulp_free_sizes_test.ulp";
  made.plan.save(path);
  runtime::Engine engine(path);
  std::filesystem::remove(path);
  ASSERT_EQ(engine.free().size(), 1U);
  EXPECT_EQ(engine.free()[0].name, "time");
  EXPECT_EQ(engine.free()[0].max, 24);
  for (const int64_t length : {24, 5, 1})
    expect_near(*made.graph, engine, {{"time", length}}, {random_texts(3, length)}, kF32Db);
}

TEST(FreeSizes, EachContextHasItsOwn) {
  Lowered made;
  runtime::Engine engine(made.plan);
  runtime::Context a(engine), b(engine);
  a.set_sizes({{"time", 3}});
  b.set_sizes({{"time", 7}});
  EXPECT_EQ(a.size("time"), 3);
  EXPECT_EQ(b.size("time"), 7);
  EXPECT_EQ(engine.inputs()[0].shape, (std::vector<int64_t>{runtime::kBatch, 24, 6}));
  EXPECT_EQ(a.inputs()[0].shape, (std::vector<int64_t>{runtime::kBatch, 3, 6}));
  EXPECT_ERROR(a.set_sizes({{"time", 25}}), "expected 'time' to be 1 to 24, got 25");
  EXPECT_ERROR(a.set_sizes({{"time", 0}}), "expected 'time' to be 1 to 24, got 0");
  EXPECT_EQ(a.size("time"), 3);
  runtime::Engine plain(ulp::lower(made.graph, {random_texts(1, 5)}));
  EXPECT_TRUE(plain.free().empty());
  expect_near(*made.graph, plain, {}, {random_texts(2, 5)}, kF32Db);
  EXPECT_ERROR(plain.set_sizes({{"time", 5}}), "which has none, got 'time'");
}

TEST(FreeSizes, AConstantThatIsNoCornerIsRefused) {
  const auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) {
    return x * torch::linspace(0, 1, 6) + torch::arange(x.size(1)).flip({0}).unsqueeze(1);
  };
  const auto graph = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time"}}});
  graph->eval();
  EXPECT_ERROR(ulp::lower(*graph), "constants that are the first elements of those at the largest sizes");
}

TEST(FreeSizes, ACutThatIsLongerThanTheSmallestSizeIsRefusedByName) {
  const auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) { return x.slice(1, -3) * 2; };
  const auto graph = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time"}}});
  graph->eval();
  const std::string text = error_of([&] { ulp::lower(*graph); });
  for (const char* word : {"[runtime.verify]", "'time' 1", "slice", "larger smallest sizes"})
    EXPECT_SAYS(text, word);
  const auto longer = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time", 16, 3}}});
  longer->eval();
  runtime::Engine engine(ulp::lower(*longer));
  for (const int64_t length : {3, 7, 16})
    expect_near(*longer, engine, {{"time", length}}, {random_texts(2, length)}, kF32Db);
}

TEST(FreeSizes, NumbersInProgramsFollow) {
  const auto net = std::make_shared<Net>();
  net->body = [](const at::Tensor& x) { return x / x.size(1) + (x.size(1) * x.size(1) - 3); };
  const auto divided = ulp::capture(net, Tensors{random_texts(2, 16)}, {.free = {{0, 1, "time"}}});
  divided->eval();
  runtime::Engine engine(ulp::lower(*divided));
  for (const int64_t length : {1, 7, 16})
    expect_near(*divided, engine, {{"time", length}}, {random_texts(2, length)}, kF32Db);
}

TEST(FreeSizes, FewSizesAreEnough) {
  // A range of two sizes, and of one.
  for (const int64_t least : {23, 24}) {
    Lowered made;
    made.graph->graph().free[0].min = least;
    runtime::Engine engine(ulp::lower(*made.graph));
    for (int64_t length = least; length <= 24; ++length)
      expect_near(*made.graph, engine, {{"time", length}}, {random_texts(2, length)}, kF32Db);
    EXPECT_ERROR(engine.set_sizes({{"time", least - 1}}), "expected 'time' to be");
  }
}

/// A plan that was changed by hand.
std::string refusal(const std::function<void(runtime::Plan&)>& change) {
  Lowered made;
  change(made.plan);
  return error_of([&] { runtime::Engine engine(made.plan); });
}

/// What follows no input is computed at the smallest sizes that there are.
TEST(FreeSizes, StoredPlacesBesideSizesThatAreMultiples) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(5);
  nn::Module root;
  root.eval();
  const auto body = [](const Tensors& x) {
    return c10::IValue(x[0].index({torch::indexing::Slice(), torch::arange(3) * 2}) * 2);
  };
  const auto module =
      graph::capture(root, body, {torch::randn({2, 16, 3})}, {.free = {{0, 1, "time", 64, 1, 8}}});
  module->eval();
  runtime::Engine engine(lower(*module));
  for (const int64_t time : {8, 16, 64}) {
    const Tensors x = {torch::randn({3, time, 3})};
    EXPECT_TRUE(run_engine_all(engine, x).at(0).allclose(module->forward_all(x).at(0)));
  }
}

TEST(FreeSizes, HostilePlansAreRefused) {
  using runtime::Plan;
  const std::vector<std::pair<std::function<void(Plan&)>, std::string>> cases = {
      {[](Plan& p) { p.following.free[0].min = 0; }, "expected 1 <= min <= max"},
      {[](Plan& p) { p.following.free[0].multiple = 0; }, "expected 1 <= min <= max"},
      {[](Plan& p) { p.following.free[0].multiple = 5; }, "expected 1 <= min <= max"},
      {[](Plan& p) { p.following.free[0].max = 48; }, "expected 1 to 24 elements"},
      {[](Plan& p) { p.following.free.push_back(p.following.free[0]); }, "is listed twice"},
      {[](Plan& p) { p.following.free[0].name.clear(); }, "has no name"},
      {[](Plan& p) { p.following.free.clear(); }, "expected free dimensions for what follows them"},
      {[](Plan& p) { p.following.numbers[0].path = "/tensors/99999999/shape/1"; },
       "expected the path of a number"},
      {[](Plan& p) { p.following.numbers[0].path = "/tensors/0/name"; }, "expected the path of a number"},
      {[](Plan& p) { p.following.numbers[0].path = ""; }, "expected the path of a number"},
      {[](Plan& p) { p.following.numbers[0].path = "/steps/0/nothing/at/all"; },
       "expected a known field, got 'nothing'"},
      {[](Plan& p) {
         p.following.numbers[0].value.terms = {{1, 0, {1}}};
       },
       "expected denominators above 0"},
      {[](Plan& p) {
         p.following.numbers[0].value.terms = {{1, 1, {1 << 30}}};
       },
       "expected denominators above 0"},
      {[](Plan& p) {
         p.following.numbers[0].value.terms = {{1, 1, {0, 1}}};
       },
       "of 1 sizes"},
      {[](Plan& p) {
         p.following.numbers[0].value.terms = {{1, 5, {1}}};
       },
       "does not follow the free dimensions"},
      {[](Plan& p) { p.following.numbers.pop_back(); }, "expected"},
      {[](Plan& p) { p.following.corners.begin()->second.pop_back(); }, "sizes that follow"},
      {[](Plan& p) {
         p.following.corners.begin()->second[0].terms = {{25, 1, {}}};
       },
       "expected 1 to 24 elements"},
      {[](Plan& p) { p.following.corners["nothing"] = {}; }, "is not there"}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string got = refusal(cases[i].first);
    EXPECT_NE(got.find(cases[i].second), std::string::npos) << "case " << i << ": " << got;
  }
}

}  // namespace
}  // namespace ulp::test
