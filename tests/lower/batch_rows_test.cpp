// Values and results whose rows are batch x time or batch x frames, in either order.
#include <gtest/gtest.h>

#include <random>

#include "error_of.h"
#include "support.h"
#include "temporary_folder.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kSteps = 5, kFeatures = 6;

/// The engine's results are the graph's, in sizes and numbers, at every batch size, from one thread and from
/// several.
void expect_rows(graph::GraphModule& graph, const std::function<at::Tensor(int64_t)>& input,
                 double tolerance) {
  const runtime::Plan plan = lower(graph);
  for (const int threads : {1, 3}) {
    runtime::Engine engine(plan, {.threads = threads});
    for (const int64_t batch : {1, 2, 7, 40}) {
      SCOPED_TRACE(batch);
      const at::Tensor x = input(batch);
      const std::vector<at::Tensor> want = graph.forward_all({x}), got = run_engine_all(engine, {x});
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].sizes(), want[i].sizes()) << listing(plan);
        const double largest = want[i].abs().max().item<double>();
        EXPECT_LE((got[i] - want[i]).abs().max().item<double>(), tolerance * largest) << listing(plan);
      }
      const at::Tensor in_parts = run_engine(engine, x, 3);
      ASSERT_EQ(in_parts.sizes(), got[0].sizes());
      EXPECT_TRUE(torch::allclose(in_parts, got[0], 1e-4, 1e-4)) << listing(plan);
    }
  }
}

template <typename Model>
std::shared_ptr<graph::GraphModule> captured_along(Model& model, const at::Tensor& example,
                                                   int64_t batch_dim) {
  const torch::NoGradGuard no_grad;
  model.eval();
  auto graph = ulp::capture(model, {example}, {.batch_dims = {batch_dim}});
  graph->eval();
  return graph;
}

struct Rows : nn::Module {
  std::function<at::Tensor(const at::Tensor&)> body;
  at::Tensor forward(at::Tensor x) { return body(x); }
};

TEST(BatchRows, ResultsOfEveryStepInOneDimension) {
  torch::manual_seed(2);
  Rows model;
  nn::Linear layer = model.register_module("layer", nn::Linear(kFeatures, 4));
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> bodies = {
      [&](const at::Tensor& x) {
        return x.reshape({-1, kFeatures});
      },
      [&](const at::Tensor& x) {
        return layer(x.reshape({-1, kFeatures}));
      },
      [&](const at::Tensor& x) {
        return torch::log_softmax(layer(x.reshape({-1, kFeatures})), 1);
      },
      [&](const at::Tensor& x) {
        return layer(x).reshape({-1, 4}).argmax(1).to(torch::kFloat);
      },
      [&](const at::Tensor& x) {
        return layer(x).transpose(0, 1).reshape({-1, 4}).relu();
      },
      [&](const at::Tensor& x) {
        return x.transpose(0, 1).reshape({-1, kFeatures}) * 2;
      },
      [&](const at::Tensor& x) { return std::get<0>(x.flatten(0, 1).topk(2, 1)); },
      [&](const at::Tensor& x) {
        return layer(x.reshape({-1, kFeatures})).t();
      },
      [&](const at::Tensor& x) {
        return layer(x).transpose(0, 1).reshape({-1, 4}).relu().t();
      },
      [&](const at::Tensor& x) {
        return x.reshape({-1, 2, 3}).permute({1, 0, 2}).contiguous();
      },
      [&](const at::Tensor& x) {
        return x.transpose(0, 1).reshape({-1, 2, 3}).permute({2, 1, 0});
      },
      [&](const at::Tensor& x) {
        return x.reshape({-1, kFeatures}).argmax(1).unsqueeze(0).to(torch::kFloat);
      },
      [&](const at::Tensor& x) {
        return x.reshape({-1, 2});
      },
      [&](const at::Tensor& x) { return x.reshape({-1}); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    model.body = bodies[i];
    const auto first = captured_along(model, torch::randn({2, kSteps, kFeatures}), 0);
    expect_rows(
        *first,
        [](int64_t n) {
          return torch::randn({n, kSteps, kFeatures});
        },
        1e-5);
    const auto second = captured_along(model, torch::randn({kSteps, 2, kFeatures}), 1);
    expect_rows(
        *second,
        [](int64_t n) {
          return torch::randn({kSteps, n, kFeatures});
        },
        1e-5);
  }
}

/// As PyTorch's example of word language models: time first, [time * batch, words].
struct LanguageModel : nn::Module {
  bool batch_first = false;
  nn::Embedding words = register_module("words", nn::Embedding(20, 8));
  nn::LSTM rnn{nullptr};
  nn::Linear decoder = register_module("decoder", nn::Linear(10, 20));
  explicit LanguageModel(bool first) : batch_first(first) {
    rnn = register_module("rnn", nn::LSTM(nn::LSTMOptions(8, 10).num_layers(2).batch_first(first)));
  }
  at::Tensor forward(at::Tensor ids) {
    const at::Tensor y = std::get<0>(rnn(words(ids)));
    return torch::log_softmax(decoder(y.contiguous().view({-1, 10})), 1);
  }
};

TEST(BatchRows, RecurrentLanguageModelsInBothOrders) {
  torch::manual_seed(3);
  for (const bool first : {true, false}) {
    LanguageModel model(first);
    const auto ids = [&](int64_t n) {
      return torch::randint(20, first ? std::vector<int64_t>{n, kSteps} : std::vector<int64_t>{kSteps, n},
                            torch::kLong);
    };
    expect_rows(*captured_along(model, ids(3), first ? 0 : 1), ids, 1e-5);
  }
}

/// A size of time that each run chooses.
TEST(BatchRows, FreeLengthsHaveAsManyRows) {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  LanguageModel model(true);
  model.eval();
  const auto graph =
      ulp::capture(model, {torch::randint(20, {3, 7}, torch::kLong)}, {.free = {{0, 1, "time", 12}}});
  graph->eval();
  runtime::Engine engine(lower(*graph), {.threads = 2});
  for (const int64_t steps : {1, 4, 12}) {
    const at::Tensor ids = torch::randint(20, {4, steps}, torch::kLong);
    const at::Tensor want = graph->forward(ids), got = run_engine_all(engine, {ids})[0];
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_LE(relative_error(got, want), 1e-5);
  }
}

/// Frames of films as one batch of images, and back.
struct Film : nn::Module {
  bool time_first = false;
  nn::Conv2d a = register_module("a", nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(6));
  nn::Conv2d b = register_module("b", nn::Conv2d(nn::Conv2dOptions(6, 6, 3).padding(1)));
  nn::Linear head = register_module("head", nn::Linear(6, 4));
  nn::GRU rnn = register_module("rnn", nn::GRU(nn::GRUOptions(6, 5).batch_first(true)));
  at::Tensor forward(at::Tensor x) {
    const int64_t n = x.size(0), t = x.size(1);
    at::Tensor y = time_first ? x.transpose(0, 1).reshape({t * n, 3, 8, 8}) : x.view({n * t, 3, 8, 8});
    y = torch::relu(norm(a(y)));
    y = torch::max_pool2d(torch::relu(b(y) + y), 2);
    y = torch::adaptive_avg_pool2d(y, {1, 1}).flatten(1);
    const at::Tensor each = time_first ? y.view({t, n, 6}).transpose(0, 1) : y.view({n, t, 6});
    return torch::cat({std::get<0>(rnn(each)).select(1, t - 1),
                       head(y).view({time_first ? t : n, -1, 4}).sum(time_first ? 0 : 1)},
                      1);
  }
};

TEST(BatchRows, FramesOfFilmsInTheBatch) {
  torch::manual_seed(5);
  for (const bool time_first : {false, true}) {
    Film model;
    model.time_first = time_first;
    const auto films = [](int64_t n) { return torch::randn({n, 4, 3, 8, 8}); };
    const auto graph = captured_along(model, films(2), 0);
    expect_rows(*graph, films, 1e-5);
    const runtime::Plan plan = lower(*graph, {.precision = LowerOptions::Precision::bf16});
    runtime::Engine engine(plan, {.threads = 2});
    const at::Tensor x = films(3);
    EXPECT_LE(relative_error(run_engine(engine, x), graph->forward(x)), 0.05);
  }
}

TEST(BatchRows, QuantizedFramesOfFilms) {
  torch::manual_seed(6);
  Film model;
  const auto films = [](int64_t n) { return torch::randn({n, 4, 3, 8, 8}); };
  const auto graph = captured_along(model, films(2), 0);
  const auto prepared = quant::prepare(graph, quant::Recipe::x86_int8());
  {
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) prepared->forward({films(8)});
  }
  const auto quantized = quant::convert(prepared);
  runtime::Engine engine(lower(*quantized), {.threads = 2});
  const at::Tensor x = films(5);
  EXPECT_LE(relative_error(run_engine(engine, x), quantized->forward(x)), 0.05);
}

/// Codes of a VQ-VAE: the nearest rows of a table.
TEST(BatchRows, NearestCodes) {
  torch::manual_seed(7);
  Rows model;
  nn::Embedding codes = model.register_module("codes", nn::Embedding(12, kFeatures));
  model.body = [&](const at::Tensor& x) {  // [n, features, h, w]
    const at::Tensor rows = x.permute({0, 2, 3, 1}).contiguous().view({-1, kFeatures});
    const at::Tensor apart =
        rows.pow(2).sum(1, true) + codes->weight.pow(2).sum(1) - 2 * rows.matmul(codes->weight.t());
    const at::Tensor ids = apart.argmin(1);
    return codes(ids).view({x.size(0), 3, 4, kFeatures}).permute({0, 3, 1, 2});
  };
  const auto images = [](int64_t n) { return torch::randn({n, kFeatures, 3, 4}); };
  expect_rows(*captured_along(model, images(2), 0), images, 1e-5);
}

/// A stored weight times rows of batch x time: words stay in columns, or become rows of the result.
TEST(BatchRows, WeightsTimesTransposedRows) {
  torch::manual_seed(11);
  Rows model;
  const at::Tensor w = model.register_parameter("w", torch::randn({9, kFeatures}));
  const at::Tensor b = model.register_parameter("b", torch::randn({9, 1}));
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> bodies = {
      [&](const at::Tensor& rows) { return w.matmul(rows.t()); },
      [&](const at::Tensor& rows) { return (torch::mm(w, rows.transpose(0, 1)) + b).t(); },
      [&](const at::Tensor& rows) { return torch::softmax(torch::tanh(w).matmul(rows.t()), 0); },
      [&](const at::Tensor& rows) { return torch::addmm(b, w, rows.t(), 0.5, 2); },
      [&](const at::Tensor& rows) {
        return torch::einsum("wf,rf->wr", {w, rows});
      }};
  const auto texts = [](int64_t n) { return torch::randn({n, kSteps, kFeatures}); };
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    model.body = [&](const at::Tensor& x) { return bodies[i](x.reshape({-1, kFeatures})); };
    const auto graph = captured_along(model, texts(2), 0);
    expect_rows(*graph, texts, 1e-5);
  }
}

TEST(BatchRows, ProductsOverTimeBatchAndFeatures) {
  torch::manual_seed(8);
  Rows model;
  const at::Tensor one = model.register_parameter("one", torch::randn({kFeatures, 4}));
  const at::Tensor each = model.register_parameter("each", torch::randn({kSteps, kFeatures, 4}));
  const at::Tensor left = model.register_parameter("left", torch::randn({3, kSteps}));
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> bodies = {
      [&](const at::Tensor& x) { return x.matmul(one); },
      [&](const at::Tensor& x) { return torch::bmm(x, each); },
      [&](const at::Tensor& x) { return x.matmul(each).relu(); },
      [&](const at::Tensor& x) {
        return left.matmul(x.permute({2, 0, 1}));
      },
      [&](const at::Tensor& x) {
        return torch::einsum("tbn,nm->tbm", {x, one});
      },
      [&](const at::Tensor& x) {
        return torch::einsum("tbn,tnm->btm", {x, each});
      }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    model.body = bodies[i];
    const auto graph = captured_along(model, torch::randn({kSteps, 2, kFeatures}), 1);
    expect_rows(
        *graph,
        [](int64_t n) {
          return torch::randn({kSteps, n, kFeatures});
        },
        1e-5);
  }
}

/// Drawn chains of ops on rows, between two changes of order: the engine gives the right rows, or says why it
/// cannot.
TEST(BatchRows, DrawnChainsGiveTheRightRows) {
  torch::manual_seed(9);
  std::mt19937 random(9);
  const auto draw = [&](int kinds) { return static_cast<int>(random() % static_cast<unsigned>(kinds)); };
  int lowered = 0;
  constexpr int kNets = 80;
  for (int net = 0; net < kNets; ++net) {
    Rows model;
    nn::Linear layer = model.register_module("layer", nn::Linear(kFeatures, kFeatures));
    nn::LayerNorm norm = model.register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kFeatures})));
    nn::Conv1d conv = model.register_module("conv", nn::Conv1d(nn::Conv1dOptions(1, 1, 3).padding(1)));
    const int64_t batch_dim = draw(2);
    std::vector<int> ops;
    for (int i = 0; i < 5; ++i) ops.push_back(draw(12));
    const bool turned = draw(2) == 1, back = draw(2) == 1;
    std::string drawn =
        "batch " + std::to_string(batch_dim) + (turned ? " turned" : "") + (back ? " back" : "") + ":";
    for (const int op : ops) drawn += " " + std::to_string(op);
    SCOPED_TRACE(drawn);
    model.body = [&](const at::Tensor& x) {
      at::Tensor y = turned ? x.transpose(0, 1) : x;
      const int64_t a = y.size(0), b = y.size(1);
      y = y.reshape({-1, kFeatures});
      for (const int op : ops) {
        if (op == 0) y = layer(y);
        if (op == 1) y = torch::relu(y);
        if (op == 2) y = norm(y);
        if (op == 3) y = conv(y.unsqueeze(1)).squeeze(1);
        if (op == 4) y = y + y.mean(1, true);
        if (op == 5) y = torch::softmax(y, 1);
        if (op == 6) y = torch::cat({y.slice(1, 3), y.slice(1, 0, 3)}, 1);
        if (op == 7) y = y * std::get<0>(y.max(1, true));
        if (op == 8) y = std::get<0>(y.sort(1));
        if (op == 9) y = y.flip(1).cumsum(1);
        if (op == 10) y = y.view({a, b, kFeatures}).tanh().view({-1, kFeatures});
        if (op == 11) y = torch::max_pool1d(y.unsqueeze(1), 3, 1, 1).squeeze(1);
      }
      return back ? y.view({a, b, kFeatures}) : y;
    };
    const auto made = [&](int64_t n) {
      return batch_dim == 0 ? torch::randn({n, kSteps, kFeatures}) : torch::randn({kSteps, n, kFeatures});
    };
    const auto graph = captured_along(model, made(2), batch_dim);
    try {
      lower(*graph);
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "[lower.lower] expected ops that the engine has")) << error.what();
      continue;
    }
    ++lowered;
    expect_rows(*graph, made, 1e-4);
  }
  EXPECT_GE(lowered, kNets - 4);
}

/// Inputs of several rows for each item, [3 * N, features]: steps are cut between items.
TEST(BatchRows, InputsOfRowsAreCutBetweenItems) {
  torch::manual_seed(11);
  constexpr int64_t kRows = 3;
  Rows model;
  nn::Linear layer = model.register_module("layer", nn::Linear(kFeatures, 4));
  model.body = [&](const at::Tensor& x) { return torch::relu(layer(x)); };
  const auto graph = captured_along(model, torch::randn({2, kFeatures}), 0);
  runtime::Plan plan = lower(*graph);
  for (runtime::TensorInfo& tensor : plan.tensors) tensor.times = kRows;
  runtime::Engine engine(plan, {.threads = 2});
  const at::Tensor x = torch::randn({99, kFeatures}), want = graph->forward(x);
  for (const int64_t batch : {1, 2, 20, 33, 64}) {
    SCOPED_TRACE(batch);
    const at::Tensor got = run_engine(engine, x, batch);
    ASSERT_EQ(got.sizes(), want.sizes());
    EXPECT_LE(relative_error(got, want), 1e-6);
  }
  EXPECT_SAYS(error_of([&] { run_engine(engine, x.slice(0, 1)); }),
              "3 rows for each item of the batch, got 98");
}

TEST(BatchRows, PlansWithRowsAreKeptInFiles) {
  torch::manual_seed(10);
  LanguageModel model(false);
  const at::Tensor ids = torch::randint(20, {kSteps, 3}, torch::kLong);
  const auto graph = captured_along(model, ids, 1);
  const TemporaryFolder folder;
  lower(*graph).save(folder / "rows.ulp");
  runtime::Engine engine(folder / "rows.ulp");
  EXPECT_EQ(engine.outputs()[0].times, kSteps);
  EXPECT_EQ(engine.outputs()[0].outer, kSteps);
  EXPECT_LE(relative_error(run_engine_all(engine, {ids})[0], graph->forward(ids)), 1e-5);
  // Cut into parts, too.
  EXPECT_LE(relative_error(run_engine(engine, ids, 2), graph->forward(ids)), 1e-5);
}

}  // namespace
}  // namespace ulp::test
