#include "ulp/graph/capture/far_runs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "ulp/base/error.h"
#include "ulp/graph/capture/check.h"
#include "ulp/graph/capture/far_sizes.h"
#include "ulp/graph/capture/merge.h"
#include "ulp/graph/capture/same_bits.h"
#include "ulp/graph/capture/tensors.h"
#include "ulp/graph/graph_module.h"

namespace ulp::graph {

namespace {

using c10::IValue;

/// A capture of many calls makes at most so many forward passes, but where one finds something: the most
/// telling sizes.
constexpr size_t kManyCalls = 256, kMostRuns = 10;

constexpr size_t kOneSampleMore = 1;  ///< the run in eval mode that the first one in train mode stands beside

/// The value with a tensor of one element in the place of each that is defined; lists and tuples stay what
/// they are.
IValue without_tensors(const IValue& value, const at::Tensor& instead) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(instead) : value;
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef()) list.push_back(without_tensors(item, instead));
    return list;
  }
  if (!value.isTuple()) return value;
  std::vector<IValue> items;
  for (const IValue& item : value.toTupleRef().elements()) items.push_back(without_tensors(item, instead));
  return c10::ivalue::Tuple::create(std::move(items));
}

void give_up_tensors(Trace& trace) {
  const at::Tensor instead = torch::zeros({});
  for (TracedCall& call : trace.calls) {
    call.grad_fns.reset();
    for (IValue& value : call.inputs) value = without_tensors(value, instead);
    for (IValue& value : call.outputs) value = without_tensors(value, instead);
  }
  trace.result = without_tensors(trace.result, instead);
}

/// Whether a number of train mode is not the graph's at the far sizes: that of eval mode where it is so near
/// the example, and else the one that it is there. The same for lists of numbers.
bool bends(const IValue& eval, const IValue& train, const IValue& far_eval, const IValue& far_train) {
  if (eval.isTensor() || train.isTensor() || far_eval.isTensor() || far_train.isTensor()) return false;
  const auto all = {&eval, &train, &far_eval, &far_train};
  if (!std::ranges::all_of(all, [](const IValue* value) { return value->isList(); }))
    return !same_literal(far_train, same_literal(eval, train) ? far_eval : train);
  const size_t size = train.toListRef().size();
  if (!std::ranges::all_of(all, [&](const IValue* value) { return value->toListRef().size() == size; }))
    return true;
  for (size_t i = 0; i < size; ++i) {
    const auto item = [i](const IValue& list) -> IValue { return list.toListRef()[i]; };
    if (bends(item(eval), item(train), item(far_eval), item(far_train))) return true;
  }
  return false;
}

bool share_one(const Candidates& a, const Candidates& b) {
  if (a.empty() || b.empty()) return a.empty() && b.empty();
  return std::ranges::find_first_of(a, b) != a.end();
}

/// Train mode at far sizes does what it does near the example: the same calls on the same tensors, with the
/// graph's numbers.
void check_train(const Subject& subject, const Runs& runs, const Run& far_eval, const Run& far_train) {
  const Run &eval = runs.eval[kOneSampleMore], &train = runs.train[0];
  check_same_calls(subject, train.trace, far_train.trace);
  for (size_t i = 0; i < train.trace.calls.size(); ++i) {
    const TracedCall &call = train.trace.calls[i], &far_call = far_train.trace.calls[i];
    const auto refuse = [&](const std::string& what) {
      fail("graph.capture", what, " of ", call.target, " (call ", i, ") is not that of ",
           train.trace.sizes.text(), " at ", far_train.trace.sizes.text(), " in train mode");
    };
    const std::vector<Candidates>&near = train.resolved.calls[i].tensors,
          &far = far_train.resolved.calls[i].tensors;
    if (!std::ranges::equal(near, far, share_one)) refuse("a tensor");
    const int32_t twin = runs.eval_of_train[i];
    if (twin < 0) continue;
    const TracedCall &eval_call = eval.trace.calls[twin], &far_eval_call = far_eval.trace.calls[twin];
    for (size_t a = 0; a < call.inputs.size(); ++a) {
      if (bends(eval_call.inputs[a], call.inputs[a], far_eval_call.inputs[a], far_call.inputs[a]))
        refuse("argument '" + call.schema->arguments()[a].name() + "'");
    }
  }
}

/// The calls whose results pass no gradient, by their names.
std::vector<std::string> without_gradient(const Trace& trace) {
  std::vector<std::string> names;
  for (const TracedCall& call : trace.calls) {
    if (!call.grad || call.target.starts_with("aten::detach")) names.push_back(call.target);
  }
  std::ranges::sort(names);
  return names;
}

bool close(const at::Tensor& model, const at::Tensor& graph) {
  if (!model.defined() || !graph.defined()) return model.defined() == graph.defined();
  if (model.sizes() != graph.sizes() || model.scalar_type() != graph.scalar_type()) return false;
  if (!model.is_floating_point() && !model.is_complex()) return tensor_difference(model, graph).empty();
  if (model.numel() == 0 || tensor_difference(model, graph).empty()) return true;
  const auto wide = [](const at::Tensor& tensor) {
    return tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj()).to(at::kDouble)
                               : tensor.to(at::kDouble);
  };
  const at::Tensor known = wide(model);
  const bool narrow = c10::elementSize(model.scalar_type()) < sizeof(float);
  const double share = narrow ? 1e-2 : 1e-5;
  const double largest = known.abs().nan_to_num(0, 0, 0).max().item<double>();
  return torch::allclose(wide(graph), known, share, share * largest, /*equal_nan=*/true);
}

/// The results and what the runs left in the attributes.
bool same_ends(const Trace& model, const Trace& graph, const Subject& subject) {
  if (!same_form(model.result_copy, graph.result_copy)) return false;
  std::vector<at::Tensor> of_model, of_graph;
  for_each_tensor(model.result_copy, [&](const at::Tensor& tensor) { of_model.push_back(tensor); });
  for_each_tensor(graph.result_copy, [&](const at::Tensor& tensor) { of_graph.push_back(tensor); });
  const auto after = [&](const Trace& trace, size_t attribute) {
    const auto written = trace.after.find(attribute);
    return written == trace.after.end() ? subject.attributes[attribute].second.tensor : written->second;
  };
  for (size_t i = 0; i < subject.attributes.size(); ++i) {
    if (!model.after.contains(i) && !graph.after.contains(i)) continue;
    of_model.push_back(after(model, i));
    of_graph.push_back(after(graph, i));
  }
  return std::ranges::equal(of_model, of_graph, close);
}

/// The graph's values have no known sizes where the run has others.
void forget_other_sizes(Graph& graph, const Trace& run) {
  std::map<const Node*, const TracedCall*> calls;
  for (const TracedCall& call : run.calls) {
    if (call.node != nullptr) calls[call.node] = &call;
  }
  for (const auto& node : graph.nodes()) {
    const auto call = calls.find(node.get());
    if (call == calls.end()) continue;
    const std::vector<TensorMeta>& metas = call->second->metas;
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      std::optional<TensorMeta>& known = node->output(i)->meta;
      const auto same = [&](const SizeExpr& size, const SizeExpr& seen) {
        return size.at(run.sizes.values) == seen.offset;
      };
      if (known && (i >= metas.size() || !std::ranges::equal(known->sizes, metas[i].sizes, same)))
        known.reset();
    }
  }
}

class FarRuns {
 public:
  FarRuns(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
          const Inputs& inputs, bool trains, Runs& runs, Built near)
      : subject_(subject),
        examples_(examples),
        open_(open),
        inputs_(inputs),
        trains_(trains),
        runs_(runs),
        built_(std::move(near)),
        few_runs_(runs.eval[0].trace.calls.size() > kManyCalls) {}

  Built run() {
    std::vector<std::vector<FarPoint>> lists = far_points(subject_, open_, runs_);
    // Many samples tell more than one.
    if (few_runs_ && open_.example[0] > 0 && lists.size() > 1) std::swap(lists[0], lists[1]);
    for (const std::vector<FarPoint>& list : lists) {
      for (const FarPoint& point : list) {
        if (few_runs_ && *subject_.runs >= kMostRuns) break;
        if (try_at(point)) break;
      }
    }
    for (const auto& [sizes, error] : bent_) check_results(sizes, error);
    return std::move(built_);
  }

 private:
  /// Whether the model can run there.
  bool try_at(const FarPoint& point) {
    std::optional<Trace> eval = ran(point.sizes, false), train;
    if (!eval) return false;
    const bool in_train_mode = trains_ && (point.small || runs_.train.size() > 1);
    // Numbers of train mode that are those of eval mode are looked at once.
    const bool enough = few_runs_ && (*subject_.runs >= kMostRuns || (trained_ && runs_.train.size() == 1));
    if (in_train_mode && !enough) train = ran(point.sizes, true);
    trained_ = trained_ || train;
    const size_t evals = runs_.eval.size(), trains = runs_.train.size();
    try {
      add(std::move(*eval), runs_.eval, runs_.eval[0]);
      if (train) add(std::move(*train), runs_.train, runs_.train[0]);
      Built built = build(subject_, runs_, inputs_);
      if (train) check_train(subject_, runs_, runs_.eval.back(), runs_.train.back());
      built_ = std::move(built);
    } catch (const Error& error) {
      runs_.eval.resize(evals);
      runs_.train.resize(trains);
      bent_.emplace_back(point.sizes, error);
    }
    return true;
  }

  std::vector<at::Tensor> inputs_at(const std::vector<int64_t>& sizes) const {
    return resized(examples_, open_, sizes);
  }

  std::optional<Trace> ran(const std::vector<int64_t>& sizes, bool training) const {
    try {
      return trace(subject_, inputs_at(sizes), open_.at(sizes), {.training = training});
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  void add(Trace run, std::vector<Run>& to, const Run& first) const {
    Run added{.trace = std::move(run), .resolved = {}};
    added.resolved = resolve(added.trace, subject_);
    check_same_calls(subject_, first.trace, added.trace);
    give_up_tensors(added.trace);
    to.push_back(std::move(added));
  }

  /// Whether the graph gives what the model gives is asked with numbers that are not those of the examples,
  /// which may be zeros.
  std::vector<at::Tensor> drawn_at(const std::vector<int64_t>& sizes) const {
    at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/7);
    std::vector<at::Tensor> inputs = inputs_at(sizes);
    for (at::Tensor& input : inputs) {
      if (!input.is_floating_point()) continue;
      const at::Tensor drawn = torch::rand(input.sizes(), generator, torch::kFloat);
      input.copy_(drawn);
    }
    return inputs;
  }

  void check_results(const std::vector<int64_t>& sizes, const Error& error) {
    GraphModule module(built_.graph);
    const Subject graph = replay_of(subject_, module);
    for (const bool training : {false, true}) {
      if (training && !trains_) continue;
      const TraceOptions options{.training = training, .keep = Keep::ends};
      std::optional<Trace> of_model;
      try {
        of_model = trace(subject_, drawn_at(sizes), open_.at(sizes), options);
      } catch (const Error&) {
        continue;  // one sample for a batch norm
      }
      Trace of_graph;
      try {
        of_graph = trace(graph, drawn_at(sizes), open_.at(sizes), options);
      } catch (const Error&) {
        throw error;
      }
      if (without_gradient(*of_model) != without_gradient(of_graph) ||
          !same_ends(*of_model, of_graph, subject_))
        throw error;
      if (!training) forget_other_sizes(*built_.graph, of_graph);
    }
  }

  const Subject& subject_;
  const std::vector<at::Tensor>& examples_;
  const OpenSizes& open_;
  const Inputs& inputs_;
  const bool trains_;
  Runs& runs_;
  Built built_;
  std::vector<std::pair<std::vector<int64_t>, Error>> bent_;
  const bool few_runs_;
  bool trained_ = false;  ///< at some far sizes
};

}  // namespace

Built build_far(const Subject& subject, const std::vector<at::Tensor>& examples, const OpenSizes& open,
                const Inputs& inputs, bool trains, Runs& runs, Built near) {
  for (std::vector<Run>* all : {&runs.eval, &runs.train}) {
    for (Run& run : *all) give_up_tensors(run.trace);
  }
  if (runs.under_autocast) give_up_tensors(*runs.under_autocast);
  if (runs.lowered) give_up_tensors(*runs.lowered);
  return FarRuns(subject, examples, open, inputs, trains, runs, std::move(near)).run();
}

}  // namespace ulp::graph
