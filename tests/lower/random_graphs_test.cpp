// Random networks: the graph gives the module's bits, and the engine the graph's numbers within rounding. A
// network that fails is printed as a recipe, cut off behind the step at which it begins to fail;
// `--gtest_filter=*/SEED` runs it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "random_net.h"
#include "support.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {
namespace {

using at::Tensor;
using recipe::RandomNet;
using recipe::say;
using Tensors = std::vector<Tensor>;

/// ULP_RANDOM_NETWORKS=N tries so many.
int network_count() {
  const char* wanted = std::getenv("ULP_RANDOM_NETWORKS");
  return wanted == nullptr ? 200 : std::atoi(wanted);
}
constexpr int64_t kSteps = 10;
/// A third of the networks run in bf16, too, and a third in static int8. Only the rest has jumps.
bool in_bf16(uint64_t seed) {
  return seed % 3 == 0;
}
bool in_int8(uint64_t seed) {
  return seed % 3 == 1;
}

/// A bound above these shares of the largest number proves nothing. In bf16 such results are left out, in
/// fp32 there are none.
constexpr double kLoosestBF16 = 0.5, kLoosestF32 = 0.1;

Tensors as_double(const Tensors& tensors) {
  Tensors made;
  for (const Tensor& tensor : tensors) made.push_back(tensor.to(torch::kDouble));
  return made;
}

/// How far each result may be from another computation in a format of this epsilon: how far it moves in
/// float64 when every step's result is moved by an epsilon of its largest element. `kSafety` covers both
/// sides of the comparison and the roundings within a step.
std::vector<double> bounds(RandomNet& net, const Tensors& inputs, double epsilon) {
  constexpr double kSafety = 8;
  constexpr int kDraws = 3;
  net.to(torch::kDouble);
  const Tensors wide = as_double(inputs), exact = net.run(wide);
  std::vector<double> limits(exact.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    const Tensors moved = net.run(wide, epsilon);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double own = epsilon * exact[i].abs().max().item<double>();
      limits[i] = std::max({limits[i], own, (moved[i] - exact[i]).abs().max().item<double>()});
    }
  }
  net.to(torch::kFloat);
  for (double& limit : limits) limit *= kSafety;
  return limits;
}

/// What is wrong with the engine's results; empty where nothing is.
std::string compare(const Tensors& want, const Tensors& got, const std::vector<double>& limits,
                    double epsilon) {
  if (want.size() != got.size()) return say(got.size(), " results, expected ", want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].sizes() != got[i].sizes())
      return say("result ", i, " of sizes ", got[i].sizes(), ", expected ", want[i].sizes());
    const double largest = want[i].abs().max().item<double>();
    if (epsilon == kF32 && limits[i] > kLoosestF32 * std::max(largest, 0.01))
      return say("a bound of ", limits[i], " for result ", i, ", whose largest is ", largest,
                 ", proves nothing");
    if (limits[i] > kLoosestBF16 * largest) continue;
    const double error = (want[i].to(torch::kDouble) - got[i].to(torch::kDouble)).abs().max().item<double>();
    if (!(error <= limits[i]))
      return say("result ", i, " is off by ", error, ", expected at most ", limits[i], "; its largest is ",
                 largest);
  }
  return "";
}

using Module = std::shared_ptr<graph::GraphModule>;

runtime::Engine engine_of(graph::GraphModule& module, uint64_t seed, LowerOptions::Precision precision) {
  const auto isas = kernels::available_isas();
  return runtime::Engine(
      lower(module, {.precision = precision}),
      {.threads = 1 + static_cast<int>(seed % 2), .isa = kernels::to_string(isas[seed % isas.size()])});
}

std::string float_fault(RandomNet& net, graph::GraphModule& module, uint64_t seed,
                        LowerOptions::Precision precision) {
  const double epsilon = precision == LowerOptions::Precision::bf16 ? kBF16 : kF32;
  runtime::Engine engine = engine_of(module, seed, precision);
  for (const int64_t batch : {1, 5}) {
    const Tensors inputs = net.draw(batch), want = net.run(inputs), replayed = module.forward_all(inputs);
    for (size_t i = 0; i < want.size(); ++i) {
      if (!torch::equal(want[i], replayed.at(i))) return say("graph and module differ in result ", i);
    }
    const std::string fault =
        compare(want, run_engine_all(engine, inputs), bounds(net, inputs, epsilon), epsilon);
    if (!fault.empty())
      return say(enum_name(precision), " engine (", engine.isa(), "), batch ", batch, ": ", fault);
  }
  return "";
}

/// The statically quantized graph against its engine, by the ratio of signal to noise.
std::string int8_fault(RandomNet& net, const Module& module, uint64_t seed) {
  constexpr double kLeastDb = 15;
  const auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->run(net.draw(8));
  const Module quantized = quant::convert(prepared);
  runtime::Engine engine = engine_of(*quantized, seed, LowerOptions::Precision::f32);
  for (const int64_t batch : {1, 5}) {
    const Tensors inputs = net.draw(batch), want = quantized->forward_all(inputs),
                  got = run_engine_all(engine, inputs);
    for (size_t i = 0; i < want.size(); ++i) {
      const double ratio = quant::quantization_error(want[i], got.at(i)).sqnr_db;
      if (!(ratio >= kLeastDb))
        return say("int8 engine (", engine.isa(), "), batch ", batch, ": result ", i, " at ", ratio, " dB");
    }
  }
  return "";
}

bool has_layer(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    return node->is("aten::linear") || node->is("aten::conv1d") || node->is("aten::conv2d");
  });
}

/// What is wrong with the network of a seed; empty where nothing is.
std::string fault_of(RandomNet& net, uint64_t seed) {
  const auto forward = [&](const Tensors& inputs) { return c10::IValue(net.run(inputs)); };
  const Module module = graph::capture(net, forward, net.draw(3));
  module->eval();
  net.eval();
  using Precision = LowerOptions::Precision;
  std::string fault = float_fault(net, *module, seed, Precision::f32);
  if (fault.empty() && in_bf16(seed)) fault = float_fault(net, *module, seed, Precision::bf16);
  if (fault.empty() && in_int8(seed) && has_layer(module->graph())) fault = int8_fault(net, module, seed);
  return fault;
}

std::string fault_of_seed(uint64_t seed, int64_t steps, std::string& words) {
  const torch::NoGradGuard no_grad;
  RandomNet net(seed, {.steps = steps, .jumps = !in_bf16(seed) && !in_int8(seed)});
  words = net.words();
  try {
    return fault_of(net, seed);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find(". The engine has"));
  }
}

/// The networks are tiny: a team of LibTorch's threads would spend its time waking up.
class RandomGraphs : public testing::TestWithParam<int> {
 protected:
  RandomGraphs() { at::set_num_threads(1); }
  ~RandomGraphs() override { at::set_num_threads(threads_); }

 private:
  int threads_ = at::get_num_threads();
};

TEST_P(RandomGraphs, RunInTheEngineAsInTheModule) {
  const auto seed = static_cast<uint64_t>(GetParam());
  std::string words;
  if (fault_of_seed(seed, kSteps, words).empty()) return;
  for (int64_t steps = 1; steps <= kSteps; ++steps) {
    const std::string fault = fault_of_seed(seed, steps, words);
    if (fault.empty()) continue;
    FAIL() << "seed " << seed << ", " << steps << " steps:\n" << words << fault;
  }
  FAIL() << "seed " << seed << " fails with " << kSteps << " steps, but not when it is run again\n" << words;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(0, network_count()),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace ulp::test
