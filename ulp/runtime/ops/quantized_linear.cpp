#include "ulp/runtime/ops/quantized_linear.h"

#include "ulp/kernels/linear/weight_linear.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/prepacked_weights.h"
#include "ulp/runtime/ops/quantized_matrix.h"

namespace ulp::runtime {
namespace {

class CodedLinearRunner final : public Runner {
 public:
  CodedLinearRunner(const StepView& view, kernels::Isa isa) : info_(view.input()) {
    // The last group of a row may be cut: widths of several inputs fit one weight.
    const std::string what = "linear of " + std::to_string(info_.shape.back());
    linear_ = packed<kernels::WeightLinear>(view, what, [&] { return make(view, isa); });
  }
  void run(const RunArgs& args) const override {
    linear_->run(rows(args.batch), static_cast<const float*>(args.inputs[0]),
                 args.inputs.size() == 2 ? static_cast<const float*>(args.inputs[1]) : nullptr,
                 static_cast<float*>(args.output), args.workspace, args.parallel);
  }
  size_t workspace_bytes(int64_t batch, int workers) const override {
    return linear_->workspace_bytes(rows(batch), workers);
  }
  std::string kernel() const override { return linear_->name(); }

 private:
  static std::unique_ptr<kernels::WeightLinear> make(const StepView& view, kernels::Isa isa) {
    const QuantizedMatrix matrix = coded_matrix_with_scales(view, view.input().shape.back());
    std::vector<float> bias;
    if (const Constant* constant = view.constant("bias")) bias = floats_of(*constant);
    return kernels::make_weight_linear({.in = matrix.columns,
                                        .out = matrix.rows,
                                        .group = matrix.group,
                                        .bits = matrix.bits,
                                        .activation = view.attributes<ActivationAttributes>().activation,
                                        .residual = view.input_count() == 2},
                                       {.codes = matrix.codes,
                                        .scale = matrix.scale.data(),
                                        .zero = matrix.zero,
                                        .bias = bias.empty() ? nullptr : bias.data(),
                                        .minimum = matrix.minimum.empty() ? nullptr : matrix.minimum.data()},
                                       isa);
  }
  int64_t rows(int64_t batch) const { return element_count(info_, batch) / info_.shape.back(); }

  TensorInfo info_;
  std::shared_ptr<const kernels::WeightLinear> linear_;
};

}  // namespace

bool is_coded_linear(const StepView& view) {
  return view.input().type == DataType::f32 && has_coded_weight(view);
}

std::vector<int64_t> infer_coded_linear(const StepView& view) {
  view.expect_plain_f32(0, 2);
  const QuantizedMatrix matrix = coded_matrix(view, view.input().shape.back());
  const int64_t out[] = {matrix.rows};
  if (view.constant("bias") != nullptr) view.expect_constant("bias", DataType::f32, out);
  std::vector<int64_t> shape = view.input().shape;
  shape.back() = matrix.rows;
  return shape;
}

std::unique_ptr<Runner> prepare_coded_linear(const StepView& view, kernels::Isa isa) {
  return std::make_unique<CodedLinearRunner>(view, isa);
}

}  // namespace ulp::runtime
