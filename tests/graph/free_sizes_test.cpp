// Dimensions that stay free beside the batch: one capture, the model's bits at every size.
#include <sstream>

#include "same.h"
#include "ulp/models/text_registry.h"

namespace {

using namespace ulp;
using namespace ulp::test;
using graph::FreeSize;
namespace nn = torch::nn;

/// Two layers and a table, put together by the test.
struct Body : nn::Module {
  using Function = std::function<at::Tensor(Body&, const at::Tensor&)>;
  Body(int64_t width, Function function) : function(std::move(function)) {
    fc = register_module("fc", nn::Linear(width, width));
    mix = register_module("mix", nn::Linear(width, width));
    positions = register_parameter("positions", torch::randn({64, width}));
  }
  at::Tensor forward(const at::Tensor& x) { return function(*this, x); }
  Function function;
  nn::Linear fc{nullptr}, mix{nullptr};
  at::Tensor positions;
};

/// Inputs of another size in dimension 1.
at::Tensor texts(int64_t batch, int64_t time, int64_t width = 6) {
  torch::manual_seed(batch * 100 + time);
  return torch::randn({batch, time, width});
}

using Inputs = std::function<Tensors(int64_t batch, int64_t size)>;

/// One capture does what the model does at all these sizes and batches, in both modes, with gradients.
void expect_free(const Forward& forward, nn::Module& model, graph::GraphModule& captured,
                 const Inputs& inputs, const std::vector<int64_t>& sizes) {
  const Named tensors = named(model);
  const Forward replay = [&](const Tensors& given) { return captured.run(given); };
  for (const int64_t size : sizes) {
    for (const int64_t batch : {1, 2, 5}) {
      for (const bool training : {false, true}) {
        model.train(training);
        captured.train(training);
        const Tensors given = inputs(batch, size);
        const Outcome want = outcome(forward, tensors, given, training, false);
        expect_same(want, outcome(replay, tensors, given, training, false), tensors,
                    "size " + std::to_string(size) + ", batch " + std::to_string(batch));
      }
    }
  }
}

void expect_free_time(const Body::Function& function,
                      const std::vector<int64_t>& sizes = {1, 2, 5, 16, 17, 40},
                      const FreeSize& free = {0, 1, "time", 40}) {
  Body model(6, function);
  const auto captured = ulp::capture(model, {texts(2, 16)}, {.free = {free}});
  ASSERT_EQ(captured->graph().free.size(), 1U);
  expect_free([&](const Tensors& given) { return model.forward(given[0]); }, model, *captured,
              [](int64_t batch, int64_t size) { return Tensors{texts(batch, size)}; }, sizes);
}

TEST(FreeSizes, RowsMergedWithTheBatch) {
  expect_free_time([](Body& m, const at::Tensor& x) {
    const at::Tensor rows = x.reshape({x.size(0) * x.size(1), x.size(2)});
    return torch::tanh(m.fc(rows)).view({x.size(0), x.size(1), -1});
  });
}

TEST(FreeSizes, CausalAttentionWrittenByHand) {
  expect_free_time([](Body& m, const at::Tensor& given) {
    const int64_t b = given.size(0), t = given.size(1);
    const at::Tensor x = given + m.positions.slice(0, 0, t);
    const auto heads = [&](const at::Tensor& y) { return y.view({b, t, 2, 3}).transpose(1, 2); };
    const at::Tensor q = heads(m.fc(x)), k = heads(m.mix(x));
    const at::Tensor hidden = torch::ones({t, t}, torch::kBool).triu(1);
    const at::Tensor scores = torch::matmul(q, k.transpose(2, 3)) / std::sqrt(3.0);
    const at::Tensor weights = torch::softmax(scores.masked_fill(hidden, -1e9), -1);
    return torch::matmul(weights, k).transpose(1, 2).reshape({b, t, 6});
  });
}

TEST(FreeSizes, LastStepMeanAndFlippedOrder) {
  expect_free_time([](Body& m, const at::Tensor& x) {
    const at::Tensor last = x.select(1, x.size(1) - 1), mean = x.sum(1) / x.size(1);
    return m.fc(last) + mean + x.flip({1}).cumsum(1).amax(1) + torch::arange(x.size(1)).sum();
  });
}

TEST(FreeSizes, PairsOfSteps) {
  // A graph network: every step beside every other one.
  expect_free_time([](Body& m, const at::Tensor& x) {
    const int64_t t = x.size(1);
    const at::Tensor a = x.unsqueeze(2).expand({-1, t, t, -1}), b = x.unsqueeze(1).expand({-1, t, t, -1});
    return m.fc((a - b).abs()).reshape({x.size(0), t * t, 6}).mean(1);
  });
}

TEST(FreeSizes, LoopFreeRecurrence) {
  struct Net : nn::Module {
    nn::LSTM lstm =
        register_module("lstm", nn::LSTM(nn::LSTMOptions(6, 4).batch_first(true).bidirectional(true)));
    nn::GRU gru = register_module("gru", nn::GRU(nn::GRUOptions(8, 3).batch_first(true)));
    at::Tensor forward(const at::Tensor& x) { return std::get<0>(gru(std::get<0>(lstm(x)))); }
  } model;
  const auto captured = ulp::capture(model, {texts(2, 9)}, {.free = {{0, 1, "time", 30}}});
  expect_free([&](const Tensors& given) { return model.forward(given[0]); }, model, *captured,
              [](int64_t batch, int64_t size) { return Tensors{texts(batch, size)}; }, {1, 3, 9, 30});
}

TEST(FreeSizes, TimeBeforeTheBatch) {
  Body model(6, [](Body& m, const at::Tensor& x) {
    return m.fc(
        x.contiguous().view({x.size(0), x.size(1) * 2, 3}).transpose(0, 1).reshape({x.size(1), -1, 6}));
  });
  const auto at_sizes = [](int64_t batch, int64_t size) { return Tensors{texts(size, batch)}; };
  const auto captured =
      ulp::capture(model, at_sizes(2, 12), {.batch_dims = {1}, .free = {{0, 0, "time", 20}}});
  expect_free([&](const Tensors& given) { return model.forward(given[0]); }, model, *captured, at_sizes,
              {1, 7, 20});
}

TEST(FreeSizes, ImagesOfTwoFreeSides) {
  struct Net : nn::Module {
    nn::Conv2d down = register_module("down", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).stride(2).padding(1)));
    nn::Conv2d mix = register_module("mix", nn::Conv2d(nn::Conv2dOptions(4, 4, 3).padding(1)));
    nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = torch::relu(norm(down(x)));
      const at::Tensor pooled = torch::max_pool2d(y, 2);
      const at::Tensor wide =
          torch::upsample_nearest2d(pooled, {y.size(2), y.size(3)}, std::nullopt, std::nullopt);
      const at::Tensor pixels = mix(wide + y).flatten(2);  // [N, 4, H / 2 * W / 2]
      const at::Tensor scores = torch::matmul(pixels.transpose(1, 2), pixels).softmax(-1);
      return torch::matmul(pixels, scores).view({x.size(0), 4, x.size(2) / 2, x.size(3) / 2});
    }
  } model;
  const auto images = [](int64_t batch, int64_t height, int64_t width) {
    torch::manual_seed(batch + height * 7 + width);
    return torch::randn({batch, 3, height, width});
  };
  const auto captured =
      ulp::capture(model, {images(2, 16, 12)},
                   {.free = {{0, 2, "height", 64, 1, 4},
                             {.input = 0, .dim = 3, .name = "width", .max = 64, .multiple = 4}}});
  for (const auto& [height, width] : {std::pair{16, 12}, {4, 4}, {32, 8}, {8, 64}}) {
    expect_free([&](const Tensors& given) { return model.forward(given[0]); }, model, *captured,
                [&, h = height, w = width](int64_t batch, int64_t) { return Tensors{images(batch, h, w)}; },
                {0});
  }
  EXPECT_ERROR(captured->forward(images(1, 10, 12)),
               "[graph.run] expected 'height' to be 1 to 64 and a multiple of 4, got 10");
}

TEST(FreeSizes, OneDimensionOfTwoInputs) {
  struct Net : nn::Module {
    nn::Linear fc = register_module("fc", nn::Linear(6, 6));
    at::Tensor forward(const at::Tensor& x, const at::Tensor& mask) {
      return (fc(x) * mask.unsqueeze(2)).sum(1) / mask.sum(1, true).clamp_min(1);
    }
  } model;
  const auto inputs = [](int64_t batch, int64_t size) {
    return Tensors{texts(batch, size), (texts(batch, size, 1).squeeze(2) > 0).to(at::kFloat)};
  };
  const auto captured = ulp::capture(
      model, inputs(2, 8), {.free = {{0, 1, "time", 30}, {1, 1, "time"}}, .input_names = {"x", "mask"}});
  expect_free([&](const Tensors& given) { return model.forward(given[0], given[1]); }, model, *captured,
              inputs, {1, 8, 30});
  EXPECT_ERROR(captured->forward({inputs(2, 8)[0], inputs(2, 9)[1]}),
               "[graph.run] expected size 8 in dimension 1 of 'mask', as 'time' is in 'x', got 9");
  EXPECT_ERROR(captured->forward(inputs(2, 31)), "[graph.run] expected 'time' to be 1 to 30, got 31");
}

TEST(FreeSizes, ReferenceNetworksOverTexts) {
  for (const auto& [name, task] : {std::pair{"bert", models::TextTask::classification},
                                   {"gpt2", models::TextTask::language_modelling},
                                   {"lstm", models::TextTask::language_modelling},
                                   {"lstm", models::TextTask::classification}}) {
    SCOPED_TRACE(name);
    const auto model = models::make_text_model(name, {.task = task});
    const auto tokens = [](int64_t batch, int64_t size) {
      torch::manual_seed(batch + size);
      return Tensors{torch::randint(0, 200, {batch, size}, at::kLong)};
    };
    const auto captured = ulp::capture(model, tokens(2, 32), {.free = {{0, 1, "time"}}});
    expect_free([&](const Tensors& given) { return model->forward(given[0]); }, *model, *captured, tokens,
                {1, 2, 31, 32});
  }
}

TEST(FreeSizes, ListingShowsExpressions) {
  Body model(6, [](Body& m, const at::Tensor& x) { return m.fc(x.reshape({x.size(0) * x.size(1), 6})); });
  const auto captured = ulp::capture(model, {texts(2, 16)}, {.free = {{0, 1, "time"}}});
  std::ostringstream listing;
  listing << captured->graph();
  EXPECT_NE(listing.str().find("%input : f32[N, time, 6]"), std::string::npos) << listing.str();
  EXPECT_NE(listing.str().find("N*time, 6]"), std::string::npos) << listing.str();
}

TEST(FreeSizes, FixedAtASizeIsAPlainGraph) {
  Body model(6, [](Body& m, const at::Tensor& x) {
    return m.fc(x.reshape({x.size(0) * x.size(1), 6})).view({x.size(0), x.size(1) * 6});
  });
  const auto captured = ulp::capture(model, {texts(2, 16)}, {.free = {{0, 1, "time"}}});
  const std::shared_ptr<graph::Graph> copy = captured->graph().clone();
  EXPECT_ERROR(copy->fix_free(std::vector<int64_t>{17}), "expected 'time' to be 1 to 16, got 17");
  EXPECT_ERROR(copy->fix_free(std::vector<int64_t>{}), "expected a size for each of 1 free dimensions");
  copy->fix_free(std::vector<int64_t>{5});
  graph::GraphModule fixed(copy);
  fixed.eval();
  model.eval();
  EXPECT_TRUE(torch::equal(fixed.forward({texts(3, 5)}), model.forward(texts(3, 5))));
  EXPECT_ERROR(fixed.forward({texts(3, 6)}), "expected size 5 in dimension 1 of 'input'");
}

/// What capture says of these options for a network of one linear layer.
std::string refusal(const std::vector<FreeSize>& free, const Body::Function& function = {}) {
  Body model(
      6, function ? function : [](Body& m, const at::Tensor& x) { return m.fc(x); });
  return error_of([&] { ulp::capture(model, {texts(2, 16)}, {.free = free}); });
}

TEST(FreeSizes, OptionsThatCannotBe) {
  const std::vector<std::pair<std::vector<FreeSize>, std::string>> cases = {
      {{{1, 1, "time"}}, "expected 'time' in one of 1 inputs, got input 1"},
      {{{0, 3, "time"}}, "expected 'time' in a dimension of input 0, which has 3, got dimension 3"},
      {{{0, -1, "time"}}, "got dimension -1"},
      {{{0, 0, "time"}}, "expected 'time' beside the batch"},
      {{{0, 1, ""}}, "expected a name"},
      {{{0, 1, "time", 8}}, "expected 'time' to be 1 to 8, got 16"},
      {{{0, 1, "time", 20, 17}}, "expected 'time' to be 17 to 20, got 16"},
      {{{0, 1, "time", 20, 1, 5}}, "and a multiple of 5, got 16"},
      {{{0, 1, "time", 20, 0}}, "expected limits of 1 or more for 'time'"},
      {{{0, 1, "time", 17, 15}}, "expected an example in which 'time' has at least 17"},
      {{{0, 1, "time"}, {0, 2, "time"}},
       "expected size 16 in dimension 2 of input 0, as 'time' is in input 0, got 6"},
      {{{0, 1, "time", 20}, {0, 1, "time", 30}}, "expected one max for 'time', got 20 and 30"}};
  for (const auto& [free, expected] : cases) {
    EXPECT_NE(refusal(free).find(expected), std::string::npos) << refusal(free) << "\n" << expected;
  }
}

TEST(FreeSizes, WhatIsFoundIsTriedAboveTheSmallestExample) {
  Body model(6, [](Body&, const at::Tensor& x) { return x.slice(1, 0, (x.size(1) + 1) / 2).sum(1); });
  EXPECT_ERROR(ulp::capture(model, {texts(2, 3)}, {.free = {{0, 1, "time", 40}}}), "aten::slice");
}

TEST(FreeSizes, WhatDoesNotFollowTheSizeIsRefusedByName) {
  const std::vector<FreeSize> time = {{0, 1, "time"}};
  EXPECT_NE(refusal(time, [](Body&, const at::Tensor& x) { return x.slice(1, 0, x.size(1) / 2).sum(1); })
                .find("aten::slice"),
            std::string::npos);
  const std::string branch = refusal(
      time, [](Body& m, const at::Tensor& x) { return x.size(1) > 15 ? m.fc(x).relu() : m.fc(x).tanh(); });
  EXPECT_NE(branch.find("aten::relu at batch size 2, time 16 and aten::tanh at batch size 2, time 15"),
            std::string::npos)
      << branch;
  const std::string loop = refusal(time, [](Body&, const at::Tensor& x) {
    at::Tensor sum = x.select(1, 0);
    for (int64_t t = 1; t < x.size(1); ++t) sum = sum * 0.5 + x.select(1, t);
    return sum;
  });
  EXPECT_NE(loop.find("data-dependent control flow"), std::string::npos) << loop;
}

}  // namespace
