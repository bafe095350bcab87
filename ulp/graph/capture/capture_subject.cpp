// The steps of a capture, the same for torch::nn and TorchScript models.
#include "ulp/graph/capture/capture_subject.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/builder.h"
#include "ulp/graph/capture/check.h"
#include "ulp/graph/capture/far_runs.h"
#include "ulp/graph/capture/hooks.h"
#include "ulp/graph/capture/program.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/capture/sizes.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/canonicalize_convolution.h"
#include "ulp/libtorch/plain_kernels.h"

namespace ulp::graph {

namespace {

Run run(const Subject& subject, const std::vector<at::Tensor>& inputs, const RunSizes& sizes, bool training) {
  Run result;
  result.trace = trace(subject, inputs, sizes, {.training = training});
  result.resolved = resolve(result.trace, subject);
  return result;
}

/// Whether a run in train mode makes calls that eval mode lacks, besides those that update buffers by what
/// cannot be a size (batch norm counts). One run does not tell which of their numbers follow the batch.
bool makes_values_of_its_own(const Run& train, const std::vector<int32_t>& eval_of_train) {
  for (size_t i = 0; i < eval_of_train.size(); ++i) {
    const TracedCall& call = train.trace.calls[i];
    const bool updates = call.schema->is_mutable() && !train.resolved.calls[i].functional;
    const bool by_sizes = std::ranges::any_of(
        call.inputs, [](const c10::IValue& value) { return value.isInt() && value.toInt() > 1; });
    if (eval_of_train[i] < 0 && (!updates || by_sizes)) return true;
  }
  return false;
}

/// What the model makes of a caller's autocast to a type: where it opts out, its calls say so. To fp32 nothing
/// is cast. Nothing for a model that does other things then, or that cannot run.
std::optional<Trace> run_under_autocast(const Subject& subject, const std::vector<at::Tensor>& inputs,
                                        const Trace& plain, at::ScalarType type) {
  try {
    Trace result = trace(subject, inputs, plain.sizes, {.autocast = type});
    if (std::ranges::any_of(plain.calls, &TracedCall::written_back)) resolve(result, subject);
    const bool same =
        std::ranges::equal(result.calls, plain.calls, {}, &TracedCall::target, &TracedCall::target);
    return same ? std::optional(std::move(result)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A call that returned its argument itself may not do so under autocast: only values that are the same in
/// both runs stay candidates.
void keep_common(std::vector<Candidates>& plain, const std::vector<Candidates>& lowered) {
  for (size_t i = 0; i < std::min(plain.size(), lowered.size()); ++i) {
    Candidates common = plain[i];
    std::erase_if(common, [&](const ValueKey& key) { return std::ranges::count(lowered[i], key) == 0; });
    if (!common.empty()) plain[i] = std::move(common);
  }
}

/// The run under autocast to bf16, which also says what the tensors of the plain run are.
std::optional<Trace> run_lowered(const Subject& subject, const std::vector<at::Tensor>& inputs, Run& plain) {
  std::optional<Trace> lowered = run_under_autocast(subject, inputs, plain.trace, at::kBFloat16);
  if (!lowered) return std::nullopt;
  try {
    const Resolved resolved = resolve(*lowered, subject);
    if (resolved.calls.size() != plain.resolved.calls.size()) return std::nullopt;
    for (size_t i = 0; i < resolved.calls.size(); ++i)
      keep_common(plain.resolved.calls[i].tensors, resolved.calls[i].tensors);
    keep_common(plain.resolved.result, resolved.result);
  } catch (const Error&) {
    return std::nullopt;
  }
  return lowered;
}

/// Whether a call asks for fp32: the model may have read the type of a value, which autocast lowers.
bool names_float(const TracedCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (is_dtype(call.schema->arguments()[i]) && call.inputs[i].isInt() &&
        call.inputs[i].toInt() == static_cast<int64_t>(at::kFloat))
      return true;
  }
  return false;
}

/// The same of calls that train mode makes alone.
bool train_only_names_float(const Runs& runs) {
  for (size_t i = 0; i < runs.eval_of_train.size(); ++i) {
    if (runs.eval_of_train[i] < 0 && names_float(runs.train[0].trace.calls[i])) return true;
  }
  return false;
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

/// Throws CustomFunction where a function works on inputs that needed no gradient: nothing shows it then.
void look_for_custom(const Subject& subject, const Trace& plain) {
  const auto hides = [](const TracedCall& call) { return !call.grad && !of_custom_function(call); };
  if (subject.differentiates_custom || std::ranges::none_of(plain.calls, hides)) return;
  Trace looked;
  try {
    looked = trace(subject, with_gradients(plain.inputs), plain.sizes, {});
  } catch (const Error&) {
    return;  // writes to an input, which is a leaf here
  }
  const auto call = std::ranges::find_if(looked.calls, of_custom_function);
  if (call == looked.calls.end()) return;
  throw CustomFunction("[graph.capture] " + call->target +
                       " belongs to a custom autograd function, which cannot be captured");
}

constexpr size_t kOneMore = 1;  // the point with one sample more

Run run_at_point(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                 const std::vector<int64_t>& sizes, bool training) {
  return run(subject, resized(examples, open, sizes), open.at(sizes), training);
}

/// Matches the first run in train mode with eval mode's, and runs train mode at the other sizes where it
/// makes values of its own.
void match_modes(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                 bool trains, Alignment how, Runs& runs) {
  runs.train.resize(1);
  runs.eval_of_train = align(runs.eval[kOneMore], runs.train[0], how);
  const std::vector<std::vector<int64_t>> points = points_of(open, runs.grid);
  for (size_t i = 0; makes_values_of_its_own(runs.train[0], runs.eval_of_train) && i < points.size(); ++i) {
    if (i == kOneMore) continue;
    runs.train.push_back(run_at_point(subject, examples, open, points[i], trains));
    check_same_calls(subject, runs.train[0].trace, runs.train.back().trace);
  }
  runs.near_train = runs.train.size();
}

/// Runs the model at several sizes in eval mode, and in train mode.
Runs watch(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
           bool trains) {
  Runs runs{.grid = grid_of(open),
            .eval = {},
            .near = 0,
            .eval_of_train = {},
            .train = {},
            .near_train = 0,
            .under_autocast = {},
            .lowered = {}};
  const auto run_at = [&](const std::vector<int64_t>& sizes, bool training) {
    return run_at_point(subject, examples, open, sizes, training);
  };
  const std::vector<std::vector<int64_t>> points = points_of(open, runs.grid);
  for (const std::vector<int64_t>& point : points) {
    runs.eval.push_back(run_at(point, false));
    check_same_calls(subject, runs.eval[0].trace, runs.eval.back().trace);
  }
  runs.near = runs.eval.size();
  look_for_custom(subject, runs.eval[0].trace);
  runs.train.push_back(run_at(points[kOneMore], trains));
  match_modes(subject, examples, open, trains, Alignment::first, runs);
  runs.under_autocast =
      run_under_autocast(subject, resized(examples, open, open.example), runs.eval[0].trace, at::kFloat);
  if (std::ranges::any_of(runs.eval[0].trace.calls, names_float))
    runs.lowered = run_lowered(subject, resized(examples, open, open.example), runs.eval[0]);
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

/// The runs and their graph.
struct Watched {
  Runs runs;
  Built built;
  std::string custom;  ///< why custom functions would be refused, where LibTorch differentiates their calls
};

/// The graph of the runs; where calls of train mode were taken for others of eval mode, by another match of
/// both.
Built build_matched(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                    const Inputs& inputs, bool trains, Runs& runs) {
  try {
    return build(subject, runs, inputs);
  } catch (const ChangedConstant&) {
    throw;
  } catch (const CustomFunction&) {
    throw;
  } catch (const Error&) {
    const std::vector<int32_t> before = runs.eval_of_train;
    for (const Alignment how : {Alignment::same_numbers, Alignment::last}) {
      if (align(runs.eval[kOneMore], runs.train[0], how) == before) continue;
      try {
        match_modes(subject, examples, open, trains, how, runs);
        return build(subject, runs, inputs);
      } catch (const Error&) {
        // The first one says what stands in the way.
      }
    }
    throw;
  }
}

Watched watch_and_build(Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                        const Inputs& inputs, bool trains) {
  try {
    Runs runs = watch(subject, examples, open, trains);
    Built built = build_matched(subject, examples, open, inputs, trains, runs);
    return {std::move(runs), std::move(built), ""};
  } catch (const ChangedConstant&) {
    if (subject.keeps_written_constants) throw;
    subject.keeps_written_constants = true;
  } catch (const CustomFunction& refused) {
    if (subject.differentiates_custom) throw;
    subject.differentiates_custom =
        true;  // in eval mode alone nothing differentiates: the calls are known then
    Watched result = watch_and_build(subject, examples, open, inputs, trains);
    result.custom = refused.what();
    return result;
  }
  return watch_and_build(subject, examples, open, inputs, trains);
}

/// A graph of a model with custom functions in eval mode alone: other gradients than theirs would pass.
void take_gradients(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call) node->no_grad = true;
  }
}

/// The numbers of buffers that the model read are those of the graph as long as the buffers hold them.
void keep_conditions(Graph& graph, const Runs& runs, const Subject& subject,
                     std::vector<std::string>& notes) {
  const auto read_by = [](const std::vector<Run>& mode) {
    std::set<size_t> read;
    for (const Run& run : mode) read.insert(run.resolved.conditions.begin(), run.resolved.conditions.end());
    return read;
  };
  const std::set<size_t> eval = read_by(runs.eval), train = read_by(runs.train);
  std::set<size_t> all = eval;
  all.insert(train.begin(), train.end());
  for (const size_t index : all) {
    const auto& [name, attribute] = subject.attributes[index];
    const ReadIn modes = !train.contains(index) ? ReadIn::eval
                         : eval.contains(index) ? ReadIn::both
                                                : ReadIn::train;
    graph.set_attribute(condition_of(name, modes),
                        {Attribute::Kind::constant, attribute.tensor.detach().clone()});
    const std::string where = modes == ReadIn::both   ? ""
                              : modes == ReadIn::eval ? " in eval mode"
                                                      : " in train mode";
    notes.push_back("forward reads numbers of '" + name + "'" + where +
                    " and does what they say: the graph does the same, and refuses to run" + where +
                    " once they are others");
  }
}

/// Whether forward calls a custom autograd function.
bool calls_custom(const Trace& trace) {
  return !trace.custom_result.empty() || std::ranges::any_of(trace.calls, of_custom_function);
}

}  // namespace

std::shared_ptr<GraphModule> capture_subject(Subject subject, const std::vector<at::Tensor>& examples,
                                             const CaptureOptions& options) {
  const libtorch::PlainKernels recorded;
  const std::vector<std::string> names = names_of(examples.size(), options);
  for (size_t i = 0; i < examples.size(); ++i) {
    if (!examples[i].defined()) fail("graph.capture", "expected a defined tensor as '", names[i], "'");
  }
  const OpenSizes open = open_sizes(examples, options);
  const bool trains = options.modes == Modes::both;
  const Inputs inputs{names, open.batch_dims, open.batch_range, open.free};
  subject.infers_only = !trains;
  auto [runs, built, custom] = watch_and_build(subject, examples, open, inputs, trains);
  const bool infers_custom = !trains && calls_custom(runs.eval[0].trace);
  refuse_hooks(runs.eval[0].trace, built.eval);
  refuse_hooks(runs.train[0].trace, built.train);
  if (options.far_sizes) built = build_far(subject, examples, open, inputs, trains, runs, std::move(built));
  std::vector<std::string> notes;
  if (infers_custom) {
    take_gradients(*built.graph);
    notes.emplace_back("forward calls custom autograd functions: the graph infers, and gives no gradients");
  }
  if (subject.scripted) notes = use_plain_convolutions(*built.graph);
  if (train_only_names_float(runs))
    notes.emplace_back("types in calls of train mode alone are those of float32, under autocast, too");
  if (!runs.lowered && std::ranges::any_of(runs.eval[0].trace.calls, names_float))
    notes.emplace_back(
        "under autocast to bfloat16 the model makes other calls, or cannot run: the graph makes those of "
        "float32");
  keep_conditions(*built.graph, runs, subject, notes);
  auto module = std::make_shared<GraphModule>(built.graph, std::move(notes));
  if (!custom.empty() && trains) check_gradients(subject, *module, examples, custom);
  if (subject.keeps_written_constants) check_written_masks(subject, *module, built, runs, trains);
  check_captured(subject, *module, built, runs, options);
  module->train(subject.was_training && trains);
  return module;
}

}  // namespace ulp::graph
