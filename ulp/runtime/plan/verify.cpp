#include "ulp/runtime/plan/verify.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/plan_specializer.h"
#include "ulp/runtime/plan/verified_plan.h"

namespace ulp::runtime {
namespace {

template <typename... Parts>
[[noreturn]] void tensor_problem(size_t index, const TensorInfo& tensor, const Parts&... parts) {
  problem("tensor ", index, " '", tensor.name, "': ", parts...);
}

void check_tensor(size_t index, const TensorInfo& tensor) {
  if (!is_known(tensor.type)) tensor_problem(index, tensor, "unknown type");
  if (!is_stored(tensor.type))
    tensor_problem(index, tensor, "plans have no tensors of ", to_string(tensor.type));
  if (tensor.shape.empty() || tensor.shape.size() > kMaxRank) {
    tensor_problem(index, tensor, "expected 1 to ", kMaxRank, " dimensions, got ", tensor.shape.size());
  }
  if (std::ranges::count(tensor.shape, kBatch) > 1)
    tensor_problem(index, tensor, "only one dimension may be the batch");
  const bool has_batch = batch_dimension(tensor).has_value();
  if (tensor.times < 1 || tensor.outer < 1 || (tensor.times > 1 && !has_batch) ||
      tensor.times % tensor.outer != 0)
    tensor_problem(index, tensor, "expected rows of a dimension that is the batch, got times ", tensor.times,
                   " and outer ", tensor.outer);
  const int64_t counted[] = {checked_elements(tensor.shape), tensor.times};
  if (counted[0] < 0 || checked_elements(counted) < 0) {
    tensor_problem(index, tensor, "expected sizes >= 1 with at most ", kMaxElements,
                   " elements per item, got ", shape_text(tensor.shape));
  }
  if (static_cast<int>(tensor.layout) >= kLayoutCount ||
      (tensor.layout == Layout::nhwc && tensor.shape.size() != 4 && tensor.shape.size() != 5)) {
    tensor_problem(index, tensor, "expected layout nhwc only on 4 or 5 dimensions, got ",
                   shape_text(tensor.shape));
  }
  if (!std::isfinite(tensor.scale) || tensor.scale <= 0) {
    tensor_problem(index, tensor, "expected a finite scale > 0, got ", tensor.scale);
  }
  const bool u8 = tensor.type == DataType::u8;
  if (u8 && (tensor.zero_point < 0 || tensor.zero_point > 255)) {
    tensor_problem(index, tensor, "expected a zero point in [0, 255], got ", tensor.zero_point);
  }
  if (!u8 && (tensor.scale != 1.0F || tensor.zero_point != 0)) {
    tensor_problem(index, tensor, "scale and zero point are for u8, got them on ", to_string(tensor.type));
  }
}

void check_constant(const std::string& name, const Constant& constant) {
  if (!is_known(constant.type)) problem("constant '", name, "': unknown type");
  if (!is_stored(constant.type)) {
    problem("constant '", name, "': plans do not store ", to_string(constant.type));
  }
  const int64_t elements = constant.shape.size() > kMaxRank ? -1 : checked_elements(constant.shape);
  if (elements < 0 || std::ranges::count(constant.shape, kBatch) > 0) {
    problem("constant '", name, "': expected sizes >= 1 with at most ", kMaxElements, " elements, got ",
            shape_text(constant.shape));
  }
  const size_t bytes = static_cast<size_t>(elements * element_bytes(constant.type));
  if (constant.bytes.size() != bytes) {
    problem("constant '", name, "': expected ", bytes, " bytes for ", to_string(constant.type), " ",
            shape_text(constant.shape), ", got ", constant.bytes.size());
  }
}

/// The step holds the attributes of its op, inside the limits that they describe.
void check_attributes(const StepView& view) {
  const Attributes& held = view.step().attributes;
  if (held.index() != default_attributes(view.step().op).index()) {
    view.fail("expected the attributes of its op, got those of another");
  }
  const std::string found = std::visit([](const auto& own) { return limit_problem(own); }, held);
  if (!found.empty()) view.fail(found);
}

void check_roles(const StepView& view, const OpDef& def) {
  for (const auto& [role, name] : view.step().constants) {
    const std::string& word = role;
    if (std::ranges::none_of(def.roles, [&](const char* known) { return word == known; })) {
      view.fail("has a constant of unknown role '", role, "'");
    }
  }
}

/// Steps take and give tensors with the batch first; the step that puts it there takes and gives others.
void check_place_of_batch(const StepView& view, const TensorInfo& tensor) {
  const bool moves = view.step().op == Op::move_batch || view.step().op == Op::regroup;
  if (moves || batch_dimension(tensor).value_or(0) == 0) return;
  view.fail("expected the batch as dimension 0 of '", tensor.name, "', got ", shape_text(tensor.shape),
            " (move_batch puts it there)");
}

/// The tensors of a step have as many rows for each item; regroup takes and gives others.
void check_rows(const StepView& view, const TensorInfo& tensor) {
  if (view.step().op == Op::regroup || (tensor.times == view.times() && tensor.outer == 1)) return;
  view.fail("expected ", view.times(), " rows for each item in all of its tensors, got ", shape_text(tensor),
            " in '", tensor.name, "'");
}

void check_index(const Plan& plan, const StepView& view, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= plan.tensors.size()) {
    view.fail("expected tensor indices below ", plan.tensors.size(), ", got ", index);
  }
}

/// All of a step that does not depend on its output tensor or on the order of the plan.
void check_operands(const Plan& plan, const StepView& view) {
  const Step& step = view.step();
  if (!is_known(step.op)) problem("step '", step.name, "': unknown op");
  check_attributes(view);
  const OpDef& def = op_def(step.op);
  if (step.inputs.size() < def.min_inputs || step.inputs.size() > def.max_inputs) {
    view.fail("expected ", def.min_inputs, " to ", def.max_inputs, " inputs, got ", step.inputs.size());
  }
  for (const int32_t input : step.inputs) {
    check_index(plan, view, input);
    check_place_of_batch(view, plan.tensors[static_cast<size_t>(input)]);
    check_rows(view, plan.tensors[static_cast<size_t>(input)]);
  }
  for (const auto& [role, name] : step.constants) {
    if (!plan.constants.contains(name)) view.fail("constant '", name, "' (", role, ") is not in the plan");
  }
  check_roles(view, def);
}

void check_step(const Plan& plan, const StepView& view) {
  check_operands(plan, view);
  const OpDef& def = op_def(view.step().op);
  check_index(plan, view, view.step().output);
  check_place_of_batch(view, view.output());
  check_rows(view, plan.tensors[static_cast<size_t>(view.step().output)]);
  const std::vector<int64_t> shape = def.infer(view);
  if (shape != view.output().shape) {
    view.fail("expected an output of shape ", shape_text(shape), ", got ", shape_text(view.output().shape));
  }
  def.check_output(view);
  if (view.times() > 1 && def.kept(view)) view.fail("expected one row for each item where rows are kept");
}

void check_order(const Plan& plan, ConstantFacts& facts) {
  std::vector<bool> written(plan.tensors.size(), false);
  for (const int32_t input : plan.inputs) {
    if (input < 0 || static_cast<size_t>(input) >= written.size()) {
      problem("plan inputs: expected tensor indices below ", written.size(), ", got ", input);
    }
    if (written[static_cast<size_t>(input)]) problem("plan inputs: tensor ", input, " is listed twice");
    written[static_cast<size_t>(input)] = true;
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const StepView view(plan, plan.steps[i], i, &facts);
    check_step(plan, view);
    for (const int32_t input : plan.steps[i].inputs) {
      if (!written[static_cast<size_t>(input)]) view.fail("reads tensor ", input, " before it is written");
    }
    const auto output = static_cast<size_t>(plan.steps[i].output);
    if (written[output]) view.fail("writes tensor ", output, ", which is written already");
    written[output] = true;
  }
  const std::set<int32_t> given(plan.inputs.begin(), plan.inputs.end());
  std::set<int32_t> seen;
  for (const int32_t output : plan.outputs) {
    if (output < 0 || static_cast<size_t>(output) >= written.size()) {
      problem("plan outputs: expected tensor indices below ", written.size(), ", got ", output);
    }
    if (!written[static_cast<size_t>(output)] || given.contains(output)) {
      problem("plan outputs: expected tensor ", output, " to be written by a step");
    }
    if (!seen.insert(output).second) problem("plan outputs: tensor ", output, " is listed twice");
  }
}

}  // namespace

int64_t checked_elements(std::span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size == kBatch) continue;
    if (size < 1 || size > kMaxElements / product) return -1;
    product *= size;
  }
  return product;
}

void verify_plan(const Plan& plan, ConstantFacts* facts) {
  ConstantFacts own;
  if (std::max({plan.tensors.size(), plan.steps.size(), plan.constants.size()}) > kMaxEntries) {
    problem("expected at most ", kMaxEntries, " tensors, steps and constants");
  }
  if (plan.inputs.empty() || plan.outputs.empty())
    problem("expected a plan with inputs and outputs, got none");
  if (const BatchRange& range = plan.batch_range;
      range.min < 0 || range.max < std::max<int64_t>(range.min, 1))
    problem("expected a range of batch sizes, got ", range.text());
  for (size_t i = 0; i < plan.tensors.size(); ++i) check_tensor(i, plan.tensors[i]);
  for (const auto& [name, constant] : plan.constants) check_constant(name, constant);
  check_order(plan, facts == nullptr ? own : *facts);
  verify_following(plan);
}

void Plan::verify() const {
  try {
    verify_plan(*this);
  } catch (const PlanProblem& found) {
    fail("runtime.verify", found.text);
  }
}

std::vector<int64_t> Plan::output_shape(const Step& step) const {
  try {
    const StepView view(*this, step, steps.size());
    check_operands(*this, view);
    return op_def(step.op).infer(view);
  } catch (const PlanProblem& found) {
    fail("runtime.output_shape", found.text);
  }
}

}  // namespace ulp::runtime
