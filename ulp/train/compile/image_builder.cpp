// Parts of the builder for rules of images: convolutions and pools of the plan, and the ends of batch norms.
#include <ATen/core/Tensor.h>

#include <cmath>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

int Builder::conv_weight(const graph::Node& node, std::string_view argument) {
  const int found = found_matrix(node, node.arg(argument));
  if (at(found).home != Home::outside || sizes(node, argument).size() != 4)
    refuse(node, "expected '", argument, "' to be a parameter or buffer of four dimensions, got another one");
  return found;
}

int Builder::add_conv(const kernels::StepConv& conv, int weight, int64_t inputs,
                      const kernels::ConvWords& words) {
  PlannedConv planned{conv, inputs * conv.taps(), conv.taps(), 1, words};
  const auto held = outside_of_.find(weight);
  if (held != outside_of_.end() && built_.outside[held->second].channels_last) {
    planned.input_step = 1;
    planned.tap_step = inputs;
  }
  built_.plan.convs.push_back(planned);
  return static_cast<int>(built_.plan.convs.size()) - 1;
}

int Builder::words_of(int images) {
  const auto cached = words_of_.find(images);
  if (cached != words_of_.end()) return cached->second;
  const PlanMatrix of = at(images);
  const int made = make(of.rows, (of.width + word_numbers_ - 1) / word_numbers_);
  emit({.op = Op::to_words, .out = made, .a = images});
  return words_of_[images] = made;
}

int Builder::add_pool(const kernels::StepPool& pool) {
  built_.plan.pools.push_back(pool);
  return static_cast<int>(built_.plan.pools.size()) - 1;
}

void Builder::add_count(const graph::Node& node, RowCount numbers) {
  if (node.output()->meta && node.output()->meta->dtype == at::kLong)
    built_.counted.push_back({node.name(), numbers});
}

void Builder::add_least_rows(const graph::Node& node, RowCount rows) {
  built_.least_rows.push_back({node.name(), rows});
}

void Builder::add_counter(const graph::Node& node, const graph::Argument& counter,
                          std::optional<double> step) {
  const at::Tensor held = counter.is_value() ? graph_.attribute_tensor(counter.value) : at::Tensor();
  if (!held.defined() || held.scalar_type() != at::kLong || held.numel() != 1 || !held.device().is_cpu() ||
      !step || *step != std::floor(*step))
    refuse(node, "expected a whole number added to a buffer of one int64, got another sum in place");
  built_.counters.push_back({counter.value->producer->target(), held, static_cast<int64_t>(*step)});
}

std::shared_ptr<kernels::NormFinish> Builder::add_norm_end(int y) {
  return norm_ends_[y] = std::make_shared<kernels::NormFinish>(kernels::NormFinish::none);
}

bool Builder::end_norm(int x, int y, kernels::NormFinish finish) {
  Instruction* before = last_writer(x);
  if (before == nullptr || before->op != Op::norm_apply || before->norm_finish != kernels::NormFinish::none ||
      !read_once(x))
    return false;
  const auto end = norm_ends_.find(x);
  const bool sum = before->c >= 0;
  if (sum ? finish != kernels::NormFinish::relu : end == norm_ends_.end()) return false;
  before->out = y;
  before->norm_finish = finish;
  if (sum) {  // the gradient goes to both by the values
    on_backward(y, [this, x, y](int gradient) {
      contribute(x, false, [&](int out, bool) {
        emit({.op = Op::gradient,
              .out = out,
              .a = gradient,
              .c = y,
              .function = kernels::Differentiable::relu});
      });
    });
    return true;
  }
  *end->second = finish;
  on_backward(y, [this, x](int gradient) { pass_on(x, gradient); });
  return true;
}

bool Builder::end_norm_by_sum(int a, int b, int y) {
  if (a == b) return false;
  for (const auto& [own, other] : {std::pair{a, b}, std::pair{b, a}}) {
    Instruction* before = last_writer(own);
    if (before == nullptr || before->op != Op::norm_apply || before->c >= 0 ||
        before->norm_finish != kernels::NormFinish::none || !norm_ends_.contains(own) || !read_once(own))
      continue;
    before->out = y;
    before->c = other;
    return true;
  }
  return false;
}

}  // namespace ulp::train::compiled
