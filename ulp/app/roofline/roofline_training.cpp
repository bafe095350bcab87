// One training step, operator by operator.
#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/watch/watch_recorder.h"
#include "ulp/app/roofline/op_work.h"
#include "ulp/app/roofline/roofline_parts.h"

namespace ulp::app {

namespace {

using Clock = std::chrono::steady_clock;

/// Attention that looks back only, by the names of its nodes.
std::map<std::string, bool> causal_nodes(const graph::Graph& graph) {
  std::map<std::string, bool> found;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == graph::Node::Kind::call && node->op() == "aten::scaled_dot_product_attention")
      found[node->name()] = node->arg("is_causal").literal.toBool();
  }
  return found;
}

/// "layer1.0.conv1", with the node's own name where a module has several.
std::string layer_of(const amp::OpLocation& place) {
  if (place.node.empty()) return place.pass == amp::Pass::forward ? "loss" : "loss and gradients";
  return place.path.empty() ? place.node : place.path;
}

/// The calls of one step after the other, each kept with its fastest time.
class CallTimes final : public amp::OpSink {
 public:
  explicit CallTimes(const graph::Graph& graph) : causal_(causal_nodes(graph)) {}

  void start_step() { start_ = Clock::now(); }
  void visit(const amp::OpCall& call) override {
    const auto [at, fresh] = index_.try_emplace(key_of(call.place), parts_.size());
    if (!fresh) {
      ProfiledPart& part = parts_[at->second];
      part.seconds = std::min(part.seconds, call.seconds);
      return;
    }
    const auto causal = causal_.find(call.place.node);
    const CalledOp called{call.place.op, call.inputs, call.outputs, causal != causal_.end() && causal->second,
                          call.in_place};
    const bool forward = call.place.pass == amp::Pass::forward;
    std::string shape;
    for (const at::Tensor& output : call.outputs) {
      if (shape.empty()) shape = c10::toString(output.scalar_type()) + (" " + c10::str(output.sizes()));
    }
    parts_.push_back({.name = layer_of(call.place),
                      .op = call.place.op.substr(call.place.op.find("::") + 2),
                      .kernel = forward ? "forward" : "backward",
                      .shape = shape,
                      .start = std::chrono::duration<double>(call.began - start_).count(),
                      .seconds = call.seconds,
                      .work = call.returns_memory ? runtime::StepWork{} : work_of(called)});
  }
  std::vector<ProfiledPart> take() { return std::move(parts_); }

 private:
  static std::string key_of(const amp::OpLocation& place) {
    std::string key = place.pass == amp::Pass::forward ? "f" : "b";
    for (const std::string* part : {&place.op, &place.path, &place.node, &place.autograd_node})
      key += '\n' + *part;
    return key + '\n' + std::to_string(place.occurrence);
  }

  std::map<std::string, bool> causal_;
  std::map<std::string, size_t> index_;
  std::vector<ProfiledPart> parts_;
  Clock::time_point start_;
};

/// AdamW in fp32 reads and writes weights and two moments, and reads gradients.
runtime::StepWork optimizer_work(const std::vector<at::Tensor>& parameters) {
  constexpr double kFloats = 3 * 2 + 1, kOperations = 12;
  double elements = 0;
  for (const at::Tensor& parameter : parameters) elements += static_cast<double>(parameter.numel());
  return {.operations = kOperations * elements, .tensor_bytes = 4 * kFloats * elements};
}

}  // namespace

std::vector<ProfiledPart> profile_training(RooflineNetwork& network, const RooflineOptions& options) {
  graph::GraphModule& model = *network.graph;
  model.train();
  const amp::Precision& precision = amp::find_precision(enum_name(options.precision));
  const train::TaskBatch batch = network.task.batches->next().value();
  amp::FusedOptimizer optimizer(model.parameters(), amp::AdamWRule{});
  CallTimes times(model.graph());
  amp::ModulePaths paths;
  double update = 1e9, began = 0;
  const auto step = [&](bool recorded) {
    times.start_step();
    const Clock::time_point start = Clock::now();
    {
      std::optional<amp::OpRecorder> recorder;
      if (recorded) recorder.emplace(paths, times);
      at::Tensor result;
      {
        const auto guard = amp::autocast_for(precision, at::kCPU);
        result = model.forward(batch.inputs);
      }
      network.task.loss(result, batch).backward();
    }
    const Clock::time_point middle = Clock::now();
    amp::fused_step(optimizer, nullptr);
    update = std::min(update, std::chrono::duration<double>(Clock::now() - middle).count());
    began = std::chrono::duration<double>(middle - start).count();
    optimizer.zero_grad();
  };
  step(false);  // allocates the optimizer's state
  for (Repetitions repetitions(options.runs); repetitions.next();) step(true);
  std::vector<ProfiledPart> parts = times.take();
  parts.push_back({.name = "optimizer",
                   .op = "AdamW",
                   .kernel = "update",
                   .start = began,
                   .seconds = update,
                   .work = optimizer_work(model.parameters())});
  return parts;
}

}  // namespace ulp::app
