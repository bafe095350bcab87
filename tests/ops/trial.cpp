#include "trial.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <stdexcept>

#include "graph/same.h"
#include "lower/support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/measure/op_profile.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::test {

namespace {

using at::Tensor;
using Layer = std::function<Tensor(const Tensor&)>;
namespace nn = torch::nn;

constexpr double kF32Least = 1e-5, kBF16Db = 25, kInt8Db = 15, kQuantizedDb = 10;
constexpr int64_t kExample = 3, kOther = 5;

std::vector<int64_t> item_of(Given given) {
  switch (given) {
    case Given::rows:
      return {6};
    case Given::sequence:
      return {5, 6};
    case Given::image:
      return {4, 6, 6};
    case Given::volume:
      return {2, 4, 4, 4};
    case Given::ids:
      return {5};
  }
  throw std::logic_error("expected a kind of input");
}

Tensor draw(Given given, int64_t batch) {
  std::vector<int64_t> sizes = item_of(given);
  sizes.insert(sizes.begin(), batch);
  return given == Given::ids ? torch::randint(0, 6, sizes, torch::kLong) : torch::randn(sizes);
}

/// The call by itself, or between two layers.
struct SampleNet : nn::Module {
  explicit SampleNet(const Sample& tried) : sample(tried) { layer = register_module("op", layer); }

  Tensor forward(const Tensor& x) {
    layer->restart();
    Tensor y = sample.forward(*layer, before ? before(x) : x);
    return after ? after(y) : y;
  }

  const Sample& sample;
  std::shared_ptr<SampleLayer> layer = std::make_shared<SampleLayer>();
  Layer before, after;
};

/// Made with the weights that the call asks for.
std::shared_ptr<SampleNet> single(const Sample& sample) {
  torch::manual_seed(3);
  auto net = std::make_shared<SampleNet>(sample);
  net->forward(draw(sample.given, kExample));
  return net;
}

template <typename Holder>
Layer layer_of(SampleNet& net, const char* name, Holder made) {
  net.register_module(name, made);
  return [made](const Tensor& x) mutable { return made->forward(x); };
}

/// A layer of one weight for each pair of channels; none where quantization knows no such layer.
Layer mixing(SampleNet& net, const char* name, const Tensor& x, int64_t out) {
  if (!x.is_floating_point() || x.dim() < 2 || x.dim() > 5) return {};
  if (x.dim() == 4) return layer_of(net, name, nn::Conv2d(x.size(1), out, 1));
  if (x.dim() == 5) return layer_of(net, name, nn::Conv3d(x.size(1), out, 1));
  return layer_of(net, name, nn::Linear(x.size(-1), out));
}

/// Null where what the call gives cannot be a layer's input.
std::shared_ptr<SampleNet> between_layers(const Sample& sample) {
  auto net = single(sample);
  const Tensor x = draw(sample.given, kExample);
  if (x.is_floating_point()) {
    net->before = mixing(*net, "before", x, x.dim() > 3 ? x.size(1) : x.size(-1));
  }
  net->after = mixing(*net, "after", net->forward(x), 3);
  return net->after ? net : nullptr;
}

/// The first sentence of a message, without the list of what the library has and without where it is in
/// LibTorch.
std::string short_message(const std::string& message) {
  constexpr std::string_view kLowering = "cannot be lowered: ";
  std::string text = message.substr(0, message.find('\n'));
  text = text.substr(0, text.find(". The engine has"));
  if (const size_t at = text.find(kLowering); at != std::string::npos) text.erase(0, at + kLowering.size());
  return text.substr(0, 160);
}

template <typename Work>
Verdict attempt(Work work) {
  try {
    work();
    return {Ending::works, ""};
  } catch (const std::exception& error) {
    return {Ending::fails, short_message(error.what())};
  }
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

double ratio_db(const Tensor& exact, const Tensor& result) {
  expect(exact.sizes() == result.sizes(), "the sizes differ");
  return quant::quantization_error(exact.to(at::kFloat), result.to(at::kFloat)).sqnr_db;
}

/// One tensor, whatever a graph gives.
Tensor only(const Tensors& results) {
  expect(results.size() == 1, "expected one result");
  return results[0];
}

/// Whether the graph's results are the model's bits in this mode, and with `gradients` whether there are some
/// and they are, too. Gives how many gradients there were.
size_t compare(SampleNet& net, graph::GraphModule& module, bool training) {
  const auto model = [&](const Tensors& inputs) { return c10::IValue(net.forward(inputs[0])); };
  const auto replay = [&](const Tensors& inputs) { return module.run(inputs); };
  const Named tensors = named(net);
  size_t gradients = 0;
  for (const int64_t batch : {kExample, kOther}) {
    torch::manual_seed(50);
    const Tensors inputs = {draw(net.sample.given, batch)};
    net.train(training);
    module.train(training);
    const Outcome want = outcome(model, tensors, inputs, training, false);
    const Outcome got = outcome(replay, tensors, inputs, training, false);
    for (size_t i = 0; i < want.outputs.size(); ++i)
      expect(same_bits(want.outputs[i], got.outputs.at(i)), "the graph's result differs from the model's");
    for (size_t i = 0; i < want.gradients.size(); ++i) {
      expect(same_bits(want.gradients[i], got.gradients.at(i)),
             "a gradient of the graph differs from the model's");
      gradients += want.gradients[i].defined();
    }
  }
  return gradients;
}

/// False for ops whose derivative LibTorch does not have.
bool trains_by_itself(SampleNet& net) {
  const auto model = [&](const Tensors& inputs) { return c10::IValue(net.forward(inputs[0])); };
  net.train();
  return attempt([&] {
           outcome(model, named(net), {draw(net.sample.given, kExample)}, true, false);
         }).outcome == Ending::works;
}

Verdict in_engine(graph::GraphModule& module, Given given, LowerOptions::Precision precision,
                  double least_db) {
  return attempt([&] {
    const torch::NoGradGuard no_grad;
    const runtime::Plan plan = lower(module, {.precision = precision});
    runtime::Engine engine(plan, {.threads = 1});
    for (const int64_t batch : {int64_t{1}, kOther}) {
      torch::manual_seed(70);
      const Tensor x = draw(given, batch);
      const Tensor want = only(module.forward_all({x})), got = only(run_engine_all(engine, {x}));
      if (torch::equal(want, got)) continue;
      if (least_db > 0) {
        expect(ratio_db(want, got) >= least_db, "the engine's numbers are too far from the graph's");
      } else {
        const double limit = std::max(kF32Least, rounding_bound(plan, kF32, kF32));
        expect(relative_error(got, want) <= limit,
               "the engine's numbers are not the graph's within rounding");
      }
    }
  });
}

/// The network in static int8, and whether all of it is in integers.
struct Quantized {
  std::shared_ptr<graph::GraphModule> module;
  bool integers = false;
};

Quantized quantize(const Sample& sample, SampleNet& net) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(60);
  const auto captured = capture(net, {draw(sample.given, kExample)});
  captured->eval();
  const auto prepared = quant::prepare(captured, quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->run({draw(sample.given, 8)});
  const Quantized made = {quant::convert(prepared), prepared->report().near_misses.empty()};
  const Tensors inputs = {draw(sample.given, kOther)};
  const auto result = [&](graph::GraphModule& module) {
    torch::manual_seed(61);  // of ops that draw numbers
    return only(module.forward_all(inputs));
  };
  expect(ratio_db(result(*captured), result(*made.module)) >= kQuantizedDb,
         "the quantized graph's numbers are too far from the float graph's");
  return made;
}

void try_in_8_bits(const Sample& sample, Trial& trial) {
  std::shared_ptr<SampleNet> net;
  Quantized quantized;
  trial.quantized = attempt([&] {
    net = between_layers(sample);
    if (net) quantized = quantize(sample, *net);
  });
  if (net == nullptr && trial.quantized.why.empty()) trial.quantized = {};
  if (quantized.module == nullptr) return;
  trial.integers = quantized.integers;
  trial.int8 = in_engine(*quantized.module, sample.given, LowerOptions::Precision::f32, kInt8Db);
}

/// "aten::add" of "aten::add.Tensor".
std::string without_overload(const std::string& op) {
  return op.substr(0, op.find('.'));
}

}  // namespace

Trial try_call(const Sample& sample) {
  Trial trial;
  std::shared_ptr<SampleNet> net;
  std::shared_ptr<graph::GraphModule> module;
  trial.captured = attempt([&] {
    net = single(sample);
    module = capture(*net, {draw(sample.given, kExample)});
    compare(*net, *module, false);
  });
  if (trial.captured.outcome == Ending::fails) return trial;
  if (trains_by_itself(*net)) {
    size_t gradients = 0;
    trial.trains = attempt([&] { gradients = compare(*net, *module, true); });
    if (trial.trains.outcome == Ending::works && gradients == 0) trial.trains = {};
  }
  module->eval();
  using Precision = LowerOptions::Precision;
  trial.f32 = in_engine(*module, sample.given, Precision::f32, 0);
  trial.bf16 = in_engine(*module, sample.given, Precision::bf16, kBF16Db);
  try_in_8_bits(sample, trial);
  return trial;
}

bool reaches_its_op(const Sample& sample) {
  const auto net = single(sample);
  const Tensor x = draw(sample.given, kExample);
  const auto profile = measure::profile_ops([&] { net->forward(x); });
  return std::ranges::count(profile, without_overload(sample.op), &measure::OpTime::op) > 0;
}

std::vector<std::string> core_ops() {
  std::vector<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || !op->hasTag(at::Tag::core)) continue;
    names.push_back(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace ulp::test
