// The steps of a capture, the same for torch::nn and TorchScript models.
#include "ulp/graph/capture/capture_subject.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/capture/builder.h"
#include "ulp/graph/capture/check.h"
#include "ulp/graph/capture/hooks.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/canonicalize_convolution.h"

namespace ulp::graph {

namespace {

std::vector<int64_t> batch_dims_of(const std::vector<at::Tensor>& examples, const CaptureOptions& options) {
  std::vector<int64_t> dims = options.batch_dims;
  if (dims.empty()) {
    for (const at::Tensor& example : examples) dims.push_back(example.dim() > 0 ? 0 : -1);
  }
  if (dims.size() != examples.size()) {
    fail("graph.capture", "expected a batch dimension for each of ", examples.size(), " inputs, got ",
         dims.size());
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || dims[i] >= examples[i].dim()) {
      fail("graph.capture", "expected the batch dimension of input ", i, " to be -1 to ",
           examples[i].dim() - 1, ", got ", dims[i]);
    }
  }
  return dims;
}

/// The batch size on which all inputs agree; 0 if no input has one.
int64_t batch_of(const std::vector<at::Tensor>& examples, const std::vector<int64_t>& dims) {
  int64_t batch = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (dims[i] < 0) continue;
    int64_t size = examples[i].size(dims[i]);
    if (size == 0 || (batch && size != batch)) {
      fail("graph.capture", "expected batch size ", batch ? std::to_string(batch) : "1 or more",
           " in dimension ", dims[i], " of input ", i, ", got ", size,
           "; say which dimensions are the batch with CaptureOptions::batch_dims");
    }
    batch = size;
  }
  return batch;
}

/// The examples repeated along their batch dimensions until they hold `batch` samples.
std::vector<at::Tensor> tile(const std::vector<at::Tensor>& examples, const std::vector<int64_t>& dims,
                             int64_t batch) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < examples.size(); ++i) {
    at::Tensor example = examples[i].detach();
    if (dims[i] < 0 || example.size(dims[i]) == batch) {
      result.push_back(example.clone());
      continue;
    }
    at::Tensor index =
        torch::arange(batch, at::TensorOptions(at::kLong).device(example.device())) % example.size(dims[i]);
    result.push_back(example.index_select(dims[i], index).contiguous(example.suggest_memory_format()));
  }
  return result;
}

Run run(const Subject& subject, const std::vector<at::Tensor>& inputs, int64_t batch, bool training) {
  Run result;
  result.trace = trace(subject, inputs, batch, {.training = training});
  result.resolved = resolve(result.trace, subject);
  return result;
}

/// Whether a run in train mode makes calls that eval mode lacks, besides those that update buffers (batch norm counts).
/// One run does not tell which of their numbers follow the batch.
bool makes_values_of_its_own(const Run& train, const std::vector<int32_t>& eval_of_train) {
  for (size_t i = 0; i < eval_of_train.size(); ++i) {
    const bool updates = train.trace.calls[i].schema->is_mutable() && !train.resolved.calls[i].functional;
    if (eval_of_train[i] < 0 && !updates) return true;
  }
  return false;
}

/// What the model makes of a caller's autocast: where it opts out, its calls say so. Nothing for a model that does
/// other things then, or that cannot run.
std::optional<Trace> run_under_autocast(const Subject& subject, const std::vector<at::Tensor>& inputs,
                                        const Trace& plain) {
  try {
    Trace result = trace(subject, inputs, plain.batch, {.autocast = true});
    const bool same =
        std::ranges::equal(result.calls, plain.calls, {}, &TracedCall::target, &TracedCall::target);
    return same ? std::optional(std::move(result)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// The names of the inputs: those given, or "input", or "input_0", "input_1".
std::vector<std::string> names_of(size_t inputs, const CaptureOptions& options) {
  std::vector<std::string> names = options.input_names;
  for (size_t i = 0; i < inputs && options.input_names.empty(); ++i)
    names.push_back(inputs == 1 ? "input" : "input_" + std::to_string(i));
  if (names.size() != inputs)
    fail("graph.capture", "expected a name for each of ", inputs, " inputs, got ", names.size());
  for (size_t i = 0; i < inputs; ++i) {
    if (names[i].empty() || std::count(names.begin(), names.end(), names[i]) > 1)
      fail("graph.capture", "expected different names of inputs that are not empty, got '", names[i], "'");
  }
  return names;
}

/// Runs the model at three batch sizes in eval mode, and in train mode.
Runs watch(const Subject& subject, const std::vector<at::Tensor>& examples, const std::vector<int64_t>& dims,
           bool trains) {
  const int64_t batch = batch_of(examples, dims);
  const int64_t step = batch ? 1 : 0;
  Runs runs;
  for (int64_t i = 0; i < 3; ++i) {
    int64_t size = batch + i * step;
    runs.eval[i] = run(subject, tile(examples, dims, size), size, false);
    if (i) check_same_calls(runs.eval[0].trace, runs.eval[i].trace);
  }
  const auto train_at = [&](int64_t size) {
    runs.train.push_back(run(subject, tile(examples, dims, size), size, trains));
    if (runs.train.size() > 1) check_same_calls(runs.train[0].trace, runs.train.back().trace);
  };
  train_at(batch + step);
  runs.eval_of_train = align(runs.eval[1], runs.train[0]);
  if (makes_values_of_its_own(runs.train[0], runs.eval_of_train)) {
    for (const int64_t size : {batch, batch + 2 * step}) train_at(size);
  }
  runs.under_autocast = run_under_autocast(subject, tile(examples, dims, batch), runs.eval[0].trace);
  return runs;
}

/// Traced TorchScript calls aten::_convolution, which is aten::conv2d with switches for CUDA.
std::vector<std::string> use_plain_convolutions(Graph& graph) {
  PassReport report;
  std::vector<std::string> notes;
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    const std::string before = node->target();
    const bool changed = from_convolution(graph, *node, report);
    if (changed && before != "aten::_convolution.deprecated") {  // which autocast on the CPU knows
      notes.push_back(label(*node) + " calls " + before + " in the model and " + node->target() +
                      " in the graph: autocast on the CPU lowers the precision of the latter alone; without "
                      "autocast both give the same bits");
    }
  }
  notes.insert(notes.end(), report.near_misses.begin(), report.near_misses.end());
  return notes;
}

}  // namespace

std::shared_ptr<GraphModule> capture_subject(const Subject& subject, const std::vector<at::Tensor>& examples,
                                             const CaptureOptions& options) {
  const std::vector<std::string> names = names_of(examples.size(), options);
  for (size_t i = 0; i < examples.size(); ++i) {
    if (!examples[i].defined()) fail("graph.capture", "expected a defined tensor as '", names[i], "'");
  }
  const std::vector<int64_t> dims = batch_dims_of(examples, options);
  const bool trains = options.modes == Modes::both;
  const Runs runs = watch(subject, examples, dims, trains);
  const Built built = build(subject, runs, {names, dims});
  refuse_hooks(runs.eval[0].trace, built.eval);
  refuse_hooks(runs.train[0].trace, built.train);
  std::vector<std::string> notes;
  if (subject.scripted) notes = use_plain_convolutions(*built.graph);
  auto module = std::make_shared<GraphModule>(built.graph, std::move(notes));
  check_captured(subject, *module, built, runs, options);
  module->train(subject.was_training && trains);
  return module;
}

}  // namespace ulp::graph
