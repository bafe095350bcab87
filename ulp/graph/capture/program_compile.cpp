// From nodes to steps with numbered slots.
#include <torch/types.h>

#include <algorithm>

#include "ulp/graph/capture/program.h"
#include "ulp/graph/trusted_arguments.h"

namespace ulp::graph {

Program::Program(const Graph& graph)
    : batch_dims_(graph.batch_dims),
      batch_range_(graph.batch_range),
      free_(graph.free),
      conditions_(conditions_of(graph)) {
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
        has_autocast_ |= node->autocast.has_value();
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
          step.on_a_copy = node->is("aten::copy");
          step.trusts = trusts_arguments(schema);
        } else {
          step.module = graph.modules().at(node->target());
        }
        for (size_t i = 0; i < node->args.size(); ++i)
          step.args.push_back(
              compile(node->args[i], wanted ? (*wanted)[i].type().get() : nullptr, node.get()));
        for (const Value* value : node->reads()) add_read(step, value);
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

void Program::add_read(Step& step, const Value* value) const {
  const auto attribute = attribute_slots_.find(value);
  const bool is_attribute = attribute != attribute_slots_.end();
  std::vector<int32_t>& known = is_attribute ? step.attributes : step.reads;
  const int32_t index = is_attribute ? attribute->second : slots_.at(value);
  if (std::find(known.begin(), known.end(), index) == known.end()) known.push_back(index);
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
    case Argument::Kind::dtype:
      source.kind = Source::Kind::dtype;
      source.items.push_back(compile(arg.items.at(0), nullptr, reader));
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

}  // namespace ulp::graph
