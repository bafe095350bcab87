#include "ulp/graph/capture/builder.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <span>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/functional.h"
#include "ulp/graph/capture/merge.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/capture/scope.h"

namespace ulp::graph {

namespace {

class GraphBuilder {
 public:
  GraphBuilder(const Subject& subject, const Runs& runs)
      : subject_(subject),
        runs_(runs),
        eval_of_train_(runs.eval_of_train),
        merger_(runs.grid, [this](const std::vector<Candidates>& offers, bool both_modes,
                                  const std::string& where) { return pick(offers, both_modes, where); }) {}

  Built run(const Inputs& inputs) {
    built_.eval.resize(eval_count());
    built_.train.resize(runs_.train[0].trace.calls.size());
    add_inputs(inputs);
    for (const auto& [name, attribute] : subject_.attributes) graph_->set_attribute(name, attribute);
    for (const Run& run : runs_.train) train_.push_back(translated(run.resolved));
    find_needed();
    int32_t next_eval = 0;  // calls that only eval mode makes stand before the next one that both make
    for (size_t i = 0; i < runs_.train[0].trace.calls.size(); ++i) {
      const int32_t eval = eval_of_train_[i];
      for (; next_eval < eval; ++next_eval) add_call({next_eval, -1});
      if (eval >= 0) ++next_eval;
      add_call({eval, static_cast<int32_t>(i)});
    }
    for (; next_eval < static_cast<int32_t>(eval_count()); ++next_eval) add_call({next_eval, -1});
    add_result();
    graph_->remove_dead();
    graph_->verify();
    forget_dead_nodes();
    built_.graph = graph_;
    return std::move(built_);
  }

 private:
  size_t eval_count() const { return runs_.eval[0].trace.calls.size(); }

  void add_inputs(const Inputs& inputs) {
    for (size_t i = 0; i < inputs.names.size(); ++i) {
      Value* value = graph_->add_input(inputs.names[i], inputs.batch_dims[i]);
      std::vector<TensorMeta> metas;
      for (const Run& run : runs_.eval) metas.push_back(meta_of(run.trace.inputs[i]));
      value->meta = merge_metas(metas, runs_.eval, runs_.near);
      values_[{ValueKey::Kind::input, static_cast<int32_t>(i), 0}] = value;
    }
    graph_->batch_range = inputs.batch_range;
    graph_->free = inputs.free;
  }

  /// `runs`: those that saw the values, of which the first `near` are not far.
  std::optional<TensorMeta> merge_metas(const std::vector<TensorMeta>& metas, const std::vector<Run>& runs,
                                        size_t near) const {
    TensorMeta result = metas[0];
    std::vector<std::vector<int64_t>> points;
    std::vector<const TensorMeta*> same_rank;
    for (size_t i = 0; i < metas.size(); ++i) {
      const RunSizes& sizes = runs[i].trace.sizes;
      const bool far = i >= near;
      if (metas[i].dtype != result.dtype) return std::nullopt;
      if (metas[i].sizes.size() != result.sizes.size()) {
        // A squeeze() takes away the batch of one sample: the other sizes say what there is.
        if (far && sizes.values[0] == 1) continue;
        return std::nullopt;
      }
      if (!far) result.channels_last &= metas[i].channels_last;
      same_rank.push_back(&metas[i]);
      points.push_back(sizes.values);
    }
    for (size_t d = 0; d < result.sizes.size(); ++d) {
      std::vector<int64_t> sizes;
      for (const TensorMeta* meta : same_rank) sizes.push_back(meta->sizes[d].offset);
      auto expr = fit(runs_.grid, points, sizes);
      if (!expr) return std::nullopt;
      result.sizes[d] = *expr;
    }
    return result;
  }

  /// From here on the train run's keys count calls as the eval runs do; calls of its own come behind.
  int32_t translated(int32_t train_call) const {
    if (train_call < 0) return train_call;
    int32_t eval = eval_of_train_[train_call];
    return eval >= 0 ? eval : static_cast<int32_t>(eval_count()) + train_call;
  }

  ValueKey translated(ValueKey key) const {
    if (key.kind == ValueKey::Kind::call || key.kind == ValueKey::Kind::constant)
      key.index = translated(key.index);
    return key;
  }

  Resolved translated(Resolved resolved) const {
    const auto translate = [&](std::vector<Candidates>& tensors) {
      for (Candidates& keys : tensors) {
        for (ValueKey& key : keys) key = translated(key);
      }
    };
    for (ResolvedCall& call : resolved.calls) translate(call.tensors);
    translate(resolved.result);
    std::map<ValueKey, at::Tensor> constants;
    for (const auto& [key, tensor] : resolved.constants) constants[translated(key)] = tensor;
    resolved.constants = std::move(constants);
    return resolved;
  }

  static void add_calls(const std::vector<Candidates>& tensors, std::vector<int32_t>& calls) {
    for (const Candidates& keys : tensors) {
      for (const ValueKey& key : keys) {
        if (key.kind == ValueKey::Kind::call) calls.push_back(key.index);
      }
    }
  }

  static bool gives_scalars(const TracedCall& call) {
    return std::ranges::all_of(call.metas, [](const TensorMeta& meta) { return meta.sizes.empty(); });
  }

  /// All calls but those of numbers and scalar tensors that nothing depends on: a traced file computes sizes
  /// with tensors, which change from run to run.
  void find_needed() {
    const size_t evals = eval_count(), trains = runs_.train[0].trace.calls.size();
    std::vector<std::vector<int32_t>> reads(evals + trains);
    std::vector<int32_t> open;
    const auto gather = [&](const Resolved& resolved, const Trace& trace, const auto& index_of) {
      add_calls(resolved.result, open);
      for (size_t i = 0; i < resolved.calls.size(); ++i) {
        const c10::FunctionSchema& schema = *trace.calls[i].schema;
        const int32_t call = index_of(static_cast<int32_t>(i));
        add_calls(resolved.calls[i].tensors, reads[call]);
        if (schema.is_mutable() || is_random(schema) || !gives_scalars(trace.calls[i])) open.push_back(call);
      }
    };
    for (const Run& run : runs_.eval) gather(run.resolved, run.trace, [](int32_t i) { return i; });
    for (size_t r = 0; r < train_.size(); ++r)
      gather(train_[r], runs_.train[r].trace, [&](int32_t i) { return translated(i); });
    needed_.assign(reads.size(), false);
    while (!open.empty()) {
      const int32_t call = open.back();
      open.pop_back();
      if (needed_[call]) continue;
      needed_[call] = true;
      open.insert(open.end(), reads[call].begin(), reads[call].end());
    }
  }

  /// The latest value that all offers have, or null.
  Value* common(std::span<const Candidates> offers, const std::string& where) {
    for (auto key = offers[0].rbegin(); key != offers[0].rend(); ++key) {
      const bool everywhere = std::all_of(offers.begin(), offers.end(), [&](const Candidates& keys) {
        return std::find(keys.begin(), keys.end(), *key) != keys.end();
      });
      if (everywhere) return value(*key, where);
    }
    return nullptr;
  }

  /// `both_modes`: the last offer is that of the run in train mode.
  Value* pick(const std::vector<Candidates>& offers, bool both_modes, const std::string& where) {
    if (Value* found = common(offers, where)) return found;
    const std::span<const Candidates> all(offers);
    Value* eval = both_modes ? common(all.first(all.size() - 1), where) : nullptr;
    Value* train = both_modes ? common(all.last(1), where) : nullptr;
    if (eval == nullptr || train == nullptr) {
      fail("graph.capture", where, " is a different tensor in some of the runs");
    }
    Value*& chosen = by_mode_[{eval, train}];
    if (chosen == nullptr) {
      Node* node = graph_->call("ulp::by_mode", {eval, train, Argument::training_flag()});
      node->output()->meta = eval->meta;
      set_scope(*node);
      chosen = node->output();
    }
    return chosen;
  }

  Value* value(const ValueKey& key, const std::string& where) {
    if (key.kind == ValueKey::Kind::attribute) return graph_->attribute(subject_.attributes[key.index].first);
    auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (key.kind != ValueKey::Kind::constant) fail("graph.capture", where, " is not known at this point");
    return values_[key] = constant(key, where);
  }

  Value* constant(const ValueKey& key, const std::string& where) {
    std::vector<at::Tensor> seen;
    for (const Resolved& train : train_) {
      if (const auto found = train.constants.find(key); found != train.constants.end())
        seen.push_back(found->second);
    }
    for (const Run& run : runs_.eval) {
      auto found = run.resolved.constants.find(key);
      if (found != run.resolved.constants.end()) seen.push_back(found->second);
    }
    for (const at::Tensor& tensor : seen) {
      if (tensor.sizes() == seen[0].sizes() && tensor.scalar_type() == seen[0].scalar_type() &&
          (tensor.is_same(seen[0]) || torch::equal(tensor, seen[0])))
        continue;
      throw ChangedConstant("[graph.capture] " + where +
                            " is a tensor made outside of recorded operations, and it changes between runs");
    }
    std::string name;  // a file that was written from a graph has such names
    do name = "_constant" + std::to_string(constants_++);
    while (graph_->find_attribute(name) != nullptr);
    graph_->set_attribute(name, {Attribute::Kind::constant, seen.back()});
    return graph_->attribute(name);
  }

  /// Where a call is in the runs of each mode; -1 where the mode does not make it.
  struct Place {
    int32_t eval = -1, train = -1;
  };

  /// What each run saw of a call.
  void add_call(const Place& place) {
    const bool in_eval = place.eval >= 0, in_train = place.train >= 0;
    std::vector<const Run*> runs;
    for (size_t r = 0; in_eval && r < runs_.eval.size(); ++r) runs.push_back(&runs_.eval[r]);
    const TracedCall& call =
        in_train ? runs_.train[0].trace.calls[place.train] : runs_.eval[0].trace.calls[place.eval];
    if (in_eval) check_numbers(place.eval);
    // Where numbers go, they are arguments like any other number.
    if (gives_numbers_only(call) || !needed_[in_eval ? place.eval : translated(place.train)]) return;
    bool functional = in_train && train_[0].calls[place.train].functional;
    for (const Run* run : runs) functional |= run->resolved.calls[place.eval].functional;
    std::vector<Argument> args;
    size_t leaf = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      std::vector<Sighting> seen;
      for (const Run* run : runs) {
        seen.push_back({&run->trace.calls[place.eval].inputs[i], &run->resolved.calls[place.eval].tensors,
                        &run->trace.sizes, false});
      }
      const size_t trains =
          in_eval ? 1 : runs_.train.size();  // numbers that follow the batch show in eval mode
      for (size_t r = 0; in_train && r < trains; ++r) {
        const Trace& train = runs_.train[r].trace;
        seen.push_back(
            {&train.calls[place.train].inputs[i], &train_[r].calls[place.train].tensors, &train.sizes, true});
      }
      args.push_back(merger_.merge(seen, leaf, where(call, i, place.eval)));
      if (in_eval && runs_.lowered) follow_dtype(args.back(), place.eval, i, in_train);
    }
    Node* node = graph_->call(functional ? functional_target(call) : call.target, std::move(args));
    node->in_place = functional;
    node->no_grad = !call.grad;
    node->train_only = !in_eval;
    node->eval_only = !in_train;
    node->autocast = autocast_of(place, call);
    if (in_eval) built_.eval[place.eval] = node;
    if (in_train) built_.train[place.train] = node;
    register_outputs(node, call, in_eval ? place.eval : translated(place.train));
    if (in_eval) set_metas(node, runs_.eval, place.eval, runs_.near);
    // One run in train mode does not say what follows the batch.
    if (!in_eval && runs_.near_train == runs_.near)
      set_metas(node, runs_.train, place.train, runs_.near_train);
    set_scope(*node);
  }

  /// Products, which every autocast lowers; other ops keep fp32 on some devices and under some policies.
  static bool is_product(const TracedCall& call) {
    static constexpr std::string_view kProducts[] = {"aten::linear",
                                                     "aten::addmm",
                                                     "aten::mm",
                                                     "aten::matmul",
                                                     "aten::bmm",
                                                     "aten::baddbmm",
                                                     "aten::conv1d",
                                                     "aten::conv2d",
                                                     "aten::conv3d",
                                                     "aten::_convolution",
                                                     "aten::convolution",
                                                     "aten::conv_transpose1d",
                                                     "aten::conv_transpose2d",
                                                     "aten::conv_transpose3d"};
    const std::string_view op = std::string_view(call.target).substr(0, call.target.find('.'));
    return std::ranges::find(kProducts, op) != std::end(kProducts);
  }

  /// A type that is lower under autocast was read from a value that is: the latest product of these, or else
  /// the latest value. `in_train`: the call is one of both modes.
  void follow_dtype(Argument& arg, int32_t index, size_t position, bool in_train) const {
    const Trace &plain = runs_.eval[0].trace, &lowered = *runs_.lowered;
    const c10::IValue &before = plain.calls[index].inputs[position],
                      &after = lowered.calls[index].inputs[position];
    if (!is_dtype(plain.calls[index].schema->arguments()[position])) return;
    if (!before.isInt() || !after.isInt() || before.toInt() == after.toInt()) return;
    const auto is = [](const TensorMeta& meta, const c10::IValue& type) {
      return static_cast<int64_t>(meta.dtype) == type.toInt();
    };
    for (int32_t i = index - 1; i >= 0; --i) {
      const std::vector<TensorMeta>&full = plain.calls[i].metas, &low = lowered.calls[i].metas;
      for (size_t k = 0; k < std::min(full.size(), low.size()); ++k) {
        const auto found = values_.find({ValueKey::Kind::call, i, static_cast<int32_t>(k)});
        const bool alone = found != values_.end() && found->second->producer->outputs().size() == full.size();
        if (!alone || !is(full[k], before) || !is(low[k], after)) continue;
        if (in_train && found->second->producer->eval_only) continue;
        const bool product = is_product(plain.calls[i]);
        if (product || arg.kind != Argument::Kind::dtype) arg = Argument::dtype_of(found->second, before);
        if (product) return;
      }
    }
  }

  /// The setting of a guard of the model's own: autocast that is on where the caller had none, or off where
  /// the caller had one.
  std::optional<AutocastSetting> autocast_of(const Place& place, const TracedCall& call) const {
    if (call.autocast.enabled) return call.autocast;
    const bool opted_out =
        place.eval >= 0 && runs_.under_autocast && !runs_.under_autocast->calls[place.eval].autocast.enabled;
    return opted_out ? std::optional(call.autocast) : std::nullopt;
  }

  static bool gives_numbers_only(const TracedCall& call) {
    if (call.schema->is_mutable() || call.outputs.empty()) return false;
    return std::none_of(call.outputs.begin(), call.outputs.end(),
                        [](const c10::IValue& output) { return output.isTensor() || output.isList(); });
  }

  static std::string where(const TracedCall& call, size_t argument, int32_t index) {
    std::string text = "argument '" + call.schema->arguments()[argument].name() + "' of " + call.target;
    return index < 0 ? text + " (train mode)" : text + " (call " + std::to_string(index) + ")";
  }

  /// Numbers that operators return must not change, unless they are sizes.
  void check_numbers(int32_t index) const {
    const auto& first = runs_.eval[0].trace.calls[index];
    for (const Run& run : runs_.eval) {
      const auto& outputs = run.trace.calls[index].outputs;
      for (size_t i = 0; i < outputs.size() && i < first.outputs.size(); ++i) {
        bool number = outputs[i].isDouble() || outputs[i].isBool();
        if (number && !(outputs[i] == first.outputs[i])) {
          fail("graph.capture", "data-dependent result of ", first.target, " (call ", index,
               "): it changes between runs");
        }
      }
    }
  }

  void register_outputs(Node* node, const TracedCall& call, int32_t index) {
    size_t count = 0;
    for (const c10::IValue& output : call.outputs) {
      if (!output.isTensor() && !output.isList()) ++count;
      for_each_tensor(output, [&](const at::Tensor&) { ++count; });
    }
    if (call.schema->returns().size() == node->schema().returns().size())
      graph_->set_output_count(node, count);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      values_[{ValueKey::Kind::call, index, static_cast<int32_t>(i)}] = node->output(i);
    }
  }

  void set_metas(Node* node, const std::vector<Run>& runs, int32_t index, size_t near) const {
    size_t count = runs[0].trace.calls[index].metas.size();
    if (count != node->outputs().size()) return;  // results that are no tensors
    for (size_t i = 0; i < count; ++i) {
      std::vector<TensorMeta> metas;
      for (const Run& run : runs) {
        if (run.trace.calls[index].metas.size() == count) metas.push_back(run.trace.calls[index].metas[i]);
      }
      if (metas.size() == runs.size()) node->output(i)->meta = merge_metas(metas, runs, near);
    }
  }

  /// One result for both modes, or one for each where they have not the same items.
  void add_result() {
    std::vector<Sighting> eval, train;
    for (const Run& run : runs_.eval)
      eval.push_back({&run.trace.result, &run.resolved.result, &run.trace.sizes, false});
    for (size_t r = 0; r < runs_.train.size(); ++r) {
      const Trace& trace = runs_.train[r].trace;
      train.push_back({&trace.result, &train_[r].result, &trace.sizes, true});
    }
    if (same_form(*eval[0].value, *train[0].value)) {
      eval.push_back(train[0]);
      return graph_->set_output(merge_result(eval));
    }
    Argument result;
    result.kind = Argument::Kind::by_mode;
    result.items = {merge_result(eval), merge_result(train)};
    graph_->set_output(std::move(result));
  }

  Argument merge_result(const std::vector<Sighting>& seen) const {
    size_t leaf = 0;
    return merger_.merge(seen, leaf, "the result of forward");
  }

  void forget_dead_nodes() {
    std::unordered_set<const Node*> alive;
    for (const auto& node : graph_->nodes()) alive.insert(node.get());
    for (std::vector<const Node*>* nodes : {&built_.eval, &built_.train}) {
      for (const Node*& node : *nodes) {
        if (!alive.contains(node)) node = nullptr;
      }
    }
  }

  const Subject& subject_;
  const Runs& runs_;
  const std::vector<int32_t>& eval_of_train_;
  Merger merger_;
  std::vector<Resolved> train_;  ///< of each train run, keys as in the eval runs
  std::vector<bool> needed_;     ///< of each call, counted as in the eval runs
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::map<ValueKey, Value*> values_;
  std::map<std::pair<Value*, Value*>, Value*> by_mode_;
  int constants_ = 0;
  Built built_;
};

}  // namespace

Built build(const Subject& subject, const Runs& runs, const Inputs& inputs) {
  return GraphBuilder(subject, runs).run(inputs);
}

}  // namespace ulp::graph
