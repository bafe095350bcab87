#include "ulp/graph/capture/program.h"

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/capture/trace.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/trusted_arguments.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::graph {

namespace {

thread_local const Node* running = nullptr;

/// Gives the outer run's node back, also when an op throws.
struct RunningNode {
  const Node* outer = running;
  ~RunningNode() { running = outer; }
};

/// The autocast of one call.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastSetting& wanted)
      : before_{wanted.device, at::autocast::is_autocast_enabled(wanted.device),
                at::autocast::get_autocast_dtype(wanted.device)} {
    set(wanted);
  }
  ~AutocastGuard() { set(before_); }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  static void set(const AutocastSetting& setting) {
    at::autocast::set_autocast_enabled(setting.device, setting.enabled);
    at::autocast::set_autocast_dtype(setting.device, setting.dtype);
  }
  AutocastSetting before_;
};

/// Weights that autocast has cast are kept until the outermost one ends: a run is one.
class AutocastScope {
 public:
  explicit AutocastScope(bool on) : on_(on) {
    if (on_) at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (on_ && at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool on_;
};

/// An error of LibTorch as one line that names the node.
[[noreturn]] void fail_at(const Node& node, const std::string& what) {
  fail({.places = {error_place(node)}}, "graph.run",
       "expected tensors that the call takes, got an error: node ", describe(node), ": ",
       what.substr(0, what.find('\n')));
}

}  // namespace

const Node* running_node() {
  return running;
}

c10::IValue Program::load_items(const Source& source, Frame& frame) const {
  switch (source.form) {
    case Source::Items::tensors: {
      c10::List<at::Tensor> list;
      for (const Source& item : source.items) list.push_back(load(item, frame).toTensor());
      return list;
    }
    case Source::Items::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Source& item : source.items) list.push_back(load(item, frame).toOptional<at::Tensor>());
      return list;
    }
    case Source::Items::integers: {
      c10::List<int64_t> list;
      for (const Source& item : source.items) list.push_back(load(item, frame).toInt());
      return list;
    }
    case Source::Items::list: {
      c10::impl::GenericList list(source.element);
      for (const Source& item : source.items) list.push_back(load(item, frame));
      return list;
    }
    default: {
      std::vector<c10::IValue> elements;
      for (const Source& item : source.items) elements.push_back(load(item, frame));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
  }
}

inline c10::IValue Program::load(const Source& source, Frame& frame) const {
  switch (source.kind) {
    case Source::Kind::literal:
      return source.literal;
    case Source::Kind::slot:
      return frame.slots[source.index];
    case Source::Kind::last_use:
      return std::move(frame.slots[source.index]);
    case Source::Kind::attribute:
      return attributes_[source.index];
    case Source::Kind::batch:
      return source.batch.at(frame.sizes);
    case Source::Kind::training:
      return frame.training != source.inverted;
    case Source::Kind::by_mode:
      return load(source.items[frame.training], frame);
    case Source::Kind::dtype:
      return static_cast<int64_t>(load(source.items[0], frame).toTensor().scalar_type());
    default:
      return load_items(source, frame);
  }
}

/// An in-place op keeps the dtype of its first argument, in the forward and in the backward pass, and
/// autocast stays out of it. The out-of-place form does the same when no dtypes are mixed.
void Program::call_in_place(const Step& step, std::vector<c10::IValue>& stack) const {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::Tensor self = stack[0].toTensor();
  bool mixed = std::any_of(stack.begin() + 1, stack.end(), [&](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() &&
           value.toTensor().scalar_type() != self.scalar_type();
  });
  if ((mixed || step.on_a_copy) && step.in_place_op) {
    stack[0] = self.clone();
    step.in_place_op->callBoxed(stack);
    return;
  }
  step.op->callBoxed(stack);
  at::Tensor result = stack[0].toTensor();
  if (result.scalar_type() != self.scalar_type()) stack[0] = result.to(self.scalar_type());
}

void Program::check_trusted(const Step& step, const std::vector<c10::IValue>& stack) const {
  const std::string expected = distrusted_argument(step.node->schema(), stack);
  if (!expected.empty()) fail("graph.run", "expected ", expected, ": node ", describe(*step.node));
}

void Program::call(const Step& step, Frame& frame) const {
  if (step.trusts) check_trusted(step, frame.stack);
  std::optional<AutocastGuard> autocast;
  if (step.node->autocast) autocast.emplace(*step.node->autocast);
  if (step.module) {
    frame.stack[0] = step.module->forward(frame.stack[0].toTensor());
  } else if (step.node->no_grad) {
    at::AutoGradMode no_grad(false);
    step.node->in_place ? call_in_place(step, frame.stack) : step.op->callBoxed(frame.stack);
  } else if (step.node->in_place) {
    call_in_place(step, frame.stack);
  } else {
    step.op->callBoxed(frame.stack);
  }
}

void Program::store(const Step& step, Frame& frame) const {
  if (frame.stack.size() == step.slots.size() &&
      (frame.stack.size() != 1 || !frame.stack[0].isTensorList())) {
    for (size_t i = 0; i < step.slots.size(); ++i) frame.slots[step.slots[i]] = std::move(frame.stack[i]);
  } else {
    size_t next = 0;
    for (c10::IValue& result : frame.stack) {
      if (!result.isTensorList()) {
        if (next < step.slots.size()) frame.slots[step.slots[next]] = std::move(result);
        ++next;
        continue;
      }
      for (at::Tensor& tensor : result.toTensorVector()) {
        if (next < step.slots.size()) frame.slots[step.slots[next]] = std::move(tensor);
        ++next;
      }
    }
    if (next != step.slots.size()) {
      fail("graph.run", "expected ", step.slots.size(), " tensors from ", describe(*step.node), ", got ",
           next);
    }
  }
  for (int32_t slot : step.unread) frame.slots[slot] = {};
}

/// The size on which all places of the dimension agree.
int64_t Program::free_size(const DynamicDimension& free, const std::vector<at::Tensor>& inputs) const {
  const auto size = [&](const DynamicDimension::InputDimension& place) {
    return inputs[place.input].size(place.dim);
  };
  const int64_t first = size(free.places[0]);
  for (const DynamicDimension::InputDimension& place : free.places) {
    if (size(place) == first) continue;
    fail(ErrorCode::bad_shape, "graph.run", "expected size ", first, " in dimension ", place.dim, " of '",
         inputs_[place.input].name, "', as '", free.name, "' is in '", inputs_[free.places[0].input].name,
         "', got ", size(place));
  }
  free.check(first, "graph.run");
  return first;
}

/// The batch and the free dimensions. The inputs have the dimensions that they should.
std::vector<int64_t> Program::sizes_of(const std::vector<at::Tensor>& inputs) const {
  std::vector<int64_t> sizes{0};
  bool known = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t dim = batch_dims_[i];
    if (dim < 0) continue;
    if (known && inputs[i].size(dim) != sizes[0])
      fail(ErrorCode::bad_shape, "graph.run", "expected batch size ", sizes[0], " in '", inputs_[i].name,
           "' as in the inputs before it, got ", inputs[i].size(dim));
    sizes[0] = inputs[i].size(dim);
    known = true;
  }
  if (known) batch_range_.check(sizes[0], "graph.run");
  for (const DynamicDimension& free : free_) sizes.push_back(free_size(free, inputs));
  return sizes;
}

std::vector<int64_t> Program::check_inputs(const std::vector<at::Tensor>& inputs) const {
  if (inputs.size() != inputs_.size())
    fail(ErrorCode::bad_shape, "graph.run", "expected ", inputs_.size(), " inputs, got ", inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& meta = inputs_[i].meta;
    const std::string& name = inputs_[i].name;
    if (!inputs[i].defined())
      fail(ErrorCode::bad_shape, "graph.run", "expected a defined tensor as '", name, "'");
    const int64_t rank = meta ? static_cast<int64_t>(meta->sizes.size()) : inputs[i].dim();
    if (inputs[i].dim() != rank || batch_dims_[i] >= rank)
      fail(ErrorCode::bad_shape, "graph.run", "expected '", name, "' with ", rank, " dimensions, got ",
           inputs[i].sizes());
    if (meta && (at::isFloatingType(meta->dtype) != at::isFloatingType(inputs[i].scalar_type()) ||
                 (meta->dtype == at::kBool) != (inputs[i].scalar_type() == at::kBool))) {
      fail(ErrorCode::bad_shape, "graph.run", "expected '", name, "' of dtype ", meta->dtype,
           " or its like, got ", inputs[i].scalar_type());
    }
  }
  std::vector<int64_t> sizes = sizes_of(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (int64_t d = 0; inputs_[i].meta && d < inputs[i].dim(); ++d) {
      const int64_t wanted = inputs_[i].meta->sizes[static_cast<size_t>(d)].at(sizes);
      if (d != batch_dims_[i] && inputs[i].size(d) != wanted)
        fail(ErrorCode::bad_shape, "graph.run", "expected size ", wanted, " in dimension ", d, " of '",
             inputs_[i].name, "', got ", inputs[i].sizes());
    }
  }
  return sizes;
}

void Program::load_arguments(size_t step, Frame& frame) const {
  frame.stack.clear();
  for (const Source& source : steps_[step].args) frame.stack.push_back(load(source, frame));
}

void Program::call(size_t step, Frame& frame) const {
  running = steps_[step].node;
  call(steps_[step], frame);
}

void Program::run_steps(Frame& frame) const {
  for (size_t step = 0; step < steps_.size(); ++step) {
    if (is_left_out(step, frame)) continue;
    load_arguments(step, frame);
    call(step, frame);
    store(step, frame);
  }
}

std::vector<at::Tensor> Program::attributes_of(size_t step) const {
  std::vector<at::Tensor> found;
  for (int32_t index : steps_[step].attributes) found.push_back(attributes_[static_cast<size_t>(index)]);
  return found;
}

c10::IValue Program::run(const std::vector<at::Tensor>& inputs, bool training) const {
  return run(inputs, training, [this](Frame& frame) { run_steps(frame); });
}

c10::IValue Program::run(const std::vector<at::Tensor>& inputs, bool training, const Steps& steps) const {
  if (!recording())
    check_conditions(conditions_, training, "graph.run");  // capture itself compares the graph with the model
  Frame frame;
  frame.sizes = check_inputs(inputs);
  frame.training = training;
  frame.slots.resize(slot_count_);
  for (size_t i = 0; i < inputs.size(); ++i) frame.slots[i] = inputs[i];
  run_guarded(frame, steps);
  return load(result_, frame);
}

void Program::run_guarded(Frame& frame, const Steps& steps) const {
  const RunningNode restore;
  const AutocastScope autocast(has_autocast_);
  try {
    steps(frame);
  } catch (const c10::OutOfMemoryError&) {
    throw;  // those who can do with less memory catch it
  } catch (const c10::Error& error) {
    if (!running) throw;
    fail_at(*running, error.what_without_backtrace());
  }
}

}  // namespace ulp::graph
