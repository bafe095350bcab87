#include "ulp/quant/weights/layer_inputs.h"

#include <torch/utils.h>

#include <algorithm>

namespace ulp::quant {

using graph::Node;
using graph::Program;

LayerInputs::LayerInputs(const graph::Graph& graph, const CalibrationData& data, bool recompute)
    : graph_(graph.clone()), data_(data), recompute_(recompute) {
  const std::vector<std::pair<std::string, graph::Attribute>> attributes = graph_->attributes();
  for (const auto& [name, attribute] : attributes) {
    const at::Tensor own = attribute.tensor.detach();
    weights_[name] = own;
    graph_->set_attribute(name, {attribute.kind, own});
  }
  program_ = std::make_shared<const Program>(*graph_);
  for (size_t step = 0; step < program_->step_count(); ++step) {
    const Node& node = program_->node(step);
    steps_[node.name()] = step;
    for (const graph::Value* value : node.reads()) {
      if (value->producer->kind() == Node::Kind::attribute) last_read_[value->producer->target()] = step;
    }
  }
}

Program::Frame LayerInputs::start(const std::vector<at::Tensor>& inputs) const {
  Program::Frame frame;
  frame.sizes = program_->check_inputs(inputs);
  frame.slots.resize(program_->slot_count());
  std::ranges::copy(inputs, frame.slots.begin());
  return frame;
}

void LayerInputs::run(Program::Frame& frame, size_t from, size_t to) const {
  program_->run_guarded(frame, [&](Program::Frame& inside) {
    for (size_t step = from; step < to; ++step) {
      if (program_->is_left_out(step, inside)) continue;
      program_->load_arguments(step, inside);
      program_->call(step, inside);
      program_->store(step, inside);
    }
  });
}

void LayerInputs::look(const Node& layer, FunctionRef<void(const at::Tensor& input)> use,
                       const std::string& before) {
  const size_t own = steps_.at(layer.name()), step = before.empty() ? own : steps_.at(before);
  const auto slot = static_cast<size_t>(program_->slot_of(program_->node(own).arg("input").value));
  if (recompute_ || !started_) {
    data_([&](const std::vector<at::Tensor>& inputs) {
      const at::NoGradGuard no_grad;
      Program::Frame frame = start(inputs);
      run(frame, 0, step);
      use(frame.slots[slot].toTensor());
      if (!recompute_) frames_.push_back(std::move(frame));
    });
  } else {
    for (Program::Frame& frame : frames_) {
      run(frame, done_, step);
      use(frame.slots[slot].toTensor());
    }
  }
  started_ = true;
  done_ = step;
  if (!recompute_) release(step);
}

void LayerInputs::replace(const std::string& weight, const at::Tensor& values) {
  at::Tensor& own = weights_.at(weight);
  own.set_data(values.to(own.scalar_type()));
  replaced_.push_back(weight);
}

/// Weights that no later step reads need no memory.
void LayerInputs::release(size_t step) {
  std::erase_if(replaced_, [&](const std::string& name) {
    if (last_read_.at(name) >= step) return false;
    weights_.at(name).set_data(at::empty({0}, weights_.at(name).options()));
    return true;
  });
}

}  // namespace ulp::quant
