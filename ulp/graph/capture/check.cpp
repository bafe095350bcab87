#include "ulp/graph/capture/check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/graph/capture/merge.h"
#include "ulp/graph/capture/same_bits.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {

namespace {

/// What the model and the graph did with the same inputs and random state.
struct Outcome {
  Trace model, graph;
  std::string model_error, graph_error;  ///< why they cannot run with these inputs in train mode
};

/// The calls that capture saw in one mode, and their nodes.
struct Captured {
  const std::vector<TracedCall>& calls;
  const std::vector<const Node*>& nodes;
};

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs) result.push_back(input.detach().clone());
  return result;
}

std::string title(const Node& node) {
  return "node '" + node.name() + "'" + (node.scope.empty() ? "" : ", module path '" + node.scope + "'");
}

/// How the results differ, or what the run left in buffers and parameters; empty where nothing does.
std::string end_difference(const Outcome& outcome, const Subject& subject) {
  std::string found = result_difference(outcome.model.result_copy, outcome.graph.result_copy, "the result");
  for (size_t i = 0; i < subject.attributes.size() && found.empty(); ++i) {
    const at::Tensor& tensor = subject.attributes[i].second.tensor;
    const auto after = [&](const Trace& trace) {
      const auto written = trace.after.find(i);
      return written == trace.after.end() ? tensor : written->second;
    };
    if (!outcome.model.after.contains(i) && !outcome.graph.after.contains(i)) continue;
    const std::string difference = tensor_difference(after(outcome.model), after(outcome.graph));
    if (!difference.empty()) found = "'" + subject.attributes[i].first + "' " + difference + " after forward";
  }
  return found;
}

/// Where the model's calls are no longer those that capture saw.
std::string parting(const TracedCall* model, const TracedCall* graph, const Node* node) {
  const std::string where = node == nullptr ? "" : " (" + title(*node) + ")";
  if (model == nullptr) return "the model returns where the graph has " + graph->target + where;
  if (graph == nullptr) return "the model calls " + model->target + " where the graph returns";
  return "the model calls " + model->target + " where the graph has " + graph->target + where;
}

/// "; its argument 'other' is 2 in the model and 1 in the graph", for the first number or word that differs.
std::string argument_difference(const TracedCall& model, const TracedCall& graph) {
  for (size_t i = 0; i < std::min(model.inputs.size(), graph.inputs.size()); ++i) {
    const c10::IValue &a = model.inputs[i], &b = graph.inputs[i];
    if (a.isTensor() || a.isTensorList() || b.isTensor() || same_literal(a, b)) continue;
    return "; its argument '" + model.schema->arguments()[i].name() + "' is " + short_text(a) +
           " in the model and " + short_text(b) + " in the graph";
  }
  return "";
}

/// How the values of a call differ, empty where they do not. `runs`: what the graph called for the node, one call or
/// the steps of an in-place op.
std::string value_difference(const TracedCall& model, const std::vector<const TracedCall*>& runs) {
  if (runs.empty() || leaves_unwritten(model)) return "";
  const std::vector<at::Tensor>& values = runs.back()->values;
  for (size_t i = 0; i < std::min(model.values.size(), values.size()); ++i) {
    const std::string found = tensor_difference(model.values[i], values[i]);
    if (!found.empty()) return found + argument_difference(model, *runs.front());
  }
  return "";
}

/// The first call that differs, in values or in itself; empty where none does.
std::string first_difference(const Outcome& outcome, const Captured& captured) {
  std::map<const Node*, std::vector<const TracedCall*>> of_node;
  for (const TracedCall& call : outcome.graph.calls) of_node[call.node].push_back(&call);
  const std::vector<TracedCall>& model = outcome.model.calls;
  size_t seen = 0;
  for (size_t i = 0; i < model.size() || seen < captured.calls.size(); ++i, ++seen) {
    while (seen < captured.calls.size() && captured.calls[seen].written_back) ++seen;
    const TracedCall* here = i < model.size() ? &model[i] : nullptr;
    const TracedCall* there = seen < captured.calls.size() ? &captured.calls[seen] : nullptr;
    if (here == nullptr && there == nullptr) break;
    const Node* node = there == nullptr ? nullptr : captured.nodes[seen];
    if (here == nullptr || there == nullptr || here->target != there->target)
      return parting(here, there, node);
    if (node == nullptr) continue;
    const std::string found = value_difference(*here, of_node[node]);
    if (!found.empty()) return here->target + " (" + title(*node) + ") " + found;
  }
  return "";
}

class Checker {
 public:
  Checker(const Subject& subject, GraphModule& module, const Built& built, const Runs& runs)
      : subject_(subject), built_(built), runs_(runs), replay_(replay_of(subject, module)) {}

  /// What differs at these inputs; empty for nothing.
  std::string difference(const std::vector<at::Tensor>& inputs, bool training) const {
    const Outcome outcome = run(inputs, training, Keep::ends);
    if (!outcome.model_error.empty()) return "";
    if (!outcome.graph_error.empty()) return outcome.graph_error;
    const std::string ends = end_difference(outcome, subject_);
    if (ends.empty()) return "";
    const Outcome again = run(inputs, training, Keep::values);
    const Captured captured = training ? Captured{runs_.train[0].trace.calls, built_.train}
                                       : Captured{runs_.eval[0].trace.calls, built_.eval};
    const std::string first = first_difference(again, captured);
    if (!first.empty()) return ends + "; first of all, " + first;
    if (end_difference(again, subject_).empty())
      return ends + ", and not so in a second run: forward keeps a state that capture cannot see";
    return ends + ", although every call gives the same: forward does something else with what they give";
  }

 private:
  Outcome run(const std::vector<at::Tensor>& inputs, bool training, Keep keep) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) fail("graph.capture", "expected a defined tensor as input ", i);
    }
    const RunSizes sizes = sizes_of(inputs);
    const TraceOptions options{.training = training, .keep = keep};
    Outcome result;
    if (!training) {
      result.graph = trace(replay_, copies(inputs), sizes, options);  // first: it checks the inputs
      result.model = trace(subject_, copies(inputs), sizes, options);
      return result;
    }
    const auto attempt = [&](const Subject& subject, Trace& made, std::string& error) {
      try {
        made = trace(subject, copies(inputs), sizes, options);
      } catch (const Error& caught) {
        error = caught.reason();
      }
    };
    attempt(subject_, result.model, result.model_error);
    attempt(replay_, result.graph, result.graph_error);
    return result;
  }

  /// For messages; 0 for what the inputs lack.
  RunSizes sizes_of(const std::vector<at::Tensor>& inputs) const {
    const auto size = [&](size_t input, int64_t dim) {
      const bool there = input < inputs.size() && dim >= 0 && dim < inputs[input].dim();
      return there ? inputs[input].size(dim) : 0;
    };
    RunSizes sizes;
    const std::vector<int64_t>& dims = built_.graph->batch_dims;
    for (size_t i = 0; i < dims.size() && sizes.values[0] == 0; ++i) sizes.values[0] = size(i, dims[i]);
    for (const DynamicDimension& free : built_.graph->free) {
      sizes.free_names.push_back(free.name);
      sizes.values.push_back(size(free.places[0].input, free.places[0].dim));
    }
    return sizes;
  }

  const Subject& subject_;
  const Built& built_;
  const Runs& runs_;
  Subject replay_;
};

/// Adds drawn numbers to the parameters, of which some are zeros at first, and takes them away again.
class DrawnParameters {
 public:
  explicit DrawnParameters(const Subject& subject) {
    const at::NoGradGuard no_grad;
    at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/29);
    for (const auto& [name, attribute] : subject.attributes) {
      if (attribute.kind != Attribute::Kind::parameter || !attribute.tensor.is_floating_point()) continue;
      at::Tensor tensor = attribute.tensor.detach();
      before_.emplace_back(tensor, tensor.clone());
      tensor.add_(torch::randn(tensor.sizes(), generator, torch::kFloat).to(tensor.options()), 0.3);
    }
  }
  ~DrawnParameters() {
    try {
      for (auto& [tensor, numbers] : before_) tensor.copy_(numbers);
    } catch (const std::exception&) {
      // They have the sizes and types that they had.
    }
  }
  DrawnParameters(const DrawnParameters&) = delete;
  DrawnParameters& operator=(const DrawnParameters&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

/// Parameters and buffers in double, for as long as it lives.
class InDouble {
 public:
  explicit InDouble(const Subject& subject) {
    for (const auto& [name, attribute] : subject.attributes) {
      at::Tensor tensor = attribute.tensor;
      if (!tensor.is_floating_point()) continue;
      before_.emplace_back(tensor, tensor.detach());
      tensor.set_data(tensor.detach().to(at::kDouble));
    }
  }
  ~InDouble() {
    try {
      for (size_t i = before_.size(); i-- > 0;)
        before_[i].first.set_data(before_[i].second);  // tied ones, too
    } catch (const std::exception&) {
      // They had these numbers.
    }
  }
  InDouble(const InDouble&) = delete;
  InDouble& operator=(const InDouble&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

/// Inputs of these sizes that are drawn around 0, with gradients.
std::vector<at::Tensor> drawn_around_zero(const std::vector<at::Tensor>& examples, double spread,
                                          uint64_t seed, bool in_double = false) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  std::vector<at::Tensor> inputs = copies(examples);
  for (at::Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    input.copy_(torch::randn(input.sizes(), generator, torch::kFloat) * spread);
    if (in_double) input = input.to(at::kDouble);
    input.requires_grad_();
  }
  return inputs;
}

double largest_of(const at::Tensor& numbers) {
  return numbers.defined() && numbers.numel() > 0
             ? numbers.detach().to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>()
             : 0;
}

/// Within a share of the largest of the tensor, or within `noise`.
bool close_gradients(const at::Tensor& model, const at::Tensor& graph, double noise) {
  if (!model.defined() && !graph.defined()) return true;
  const at::Tensor a = model.defined() ? model.to(at::kDouble) : torch::zeros_like(graph, at::kDouble);
  const at::Tensor b = graph.defined() ? graph.to(at::kDouble) : torch::zeros_like(model, at::kDouble);
  const at::Tensor& known = model.defined() ? model : graph;
  const double share = c10::elementSize(known.scalar_type()) < sizeof(float) ? 2e-2 : 1e-4;
  if (a.numel() == 0) return true;
  return torch::allclose(b, a, share, share * largest_of(a) + noise, /*equal_nan=*/true);
}

using Gradients = std::vector<at::Tensor>;

/// How far rounding alone moves the elements of each gradient: gradients are linear in what comes from
/// behind, so those of an odd multiple differ from the multiple of those by rounding. `gradients_at`: those
/// of a factor.
template <typename GradientsAt>
std::vector<double> rounding_noise(const Gradients& gradients, GradientsAt gradients_at) {
  std::vector<double> noise(gradients.size(), 0);
  for (const double factor : {3.0, 5.0, 7.0}) {
    const Gradients others = gradients_at(factor);
    for (size_t i = 0; i < std::min(noise.size(), others.size()); ++i) {
      if (gradients[i].defined() && others[i].defined())
        noise[i] = std::max(noise[i], largest_of(others[i] / factor - gradients[i]));
    }
  }
  return noise;
}

/// Gradients of both at drawn inputs; false where the model does not run there.
bool same_gradients(const Subject& subject, const Subject& replay, const std::vector<at::Tensor>& examples,
                    const TraceOptions& options, double spread, uint64_t seed, bool in_double) {
  std::optional<InDouble> wide;
  try {
    if (in_double) wide.emplace(subject);
    const auto run = [&](const Subject& of, double factor) {
      TraceOptions scaled = options;
      scaled.gradients *= factor;
      return trace(of, drawn_around_zero(examples, spread, seed, in_double), {}, scaled).gradients;
    };
    const Gradients model = run(subject, 1), graph = run(replay, 1);
    const auto same = [&](auto noise_of) {
      if (model.size() != graph.size()) return false;
      for (size_t i = 0; i < model.size(); ++i) {
        if (!close_gradients(model[i], graph[i], noise_of(i))) return false;
      }
      return true;
    };
    if (same([](size_t) { return 0.0; })) return true;
    if (!in_double) return false;
    // What is 0 but for rounding (a bias before a batch norm) is far below the others, and moves by no more
    // than rounding.
    constexpr double kFarBelow = 1e-9, kSpread = 32, kLast = 16 * std::numeric_limits<double>::epsilon();
    double largest = 0;
    for (const at::Tensor& gradient : model) largest = std::max(largest, largest_of(gradient));
    const std::vector<double> noise =
        rounding_noise(graph, [&](double factor) { return run(replay, factor); });
    return same([&](size_t i) {
      return i < noise.size() ? std::min(kFarBelow * largest, std::max(kSpread * noise[i], kLast * largest))
                              : 0.0;
    });
  } catch (const std::exception&) {
    return false;  // inputs of other numbers or types may not be allowed: then nothing is known
  }
}

}  // namespace

Subject replay_of(const Subject& subject, GraphModule& module) {
  Subject replay;
  replay.attributes = subject.attributes;
  replay.forward = [&module](const std::vector<at::Tensor>& inputs) { return module.run(inputs); };
  replay.train = [&module](bool on) { module.train(on); };
  replay.restore_mode = [] {};
  return replay;
}

void check_gradients(const Subject& subject, GraphModule& module, const std::vector<at::Tensor>& examples,
                     const std::string& refusal) {
  const Subject replay = replay_of(subject, module);
  const DrawnParameters drawn(subject);
  uint64_t seed = 23;
  for (const bool training : {false, true}) {
    for (const double spread : {0.3, 1.0, 5.0}) {
      for (const double scale : {1.0, 1e3, 1e6}) {
        const TraceOptions options{.training = training, .gradients = scale};
        ++seed;
        // In deep networks rounding alone moves float gradients further apart than the bound: then in double.
        const bool same = same_gradients(subject, replay, examples, options, spread, seed, false) ||
                          same_gradients(subject, replay, examples, options, spread, seed, true);
        if (!same)
          throw CustomFunction(refusal +
                               ": its gradients are not those of its operations; with Modes::eval_only "
                               "the graph infers, without gradients");
      }
    }
  }
}

void check_written_masks(const Subject& subject, GraphModule& module, const Built& built, const Runs& runs,
                         bool trains) {
  const Checker checker(subject, module, built, runs);
  for (size_t i = 0; i < runs.near; ++i) {
    for (const bool training : {false, true}) {
      if (training && !trains) continue;
      std::vector<at::Tensor> inputs = drawn_around_zero(runs.eval[i].trace.inputs, 1, 31 + i);
      for (at::Tensor& input : inputs) input.detach_();
      const std::string found = checker.difference(inputs, training);
      if (!found.empty())
        fail("graph.capture",
             "a tensor that forward makes of numbers is written by C++ itself, or not by calls "
             "alone: at ",
             runs.eval[i].trace.sizes.text(), ", ", found);
    }
  }
}

void check_captured(const Subject& subject, GraphModule& module, const Built& built, const Runs& runs,
                    const CaptureOptions& options) {
  const Checker checker(subject, module, built, runs);
  for (size_t i = 0; i < options.check.size(); ++i) {
    for (const bool training : {false, true}) {
      if (training && options.modes == Modes::eval_only) continue;
      std::string found;
      try {
        found = checker.difference(options.check[i], training);
      } catch (const Error& error) {
        found = error.reason();
      }
      if (!found.empty())
        fail("graph.capture", "check[", i, "] in ", training ? "train" : "eval", " mode: ", found);
    }
  }
}

}  // namespace ulp::graph
