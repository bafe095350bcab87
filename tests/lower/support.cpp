#include "support.h"

#include <cmath>
#include <sstream>

#include "ulp/kernels/isa/isa.h"
#include "ulp/lower/evaluate.h"

namespace ulp::test {

using runtime::Plan;
using runtime::Step;

void randomize_batch_norms(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (const auto& module : model.modules()) {
    auto* norm = module->as<torch::nn::BatchNorm2dImpl>();
    if (norm == nullptr) continue;
    norm->running_mean.uniform_(-0.2, 0.2);
    norm->running_var.uniform_(0.5, 1.5);
    norm->weight.uniform_(0.6, 1.2);
    norm->bias.uniform_(-0.2, 0.2);
  }
}

std::map<std::string, at::Tensor> trace_values(const graph::GraphModule& module, const at::Tensor& input) {
  const std::shared_ptr<graph::Graph> copy = module.graph().clone();
  std::vector<std::string> names;
  std::vector<graph::Argument> results;
  for (const auto& node : copy->nodes()) {
    if (node->kind() != graph::Node::Kind::call) continue;
    for (const auto& value : node->outputs()) {
      names.push_back(value->name);
      results.emplace_back(value.get());
    }
  }
  copy->set_output(graph::Argument::tuple(std::move(results)));
  graph::GraphModule probe(copy);
  probe.eval();
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> tensors = probe.forward_all({input});
  std::map<std::string, at::Tensor> values;
  for (size_t i = 0; i < names.size(); ++i) values[names[i]] = tensors.at(i);
  values[copy->inputs().at(0)->name] = input;
  return values;
}

runtime::Activation activation_of(const Step& step) {
  const auto get = [](const auto& own) {
    if constexpr (requires { own.activation; }) return own.activation;
    return runtime::Activation::none;
  };
  return std::visit(get, step.attributes);
}

std::string listing(const Plan& plan) {
  std::ostringstream out;
  for (const Step& step : plan.steps) {
    out << to_string(step.op) << ' ' << step.name << '(';
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      out << (i > 0 ? ", " : "") << plan.tensors[static_cast<size_t>(step.inputs[i])].name;
    }
    out << ')';
    const runtime::Activation activation = activation_of(step);
    if (activation != runtime::Activation::none && !is_smooth_activation(activation))
      out << ' ' << to_string(activation);
    const runtime::TensorInfo& y = plan.tensors[static_cast<size_t>(step.output)];
    out << " -> " << to_string(y.type) << ' ' << y.name << '\n';
  }
  return out.str();
}

Plan only_step(const Plan& plan, size_t index) {
  Plan part;
  part.tensors = plan.tensors;
  Step step = plan.steps.at(index);
  for (const int32_t input : step.inputs) {
    if (std::ranges::find(part.inputs, input) == part.inputs.end()) part.inputs.push_back(input);
  }
  part.outputs = {step.output};
  for (const auto& [role, name] : step.constants) part.constants[name] = plan.constants.at(name);
  part.steps = {std::move(step)};
  return part;
}

void each_run(const runtime::Plan& plan, std::vector<int64_t> item, double spread,
              const std::function<void(const at::Tensor& x, const at::Tensor& got)>& check) {
  item.insert(item.begin(), 0);
  for (const kernels::Isa isa : kernels::available_isas()) {
    SCOPED_TRACE(kernels::to_string(isa));
    runtime::Engine engine(plan, {.threads = 2, .isa = kernels::to_string(isa)});
    for (const int64_t batch : {1, 3, 17}) {
      SCOPED_TRACE(batch);
      item[0] = batch;
      const at::Tensor x = torch::randn(item) * spread;
      check(x, run_engine(engine, x));
    }
  }
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).abs().max() / wide.abs().max()).item<double>();
}

double rounding_bound(const Plan& plan, double product_epsilon, double result_epsilon) {
  constexpr double kSafety = 6;
  double sum = 0;
  for (const Step& step : plan.steps) {
    double products = 1;
    if (const auto weight = step.constants.find("weight"); weight != step.constants.end()) {
      const std::vector<int64_t>& shape = plan.constants.at(weight->second).shape;
      for (size_t d = 1; d < shape.size(); ++d) products *= static_cast<double>(shape[d]);
    }
    sum += product_epsilon * std::sqrt(products) + result_epsilon;
  }
  return kSafety * sum;
}

}  // namespace ulp::test
