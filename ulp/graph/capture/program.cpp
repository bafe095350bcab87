#include "ulp/graph/capture/program.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::graph {

namespace {

thread_local const Node* running = nullptr;

/// Gives the outer run's node back, also when an op throws.
struct RunningNode {
  const Node* outer = running;
  ~RunningNode() { running = outer; }
};

/// An error of LibTorch as one line that names the node.
[[noreturn]] void fail_at(const Node& node, const std::string& what) {
  fail("graph.run", "expected tensors that the call takes, got an error: node ", describe(node), ": ",
       what.substr(0, what.find('\n')));
}

}  // namespace

const Node* running_node() {
  return running;
}

struct Program::Frame {
  std::vector<c10::IValue> slots;
  std::vector<c10::IValue> stack;
  int64_t batch = 0;
  bool training = false;
};

Program::Program(const Graph& graph) : batch_dims_(graph.batch_dims) {
  for (const auto& node : graph.nodes()) {
    for (Value* value : node->reads()) last_reader_[value] = node.get();
  }
  for (const auto& node : graph.nodes()) {
    switch (node->kind()) {
      case Node::Kind::input:
        inputs_.push_back(*node->output());
        slots_[node->output()] = slot_count_++;
        break;
      case Node::Kind::attribute:
        attribute_slots_[node->output()] = static_cast<int32_t>(attributes_.size());
        attributes_.push_back(graph.find_attribute(node->target())->tensor);
        break;
      case Node::Kind::output:
        result_ = compile(node->args[0], nullptr, node.get());
        break;
      default: {
        Step step;
        step.node = node.get();
        const std::vector<c10::Argument>* wanted = nullptr;
        if (node->kind() == Node::Kind::call) {
          const c10::FunctionSchema& schema = node->schema();
          wanted = &schema.arguments();
          step.results = schema.returns().size();
          step.op = c10::Dispatcher::singleton().findSchemaOrThrow(schema.name().c_str(),
                                                                   schema.overload_name().c_str());
          if (node->in_place)
            step.in_place_op =
                c10::Dispatcher::singleton().findSchema({schema.name() + "_", schema.overload_name()});
        } else {
          step.module = graph.modules().at(node->target());
        }
        for (size_t i = 0; i < node->args.size(); ++i)
          step.args.push_back(
              compile(node->args[i], wanted ? (*wanted)[i].type().get() : nullptr, node.get()));
        for (const auto& output : node->outputs()) {
          slots_[output.get()] = slot_count_;
          step.slots.push_back(slot_count_);
          if (!last_reader_.count(output.get())) step.unread.push_back(slot_count_);
          ++slot_count_;
        }
        steps_.push_back(std::move(step));
      }
    }
  }
}

Program::Source Program::compile(const Argument& arg, const c10::Type* type, const Node* reader) {
  Source source;
  bool optional = type && type->kind() == c10::TypeKind::OptionalType;
  if (optional) type = type->containedType(0).get();
  switch (arg.kind) {
    case Argument::Kind::literal:
      source.literal = arg.literal;
      if (arg.literal.isNone() && !optional && type && type->kind() == c10::TypeKind::TensorType)
        source.literal = at::Tensor();
      return source;
    case Argument::Kind::value: {
      auto attribute = attribute_slots_.find(arg.value);
      bool is_attribute = attribute != attribute_slots_.end();
      source.kind = is_attribute ? Source::Kind::attribute : Source::Kind::slot;
      source.index = is_attribute ? attribute->second : slots_.at(arg.value);
      if (is_attribute || last_reader_.at(arg.value) != reader) return source;
      std::vector<Value*> reads = reader->reads();  // moving is for values read once by their last reader
      if (std::count(reads.begin(), reads.end(), arg.value) == 1) source.kind = Source::Kind::last_use;
      return source;
    }
    case Argument::Kind::batch:
      source.kind = Source::Kind::batch;
      source.batch = arg.batch;
      return source;
    case Argument::Kind::training:
      source.kind = Source::Kind::training;
      source.inverted = arg.inverted;
      return source;
    case Argument::Kind::by_mode:
      source.kind = Source::Kind::by_mode;
      for (const Argument& item : arg.items) source.items.push_back(compile(item, type, reader));
      return source;
    default:
      break;
  }
  source.kind = Source::Kind::items;
  const c10::Type* element = nullptr;
  if (arg.kind == Argument::Kind::tuple) {
    source.form = Source::Items::tuple;
  } else if (!type || type->kind() != c10::TypeKind::ListType) {
    source.form = Source::Items::tensors;  // in the output: lists of tensors, or of anything
    for (const Argument& item : arg.items) {
      if (!item.is_value()) source.form = Source::Items::list;
    }
    source.element = c10::AnyType::get();
  } else {
    source.element = type->containedType(0);
    element = source.element.get();
    if (element->kind() == c10::TypeKind::TensorType) source.form = Source::Items::tensors;
    if (element->kind() == c10::TypeKind::OptionalType) source.form = Source::Items::optional_tensors;
    if (element->kind() == c10::TypeKind::IntType || element->kind() == c10::TypeKind::SymIntType)
      source.form = Source::Items::integers;
  }
  for (const Argument& item : arg.items) source.items.push_back(compile(item, element, reader));
  return source;
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
      return source.batch.at(frame.batch);
    case Source::Kind::training:
      return frame.training != source.inverted;
    case Source::Kind::by_mode:
      return source.items[frame.training].literal;
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
  if (mixed && step.in_place_op) {
    stack[0] = self.clone();
    step.in_place_op->callBoxed(stack);
    return;
  }
  step.op->callBoxed(stack);
  at::Tensor result = stack[0].toTensor();
  if (result.scalar_type() != self.scalar_type()) stack[0] = result.to(self.scalar_type());
}

void Program::call(const Step& step, Frame& frame) const {
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

int64_t Program::check_inputs(const std::vector<at::Tensor>& inputs) const {
  if (inputs.size() != inputs_.size())
    fail("graph.run", "expected ", inputs_.size(), " inputs, got ", inputs.size());
  int64_t batch = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& meta = inputs_[i].meta;
    const std::string& name = inputs_[i].name;
    if (!inputs[i].defined()) fail("graph.run", "expected a defined tensor as '", name, "'");
    int64_t dim = batch_dims_[i];
    int64_t rank = meta ? static_cast<int64_t>(meta->sizes.size()) : inputs[i].dim();
    if (inputs[i].dim() != rank || dim >= rank)
      fail("graph.run", "expected '", name, "' with ", rank, " dimensions, got ", inputs[i].sizes());
    if (meta && (at::isFloatingType(meta->dtype) != at::isFloatingType(inputs[i].scalar_type()) ||
                 (meta->dtype == at::kBool) != (inputs[i].scalar_type() == at::kBool))) {
      fail("graph.run", "expected '", name, "' of dtype ", meta->dtype, " or its like, got ",
           inputs[i].scalar_type());
    }
    if (dim >= 0) {
      if (batch >= 0 && inputs[i].size(dim) != batch)
        fail("graph.run", "expected batch size ", batch, " in '", name, "' as in the inputs before it, got ",
             inputs[i].size(dim));
      batch = inputs[i].size(dim);
    }
    for (int64_t d = 0; meta && d < rank; ++d) {
      if (d != dim && inputs[i].size(d) != meta->sizes[d].offset)
        fail("graph.run", "expected size ", meta->sizes[d].offset, " in dimension ", d, " of '", name,
             "', got ", inputs[i].sizes());
    }
  }
  return batch < 0 ? 0 : batch;
}

void Program::run_steps(Frame& frame) const {
  for (const Step& step : steps_) {
    if (step.node->train_only && !frame.training) continue;
    running = step.node;
    frame.stack.clear();
    for (const Source& source : step.args) frame.stack.push_back(load(source, frame));
    call(step, frame);
    store(step, frame);
  }
}

c10::IValue Program::run(const std::vector<at::Tensor>& inputs, bool training) const {
  Frame frame;
  frame.batch = check_inputs(inputs);
  frame.training = training;
  frame.slots.resize(slot_count_);
  for (size_t i = 0; i < inputs.size(); ++i) frame.slots[i] = inputs[i];
  const RunningNode restore;
  try {
    run_steps(frame);
  } catch (const c10::OutOfMemoryError&) {
    throw;  // those who can do with less memory catch it
  } catch (const c10::Error& error) {
    fail_at(*running, error.what_without_backtrace());
  }
  return load(result_, frame);
}

}  // namespace ulp::graph
