#include "int8_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ulp/lower/evaluate.h"

namespace ulp::test {

using runtime::DataType;
using runtime::Op;
using runtime::TensorInfo;

namespace {

/// The graph's tensor in the form in which the plan holds it; codes when the graph has real numbers there.
at::Tensor in_form(const at::Tensor& value, const TensorInfo& form) {
  if (value.scalar_type() == at::kBool) return torch::where(value, 0.0F, -INFINITY).to(at::kFloat);  // a mask
  if (form.type != DataType::u8 || value.scalar_type() == at::kByte) return value;
  if (value.scalar_type() == at::kChar) return value.to(at::kShort).add(128).to(at::kByte);
  return (value / form.scale).round().add(form.zero_point).clamp(0, 255).to(at::kByte);
}

/// What the graph calls this tensor of the plan: one in another layout, or made f32 (of codes: the graph's
/// `_dq`), has the name of the value with that added.
std::string name_in_graph(std::string name) {
  const auto strip = [&](const std::string& suffix) {
    const bool has = name.ends_with(suffix);
    if (has) name.resize(name.size() - suffix.size());
    return has;
  };
  if (!strip(".nchw")) strip(".nhwc");
  if (strip(".f32") && strip("_q")) name += "_dq";
  return name;
}

bool is_mean(Op op) {
  return op == Op::avg_pool || op == Op::global_avg_pool;
}

}  // namespace

const TensorInfo& info(const runtime::Plan& plan, int32_t tensor) {
  return plan.tensors[static_cast<size_t>(tensor)];
}

void Distance::add(const at::Tensor& a, const at::Tensor& b, double step) {
  const at::Tensor steps = (a.to(at::kDouble) - b.to(at::kDouble)).abs() / step;
  elements += steps.numel();
  different += (steps > 0.5).sum().item<int64_t>();
  largest = std::max(largest, steps.max().item<double>());
}

double step_of_sum(const runtime::Plan& plan, const runtime::Step& step) {
  const runtime::Constant& scales = plan.constants.at(step.constants.at("weight_scale"));
  const auto* data = reinterpret_cast<const float*>(scales.bytes.data());
  const auto count = static_cast<int64_t>(scales.bytes.size() / sizeof(float));
  return info(plan, step.inputs[0]).scale * *std::max_element(data, data + count);
}

std::string expect_steps_as_graph(const graph::GraphModule& module, const runtime::Plan& plan,
                                  const at::Tensor& input) {
  const std::map<std::string, at::Tensor> values = trace_values(module, input);
  std::pair<double, std::string> worst;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const runtime::Step& step = plan.steps[i];
    const bool floats = step.op == Op::attention && info(plan, step.inputs[0]).type != DataType::u8;
    if (floats || step.op == Op::token_mask) continue;
    const runtime::Plan part = only_step(plan, i);
    const TensorInfo& y = info(plan, part.outputs[0]);
    std::vector<at::Tensor> inputs;
    for (const int32_t index : part.inputs) {
      const auto value = values.find(name_in_graph(info(plan, index).name));
      if (value == values.end()) {
        ADD_FAILURE() << info(plan, index).name << " is not in the graph\n" << listing(plan);
        return "";
      }
      inputs.push_back(in_form(value->second, info(plan, index)));
    }
    const auto value = values.find(name_in_graph(y.name));
    if (value == values.end()) {
      ADD_FAILURE() << y.name << " is not in the graph\n" << listing(plan);
      return "";
    }
    const at::Tensor expected = in_form(value->second, y);
    runtime::Engine engine(part);
    const at::Tensor result = run_engine_all(engine, inputs).at(0);
    const bool codes = y.type == DataType::u8;
    if (!codes && !step.constants.contains("weight_scale")) {
      EXPECT_LE(relative_error(result, expected), 1e-5) << y.name;
      continue;
    }
    Distance distance;
    distance.add(result, expected, codes ? 1.0 : step_of_sum(plan, step));
    EXPECT_LE(distance.largest, 1) << y.name;
    if (step.op == Op::resize_bilinear) continue;
    const double few = std::max(1.0, 0.001 * static_cast<double>(distance.elements));
    EXPECT_LE(distance.different, is_mean(step.op) ? 0.0 : few) << y.name;
    if (distance.share() > worst.first) worst = {distance.share(), y.name};
  }
  return std::to_string(worst.first) + " " + worst.second;
}

}  // namespace ulp::test
