// Loops that users write: cells of recurrent layers, and results written into tensors made before. Files of
// every kind give the module's numbers, archives its bits.
#include <torch/torch.h>

#include <string>
#include <vector>

#include "captured_function.h"
#include "coreml_run.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"

namespace ulp::test {

namespace {

constexpr int64_t kLoopSteps = 4;

/// x [N, 4, 3] through a step at a time; `step` gives the next state of [N, 5].
using LoopStep = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& state)>;

struct LoopNet : torch::nn::Module {
  LoopStep step;
  int how = 0;  ///< how the states are gathered
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::zeros({x.size(0), 5}, x.options());
    at::Tensor all = how == 0   ? torch::empty_like(x.narrow(2, 0, 1).expand({-1, -1, 5}).contiguous())
                     : how == 1 ? torch::empty({x.size(0), kLoopSteps, 5})
                     : how == 2 ? x.new_empty({x.size(0), kLoopSteps, 5})
                                : torch::zeros({x.size(0), kLoopSteps, 5});
    std::vector<at::Tensor> states;
    for (int64_t t = 0; t < kLoopSteps; ++t) {
      h = step(x.select(1, t), h);
      states.push_back(h);
      if (how % 2 == 0) {
        all.select(1, t).copy_(h);
      } else {
        all.index_put_({torch::indexing::Slice(), t}, h);
      }
    }
    return how == 4 ? torch::stack(states, 1) : all;
  }
};

at::Tensor by_tflite_loop(graph::GraphModule& module, const at::Tensor& x) {
  const auto file = read_tflite(exchange::export_tflite(module, {.batch = x.size(0)}));
  return TfliteRun(*file).run({x}).at(0);
}

at::Tensor by_coreml_loop(graph::GraphModule& module, const at::Tensor& x) {
  const TemporaryFolder folder;
  exchange::export_coreml(module, folder / "m.mlpackage", {.batch = x.size(0)});
  return MilRun(read_coreml(folder / "m.mlpackage")).run(x);
}

void expect_loops(const std::string& name, const std::shared_ptr<torch::nn::Module>& layer,
                  const LoopStep& step) {
  const torch::NoGradGuard no_grad;
  for (int how = 0; how < 5; ++how) {
    SCOPED_TRACE(name + ", " + std::to_string(how));
    auto net = std::make_shared<LoopNet>();
    net->register_module("layer", layer);
    net->step = step;
    net->how = how;
    const auto module = capture(net, {torch::randn({2, kLoopSteps, 3})});
    module->eval();
    const auto onnx = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
    const auto pt2 = exchange::import_pt2(exchange::export_pt2(*module), "model.pt2");
    for (const int64_t batch : {1, 2, 5}) {
      const at::Tensor x = torch::randn({batch, kLoopSteps, 3}), want = net->forward(x);
      EXPECT_TRUE(torch::equal(module->forward(x), want));
      EXPECT_TRUE(torch::equal(pt2->forward(x), want));
      EXPECT_LE(relative_difference(want, onnx->forward(x)), 1e-5);
    }
    const at::Tensor x = torch::randn({3, kLoopSteps, 3}), want = net->forward(x);
    EXPECT_LE(relative_difference(want, by_tflite_loop(*module, x)), 1e-5);
    EXPECT_LE(relative_difference(want, by_coreml_loop(*module, x)), 1e-5);
  }
}

}  // namespace

TEST(ExportLoops, OfCells) {
  torch::manual_seed(8);
  torch::nn::LSTMCell lstm(3, 5);
  const at::Tensor memory = torch::randn({1, 5});
  expect_loops("LSTMCell", lstm.ptr(), [lstm, memory](const at::Tensor& x, const at::Tensor& h) mutable {
    const auto [next, cell] = lstm(x, std::make_tuple(h, memory + h));
    return next - cell;
  });
  for (const bool bias : {true, false}) {
    torch::nn::GRUCell gru(torch::nn::GRUCellOptions(3, 5).bias(bias));
    expect_loops("GRUCell", gru.ptr(),
                 [gru](const at::Tensor& x, const at::Tensor& h) mutable { return gru(x, h); });
  }
  torch::nn::RNNCell tanh(3, 5), relu(torch::nn::RNNCellOptions(3, 5).nonlinearity(torch::kReLU));
  expect_loops("RNNCell", tanh.ptr(),
               [tanh](const at::Tensor& x, const at::Tensor& h) mutable { return tanh(x, h); });
  expect_loops("RNNCell, relu", relu.ptr(),
               [relu](const at::Tensor& x, const at::Tensor& h) mutable { return relu(x, h); });
}

}  // namespace ulp::test
