// Compiled steps have the same bits on any number of threads, whoever computes what and when.
#include <atomic>
#include <cfenv>
#include <chrono>
#include <thread>

#include "compiled_support.h"
#include "error_of.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/runtime/engine/piece_hook.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace ulp::train {
namespace {

using test::bits_of_steps;
using test::contains;
using test::error_of;
using test::expect_same_bits;
using test::FinePieces;
using test::Tensors;

std::atomic<int64_t> step_pieces = 0;

/// One piece of 16 waits up to 0.4 ms.
void nap_in_a_step() {
  uint64_t draw = static_cast<uint64_t>(step_pieces.fetch_add(1)) * 0x9E3779B97F4A7C15ULL;
  draw ^= draw >> 29;
  if (draw % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw / 16 % 400));
}

/// Pieces are counted while it lives, and held up if `naps`.
class StepNaps {
 public:
  explicit StepNaps(bool naps = true) {
    step_pieces = 0;
    runtime::set_piece_hook(naps ? nap_in_a_step : [] { ++step_pieces; });
  }
  ~StepNaps() { runtime::set_piece_hook(nullptr); }
  StepNaps(const StepNaps&) = delete;
  StepNaps& operator=(const StepNaps&) = delete;
};

/// A function of a hidden layer, with its name.
struct Layer {
  std::string name;
  std::function<at::Tensor(const at::Tensor& h, const Tensors& p)> apply;
};

/// Layers whose instructions are of every kind; p[3] and p[4] are rows of the hidden width.
std::vector<Layer> every_kind() {
  return {
      {"relu", [](const at::Tensor& h, const Tensors&) { return torch::relu(h); }},
      {"leaky_relu and value",
       [](const at::Tensor& h, const Tensors&) { return torch::leaky_relu(h + h, 0.1); }},
      {"gelu", [](const at::Tensor& h, const Tensors&) { return torch::gelu(h); }},
      {"softplus", [](const at::Tensor& h, const Tensors&) { return torch::softplus(h); }},
      {"multiply", [](const at::Tensor& h, const Tensors&) { return h * torch::tanh(h); }},
      {"quotient", [](const at::Tensor& h, const Tensors&) { return h / (h * h + 1.0); }},
      {"add_scaled",
       [](const at::Tensor& h, const Tensors&) { return torch::add(h, torch::sigmoid(h), 0.3); }},
      {"select", [](const at::Tensor& h, const Tensors&) { return torch::max(h, torch::min(h * 2, h + 1)); }},
      {"copy",
       [](const at::Tensor& h, const Tensors&) {
         return torch::cat({h.slice(1, 7, h.size(1)), h.slice(1, 0, 7)}, 1) + h;
       }},
      {"reshape",
       [](const at::Tensor& h, const Tensors&) {
         return torch::tanh(h.view({-1, h.size(1) / 2})).view({-1, h.size(1)});
       }},
      {"rows", [](const at::Tensor& h, const Tensors& p) { return (h + p[3]) * p[4]; }},
      {"row sums",
       [](const at::Tensor& h, const Tensors&) { return h * h.mean(1, true) - h.sum(1, true) * 0.01; }},
      {"total", [](const at::Tensor& h, const Tensors&) { return h * h.mean() - h.sum() * 1e-4; }},
      {"softmax", [](const at::Tensor& h, const Tensors&) { return torch::softmax(h, -1); }},
      {"log_softmax", [](const at::Tensor& h, const Tensors&) { return torch::log_softmax(h, -1); }},
      {"layer_norm",
       [](const at::Tensor& h, const Tensors& p) { return torch::layer_norm(h, {h.size(1)}, p[3], p[4]); }},
      {"layer_norm twice",
       [](const at::Tensor& h, const Tensors& p) {
         return torch::layer_norm(torch::layer_norm(h, {h.size(1)}, p[3], p[4]), {h.size(1)}, p[3]);
       }},
      {"layer_norm without weights",
       [](const at::Tensor& h, const Tensors&) { return torch::layer_norm(h, {h.size(1)}); }},
      {"dropout", [](const at::Tensor& h, const Tensors&) { return torch::dropout(h, 0.3, true); }},
  };
}

Tensors parameters_of_layers(int64_t in, int64_t width, int64_t out) {
  return {torch::randn({width, in}) * 0.2, torch::randn({width}), torch::randn({out, width}) * 0.2,
          torch::rand({width}) + 0.5, torch::randn({width})};
}

void expect_same_on_threads(const std::shared_ptr<graph::GraphModule>& graph, const LossFunction& loss,
                            const Tensors& inputs, const at::Tensor& targets) {
  const CompileOptions options{.max_norm = 0.5, .dropout_seed = 3};
  const Tensors expected = bits_of_steps(graph, loss, inputs, targets, options, 1);
  for (const int threads : {2, 3, 5}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    expect_same_bits(expected, bits_of_steps(graph, loss, inputs, targets, options, threads));
  }
}

TEST(CompiledThreads, ChangeNoBitOfAnyInstruction) {
  torch::manual_seed(61);
  const FinePieces fine;
  const StepNaps counted(/*naps=*/false);
  // Products by rows and by columns, sums of several blocks of rows.
  for (const auto& [batch, width] : {std::pair<int64_t, int64_t>{300, 70}, {90, 130}, {1, 200}, {700, 18}}) {
    const Tensors inputs = {torch::randn({batch, 37})};
    for (const Layer& layer : every_kind()) {
      SCOPED_TRACE(layer.name + ", batch " + std::to_string(batch));
      test::FunctionNet net(parameters_of_layers(37, width, 9));
      const auto graph = test::capture_function(
          net,
          [&](const Tensors& p, const Tensors& x) {
            return torch::linear(layer.apply(torch::linear(x[0], p[0], p[1]), p), p[2]);
          },
          inputs);
      const int64_t pieces = step_pieces;
      expect_same_on_threads(graph, LossFunction::mse(), inputs, torch::randn({batch, 9}));
      EXPECT_GT(step_pieces, pieces + 50);
    }
  }
}

TEST(CompiledThreads, ChangeNoBitOfALoss) {
  torch::manual_seed(62);
  const FinePieces fine;
  const std::vector<LossFunction> losses = {LossFunction::mse(),
                                            LossFunction::l1().sum(),
                                            LossFunction::smooth_l1(),
                                            LossFunction::huber(),
                                            LossFunction::bce_logits(),
                                            LossFunction::cross_entropy(),
                                            LossFunction::cross_entropy().sum()};
  for (const LossFunction& loss : losses) {
    for (const int64_t batch : {5, 1000}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(loss.kind)) + ", batch " + std::to_string(batch));
      const Tensors inputs = {torch::randn({batch, 37})};
      test::FunctionNet net(parameters_of_layers(37, 50, 33));
      const auto graph = test::capture_function(
          net,
          [](const Tensors& p, const Tensors& x) {
            return torch::linear(torch::relu(torch::linear(x[0], p[0], p[1])), p[2]);
          },
          inputs);
      expect_same_on_threads(
          graph, loss, inputs,
          loss.takes_classes() ? torch::randint(33, {batch}, at::kLong) : torch::rand({batch, 33}));
    }
  }
  // Rows that are picked by their classes, by a loss in the graph.
  const Tensors inputs = {torch::randn({300, 37}), torch::randint(33, {300, 1}, at::kLong)};
  test::FunctionNet net(parameters_of_layers(37, 50, 33));
  const auto graph = test::capture_function(
      net,
      [](const Tensors& p, const Tensors& x) {
        const at::Tensor logits = torch::linear(torch::relu(torch::linear(x[0], p[0], p[1])), p[2]);
        return -torch::log_softmax(logits, -1).gather(1, x[1]).mean();
      },
      inputs);
  expect_same_on_threads(graph, LossFunction::none(), inputs, {});
}

/// Wide enough that its instructions are cut as they are for users, and the update, too.
std::shared_ptr<graph::GraphModule> wide_network() {
  torch::nn::Sequential model(torch::nn::Linear(100, 300),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({300})), torch::nn::GELU(),
                              torch::nn::Linear(300, 260), torch::nn::ReLU(), torch::nn::Linear(260, 10));
  const auto graph = capture(model, {torch::randn({256, 100})}, {.far_sizes = false});
  graph->train();
  return graph;
}

TEST(CompiledThreads, ThatSleepChangeNoBit) {
  torch::manual_seed(63);
  const Tensors inputs = {torch::randn({256, 100})};
  const at::Tensor targets = torch::randint(10, {256}, at::kLong);
  const auto graph = wide_network();
  const StepNaps napping;
  for (int turn = 0; turn < 3; ++turn)
    expect_same_on_threads(graph, LossFunction::cross_entropy(), inputs, targets);
  EXPECT_GT(step_pieces, 100);
}

TEST(CompiledThreads, OfOtherStepsChangeNoBit) {
  torch::manual_seed(64);
  const Tensors inputs = {torch::randn({256, 100})};
  const at::Tensor targets = torch::randint(10, {256}, at::kLong);
  std::vector<std::shared_ptr<graph::GraphModule>> graphs;
  std::vector<Tensors> expected, made(4);
  for (int i = 0; i < 4; ++i) {
    graphs.push_back(wide_network());
    expected.push_back(bits_of_steps(graphs.back(), LossFunction::cross_entropy(), inputs, targets, {}, 1));
  }
  const StepNaps napping;
  std::vector<std::thread> callers;
  for (size_t i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      made[i] = bits_of_steps(graphs[i], LossFunction::cross_entropy(), inputs, targets, {},
                              2 + static_cast<int>(i));
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (size_t i = 0; i < 4; ++i) expect_same_bits(expected[i], made[i]);
}

TEST(CompiledThreads, RoundAsTheCallingThread) {
  torch::manual_seed(65);
  const Tensors inputs = {torch::randn({256, 100})};
  const at::Tensor targets = torch::randint(10, {256}, at::kLong);
  const auto graph = wide_network();
  const auto bits = [&](int threads) {
    return bits_of_steps(graph, LossFunction::cross_entropy(), inputs, targets, {}, threads);
  };
  const runtime::ThreadPool before(3, runtime::PoolThreads::shared);  // whose threads do not inherit the mode
  const Tensors nearest = bits(1);
  std::fesetround(FE_TOWARDZERO);
  const Tensors alone = bits(1);
  std::vector<Tensors> together;
  for (int turn = 0; turn < 5; ++turn) together.push_back(bits(3));
  std::fesetround(FE_TONEAREST);
  for (const Tensors& made : together) expect_same_bits(alone, made);
  EXPECT_FALSE(torch::equal(alone.back(), nearest.back()));
}

TEST(CompiledThreads, AreAsManyAsTold) {
  torch::nn::Sequential model(torch::nn::Linear(4, 3));
  const auto graph = capture(model, {torch::randn({2, 4})}, {.far_sizes = false});
  amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0.1});
  for (const int threads : {-1, 1025}) {
    const std::string message =
        error_of([&] { compile(graph, LossFunction::mse(), optimizer, {.threads = threads}); });
    EXPECT_TRUE(contains(message, "expected 0 (one per core) to 1024 threads")) << message;
  }
  CompiledStep step = compile(graph, LossFunction::mse(), optimizer, {.threads = 0});
  EXPECT_TRUE(std::isfinite(step.step(torch::randn({2, 4}), torch::randn({2, 3}))));
}

}  // namespace
}  // namespace ulp::train
