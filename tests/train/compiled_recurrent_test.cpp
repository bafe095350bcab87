// Layers of LSTM and GRU cells in compiled steps, beside LibTorch in float64.
#include <random>

#include "compiled_support.h"
#include "error_of.h"

namespace ulp::train {
namespace {

using test::contains;
using test::error_of;
using test::expect_gradients;
using test::Tensors;

struct Cells {
  bool gru, batch_first, bidirectional, biases, states;
  int64_t layers, batch, length, inputs, hidden;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  Tensors parameters() const {
    const int64_t gates = (gru ? 3 : 4) * hidden;
    Tensors made;
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t direction = 0; direction < directions(); ++direction) {
        const int64_t width = layer == 0 ? inputs : directions() * hidden;
        made.push_back(torch::randn({gates, width}) / std::sqrt(static_cast<double>(width)));
        made.push_back(torch::randn({gates, hidden}) / std::sqrt(static_cast<double>(hidden)));
        if (biases) made.push_back(torch::randn({gates}) / 2);
        if (biases) made.push_back(torch::randn({gates}) / 2);
      }
    }
    return made;
  }
  /// The states of all steps, and the last ones.
  std::pair<at::Tensor, at::Tensor> operator()(const at::Tensor& x, const at::Tensor& h, const at::Tensor& c,
                                               const std::vector<at::Tensor>& of) const {
    if (gru) {
      const auto made = torch::gru(x, h, of, biases, layers, 0.0, true, bidirectional, batch_first);
      return {std::get<0>(made), std::get<1>(made)};
    }
    const auto made = torch::lstm(x, {h, c}, of, biases, layers, 0.0, true, bidirectional, batch_first);
    return {std::get<0>(made), std::get<1>(made)};
  }
};

/// A linear layer over the last output and the last states of the recurrent one; states before the first step come from another.
void expect_cells(const std::string& name, const Cells& cells) {
  const int64_t d = cells.directions() * cells.hidden, all = cells.layers * cells.directions();
  Tensors parameters = cells.parameters();
  const size_t own = parameters.size();
  parameters.push_back(torch::randn({2, d}));
  parameters.push_back(torch::randn({2, cells.hidden}));
  parameters.push_back(torch::randn({cells.hidden, cells.inputs}) / 2);
  const test::Function function = [&](const Tensors& p, const Tensors& x) {
    const at::Tensor sequence = cells.batch_first ? x[0] : x[0].transpose(0, 1);
    at::Tensor h = torch::zeros({all, x[0].size(0), cells.hidden}, x[0].options()), c = h;
    if (cells.states) {
      h = torch::tanh(torch::linear(x[0].select(1, 0), p[own + 2])).unsqueeze(0).expand({all, -1, -1});
      c = h * 0.5;
    }
    const auto [y, last] = cells(sequence, h, c, {p.begin(), p.begin() + static_cast<std::ptrdiff_t>(own)});
    const at::Tensor end = cells.batch_first ? y.select(1, -1) : y.select(0, -1);
    return torch::linear(end, p[own]) + torch::linear(last.select(0, all - 1), p[own + 1]);
  };
  const double terms = static_cast<double>(cells.length * cells.layers) * 64;
  expect_gradients(name, function, parameters, {torch::randn({cells.batch, cells.length, cells.inputs})},
                   LossFunction::mse(), torch::randn({cells.batch, 2}), terms);
}

TEST(CompiledRecurrent, DrawnLayersHaveLibTorchsGradients) {
  std::mt19937_64 random(31);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  torch::manual_seed(32);
  for (int i = 0; i < 40; ++i) {
    Cells cells{};
    cells.gru = i % 2 == 1;
    cells.batch_first = draw(0, 1) == 0;
    cells.bidirectional = draw(0, 2) == 0;
    cells.biases = draw(0, 3) > 0;
    cells.states = draw(0, 1) == 0;
    cells.layers = draw(1, 3);
    cells.batch = i % 8 == 0 ? 70 : draw(1, 9);  // past a block of samples
    cells.length = draw(1, 8);
    cells.inputs = draw(1, 9);
    cells.hidden = draw(1, 20);
    expect_cells("cells " + std::to_string(i), cells);
  }
}

TEST(CompiledRecurrent, WideLayersOfAllThreads) {
  torch::manual_seed(33);
  for (const bool gru : {false, true})
    expect_cells(gru ? "gru" : "lstm", {gru, true, false, true, false, 2, 12, 5, 40, 140});
}

TEST(CompiledRecurrent, RefusesProjectionsAndReadersOfLastCells) {
  torch::manual_seed(34);
  const Cells cells{false, true, false, true, false, 1, 3, 4, 5, 6};
  const auto refusal = [&](const test::Function& function) {
    test::FunctionNet net(cells.parameters());
    const auto graph = test::capture_function(net, function, {torch::randn({3, 4, 5})});
    amp::FusedOptimizer optimizer(graph->parameters(), amp::SgdRule{.lr = 0});
    return error_of([&] { compile(graph, LossFunction::mse(), optimizer); });
  };
  const std::string message = refusal([](const Tensors& p, const Tensors& x) {
    const at::Tensor zeros = torch::zeros({1, x[0].size(0), 6});
    return std::get<2>(torch::lstm(x[0], {zeros, zeros}, p, true, 1, 0.0, true, false, true)).select(0, 0);
  });
  EXPECT_TRUE(contains(message, "last states of the cells")) << message;
  const std::string dropout = refusal([](const Tensors& p, const Tensors& x) {
    const at::Tensor zeros = torch::zeros({2, x[0].size(0), 6});
    return std::get<0>(torch::lstm(x[0], {zeros, zeros}, {p[0], p[1], p[2], p[3], p[1], p[1], p[2], p[3]},
                                   true, 2, 0.25, true, false, true));
  });
  EXPECT_TRUE(contains(dropout, "dropout_seed")) << dropout;
  // A projection to 2 numbers: a fifth parameter.
  const at::Tensor states = torch::randn({24, 2}), projection = torch::randn({2, 6});
  const std::string projected = refusal([&](const Tensors& p, const Tensors& x) {
    const at::Tensor h = torch::zeros({1, x[0].size(0), 2}), c = torch::zeros({1, x[0].size(0), 6});
    return std::get<0>(
        torch::lstm(x[0], {h, c}, {p[0], states, p[2], p[3], projection}, true, 1, 0.0, true, false, true));
  });
  EXPECT_TRUE(contains(projected, "expected 4 parameters")) << projected;
}

}  // namespace
}  // namespace ulp::train
