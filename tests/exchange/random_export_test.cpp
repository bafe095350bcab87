// Random networks (tests/lower/random_net.h) as ONNX files, read back: the same numbers, or a refusal that
// names the call. What a network may hold is drawn from the tables of tests/lower/random_*.cpp, which the
// engine's test draws from, too: an op or an option that is written there is tried here by itself.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "../lower/random_net.h"
#include "error_of.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

namespace {

using recipe::RandomNet;
using recipe::say;
using ExportedTensors = std::vector<at::Tensor>;

/// ULP_RANDOM_NETWORKS=N tries so many.
int exported_networks() {
  const char* wanted = std::getenv("ULP_RANDOM_NETWORKS");
  return wanted == nullptr ? 120 : std::atoi(wanted);
}

/// How far rounding may move each result: as far as float64's moves when every step's result moves by an
/// epsilon of its largest element, with room for spelled-out functions.
std::vector<double> rounding_bounds(RandomNet& net, const ExportedTensors& inputs) {
  constexpr double kEpsilon = 1.2e-7, kRoom = 16;
  constexpr int kDraws = 3;
  net.to(torch::kDouble);
  ExportedTensors wide;
  for (const at::Tensor& input : inputs) wide.push_back(input.to(torch::kDouble));
  const ExportedTensors exact = net.run(wide);
  std::vector<double> bounds;
  for (const at::Tensor& result : exact)
    bounds.push_back(kRoom * kEpsilon * result.abs().max().item<double>());
  for (int draw = 0; draw < kDraws; ++draw) {
    const ExportedTensors moved = net.run(wide, kEpsilon);
    for (size_t i = 0; i < exact.size(); ++i)
      bounds[i] = std::max(bounds[i], kRoom * (moved[i] - exact[i]).abs().max().item<double>());
  }
  net.to(torch::kFloat);
  return bounds;
}

/// What is wrong with the file of a network; empty where nothing is, or where it has no form. `written`: one
/// more where it has.
std::string export_fault(uint64_t seed, int& written) {
  constexpr int64_t kSteps = 5;
  const torch::NoGradGuard no_grad;
  RandomNet net(seed, {.steps = kSteps, .jumps = false});
  const auto forward = [&](const ExportedTensors& inputs) { return c10::IValue(net.run(inputs)); };
  const auto module = graph::capture(net, forward, net.draw(3));
  module->eval();
  net.eval();
  std::string bytes;
  try {
    bytes = exchange::export_onnx(*module, {.opset = seed % 2 == 0 ? 21 : 17});
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.starts_with("[exchange.export_onnx] expected a graph whose calls have ONNX forms") ? ""
                                                                                                   : text;
  }
  ++written;
  try {
    const auto back = exchange::import_onnx(bytes, "model.onnx");
    for (const int64_t batch : {1, 5}) {
      const ExportedTensors inputs = net.draw(batch), right = module->forward_all(inputs);
      const ExportedTensors ours = back->forward_all(inputs);
      const std::vector<double> bounds = rounding_bounds(net, inputs);
      for (size_t i = 0; i < right.size(); ++i) {
        if (ours.at(i).sizes() != right[i].sizes()) return say("result ", i, " of sizes ", ours[i].sizes());
        const double off = (ours[i] - right[i]).abs().max().item<double>();
        if (!(off <= bounds[i])) return say("result ", i, " is off by ", off, ", expected ", bounds[i]);
      }
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(RandomExport, FilesComeBackWithTheSameNumbers) {
  const int threads = at::get_num_threads(), networks = exported_networks();
  at::set_num_threads(1);  // the networks are tiny
  int written = 0;
  for (int seed = 0; seed < networks; ++seed) {
    const auto number = static_cast<uint64_t>(seed);
    const std::string fault = export_fault(number, written);
    EXPECT_EQ(fault, "") << "seed " << seed << ":\n"
                         << RandomNet(number, {.steps = 5, .jumps = false}).words();
  }
  at::set_num_threads(threads);
  EXPECT_GT(written, networks / 2);
}

}  // namespace ulp::test
