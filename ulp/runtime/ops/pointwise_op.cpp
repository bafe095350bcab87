// Programs of arithmetic on inputs and constants that broadcast against each other.
#include "ulp/runtime/ops/pointwise_op.h"

#include <algorithm>
#include <utility>

#include "ulp/kernels/pointwise/pointwise.h"
#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

using kernels::kMaxPointwiseInputs;

/// f32 holds all integers up to here.
constexpr int64_t kMostExact = int64_t{1} << 24;

std::string role_of(size_t index) {
  return "c" + std::to_string(index);
}

size_t constant_count(const StepView& view) {
  return view.step().constants.size();
}

/// Sizes of the result so far against one operand's, by the rules of broadcasting.
void broadcast(const StepView& view, std::vector<int64_t>& sizes, const std::vector<int64_t>& with) {
  if (with.size() > sizes.size()) sizes.insert(sizes.begin(), with.size() - sizes.size(), 1);
  const size_t ahead = sizes.size() - with.size();
  for (size_t d = 0; d < with.size(); ++d) {
    int64_t& size = sizes[ahead + d];
    if (with[d] == size || with[d] == 1) continue;
    if (size != 1)
      view.fail("expected shapes that broadcast, got ", shape_text(sizes), " and ", shape_text(with));
    size = with[d];
  }
}

void check_operand(const StepView& view, const PointwiseOperand& operand, size_t functions_before) {
  using Kind = PointwiseOperand::Kind;
  const auto index = static_cast<size_t>(operand.index);
  const auto expect_below = [&](const char* what, size_t count) {
    if (index >= count) view.fail("expected ", what, " below ", count, ", got ", index);
  };
  if (operand.kind == Kind::input) expect_below("inputs", view.input_count());
  if (operand.kind == Kind::constant) expect_below("constants", constant_count(view));
  if (operand.kind == Kind::result) expect_below("functions", functions_before);
}

void check_program(const StepView& view) {
  const PointwiseText& program = view.attributes<PointwiseAttributes>().program;
  size_t numbers = 0;
  for (size_t f = 0; f < program.functions.size(); ++f) {
    for (const PointwiseOperand& operand : program.functions[f].operands) {
      check_operand(view, operand, f);
      numbers += operand.kind == PointwiseOperand::Kind::number;
    }
  }
  if (program.functions.empty() || program.functions.size() > kernels::kMaxPointwiseSteps ||
      numbers > kernels::kMaxPointwiseLiterals) {
    view.fail("expected 1 to ", kernels::kMaxPointwiseSteps, " functions and at most ",
              kernels::kMaxPointwiseLiterals, " numbers, got ", program.functions.size(), " and ", numbers);
  }
  if (view.input_count() + constant_count(view) > kMaxPointwiseInputs) {
    view.fail("expected at most ", kMaxPointwiseInputs, " inputs and constants, got ",
              view.input_count() + constant_count(view));
  }
}

std::vector<int64_t> infer_pointwise(const StepView& view) {
  check_program(view);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.input_count(); ++i) broadcast(view, sizes, view.input(i).shape);
  for (size_t i = 0; i < constant_count(view); ++i) {
    const Constant* constant = view.constant(role_of(i).c_str());
    if (constant == nullptr) view.fail("expected the constant '", role_of(i), "'");
    view.expect_constant(role_of(i).c_str(), DataType::f32, constant->shape);
    broadcast(view, sizes, constant->shape);
  }
  if (sizes.size() > static_cast<size_t>(kernels::kPointwiseDims)) {
    view.fail("expected at most ", kernels::kPointwiseDims, " dimensions, got ", sizes.size());
  }
  if (std::find(sizes.begin() + 1, sizes.end(), kBatch) != sizes.end()) {
    view.fail("expected the batch in the first dimension of the result, got ", shape_text(sizes));
  }
  return sizes;
}

void check_pointwise_output(const StepView& view) {
  view.expect_activation_type(view.output());
}

/// The order in which the dimensions of a tensor lie in memory, outermost first.
std::vector<size_t> memory_order(size_t rank, Layout layout) {
  std::vector<size_t> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = d;
  if (layout == Layout::nhwc) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

/// Elements between neighbours along each dimension of `to`, in the order in which `to` lies; 0 where a size
/// of 1 repeats.
std::array<int64_t, kernels::kPointwiseDims> strides_along(const std::vector<int64_t>& shape, Layout layout,
                                                           const TensorInfo& to) {
  std::vector<int64_t> logical(to.shape.size(), 0);
  const size_t ahead = to.shape.size() - shape.size();
  const std::vector<size_t> order = memory_order(shape.size(), layout);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (shape[d] == to.shape[ahead + d]) logical[ahead + d] = stride;
    if (i > 0) stride *= shape[d];  // only the first dimension may be the batch
  }
  std::array<int64_t, kernels::kPointwiseDims> strides{};
  const std::vector<size_t> to_order = memory_order(to.shape.size(), to.layout);
  for (size_t i = 0; i < to_order.size(); ++i) strides[i] = logical[to_order[i]];
  return strides;
}

kernels::PointwiseProgram program_of(const StepView& view) {
  const PointwiseText& text = view.attributes<PointwiseAttributes>().program;
  const auto inputs = static_cast<int>(view.input_count()),
             constants = static_cast<int>(constant_count(view));
  kernels::PointwiseProgram program{.inputs = inputs + constants, .literals = {}, .steps = {}};
  for (const PointwiseFunction& function : text.functions) {
    for (const PointwiseOperand& operand : function.operands) {
      if (operand.kind == PointwiseOperand::Kind::number) program.literals.push_back(operand.number);
    }
  }
  int next_number = program.inputs;
  const int results = program.inputs + static_cast<int>(program.literals.size());
  for (const PointwiseFunction& function : text.functions) {
    kernels::PointwiseStep step{.op = function.op, .operands = {}};
    for (size_t i = 0; i < function.operands.size(); ++i) {
      const PointwiseOperand& operand = function.operands[i];
      switch (operand.kind) {
        case PointwiseOperand::Kind::input:
          step.operands[i] = operand.index;
          break;
        case PointwiseOperand::Kind::constant:
          step.operands[i] = inputs + operand.index;
          break;
        case PointwiseOperand::Kind::result:
          step.operands[i] = results + operand.index;
          break;
        case PointwiseOperand::Kind::number:
          step.operands[i] = next_number++;
      }
    }
    program.steps.push_back(step);
  }
  return program;
}

/// Sizes of the output in the order of its memory.
std::vector<int64_t> sizes_of(const TensorInfo& y) {
  std::vector<int64_t> sizes;
  for (const size_t d : memory_order(y.shape.size(), y.layout)) sizes.push_back(y.shape[d]);
  return sizes;
}

/// Whether every input of the output's bytes lies as the output does; then one of them may give its memory.
Sharing pointwise_sharing(const StepView& view) {
  const TensorInfo& y = view.output();
  for (size_t i = 0; i < view.input_count(); ++i) {
    const TensorInfo& x = view.input(i);
    const bool alike = x.shape == y.shape && x.type == y.type && x.layout == y.layout;
    if (!alike && byte_count(x, 1) == byte_count(y, 1)) return Sharing::none;
  }
  return Sharing::in_place;
}

class PointwiseRunner final : public Runner {
 public:
  PointwiseRunner(const StepView& view, kernels::Isa isa)
      : y_(view.output()),
        inputs_(view.input_count()),
        kernel_(program_of(view), layout_of(view), sizes_of(y_), y_.type, affine_of(y_), isa),
        isa_(isa) {
    for (size_t i = 0; i < constant_count(view); ++i)
      constants_.push_back(floats_of(*view.constant(role_of(i).c_str())));
    const int64_t exact = view.attributes<PointwiseAttributes>().exact_inputs;
    for (size_t i = 0; i < inputs_; ++i) {
      const DataType type = view.input(i).type;
      const bool integers = type == DataType::i32 || type == DataType::i64;
      if (integers && (exact >> i & 1) != 0) exact_.emplace_back(i, view.input(i));
    }
  }
  void run(const RunArgs& args) const override {
    for (const auto& [i, info] : exact_) look_at_integers(args, i, info);
    std::array<const void*, kMaxPointwiseInputs> pointers;
    std::copy(args.inputs.begin(), args.inputs.end(), pointers.begin());
    for (size_t i = 0; i < constants_.size(); ++i) pointers[inputs_ + i] = constants_[i].data();
    const auto inexact = kernel_.run({pointers.data(), inputs_ + constants_.size()}, args.output,
                                     first_size(y_, args.batch), args.parallel);
    if (inexact) report_inexact(args, y_, inexact->element, inexact->value);
  }
  std::string kernel() const override {
    return std::string("pointwise_") + kernel_.kind() + "_" + kernels::to_string(isa_);
  }

 private:
  /// Reports the first integer of an input that f32 does not hold.
  void look_at_integers(const RunArgs& args, size_t input, const TensorInfo& x) const {
    for (int64_t i = 0, count = element_count(x, args.batch); i < count; ++i) {
      const int64_t integer = id_at(x.type, args.inputs[input], i);
      if (integer >= -kMostExact && integer <= kMostExact) continue;
      args.faults.slot.report({.step = args.faults.step,
                               .element = args.faults.first_item * item_elements(x) + i,
                               .id = integer,
                               .low = -kMostExact,
                               .high = kMostExact + 1,
                               .kind = IdFault::Kind::counted});
      return;
    }
  }

  static std::vector<kernels::PointwiseInput> layout_of(const StepView& view) {
    const TensorInfo& y = view.output();
    std::vector<kernels::PointwiseInput> inputs;
    for (size_t i = 0; i < view.input_count(); ++i) {
      const TensorInfo& x = view.input(i);
      inputs.push_back({x.type, affine_of(x), strides_along(x.shape, x.layout, y)});
    }
    for (size_t i = 0; i < constant_count(view); ++i) {
      const Constant& constant = *view.constant(role_of(i).c_str());
      inputs.push_back({DataType::f32, {}, strides_along(constant.shape, Layout::plain, y)});
    }
    return inputs;
  }

  TensorInfo y_;
  size_t inputs_;
  kernels::Pointwise kernel_;
  kernels::Isa isa_;
  std::vector<std::vector<float>> constants_;
  std::vector<std::pair<size_t, TensorInfo>> exact_;  ///< inputs whose integers have to be exact
};

StepWork pointwise_work(const StepView& view, int64_t batch) {
  const size_t functions = view.attributes<PointwiseAttributes>().program.functions.size();
  return elementwise_work(view, batch, static_cast<double>(functions));
}

}  // namespace

const OpDef ops::pointwise = {.max_inputs = kMaxPointwiseInputs,
                              .roles = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"},
                              .infer = infer_pointwise,
                              .check_output = check_pointwise_output,
                              .sharing = pointwise_sharing,
                              .work = pointwise_work,
                              .prepare = make_runner<PointwiseRunner>};

}  // namespace ulp::runtime
