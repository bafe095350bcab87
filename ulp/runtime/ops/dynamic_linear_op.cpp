// A linear layer with int8 weights whose f32 input is quantized as it runs.
#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/ops/prepacked_weights.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_dynamic_linear(const StepView& view) {
  view.expect_plain_f32(0, 2);
  const TensorInfo& x = view.input();
  const Constant* weight = view.constant("weight");
  if (weight == nullptr || weight->shape.size() != 2) {
    view.fail("expected a constant 'weight' of 2 dimensions");
  }
  const int64_t out[] = {weight->shape[0]}, shape[] = {weight->shape[0], x.shape.back()};
  view.expect_constant("weight", DataType::i8, shape);
  view.expect_scales("weight_scale", out);
  if (view.constant("bias") != nullptr) view.expect_constant("bias", DataType::f32, out);
  if (x.shape.back() > kernels::kMaxDynamicFeatures) {
    view.fail("expected at most ", kernels::kMaxDynamicFeatures, " input features, got ", x.shape.back());
  }
  std::vector<int64_t> result = x.shape;
  result.back() = weight->shape[0];
  return result;
}

void check_dynamic_linear_output(const StepView& view) {
  view.expect_plain_f32_output();
  if (view.input_count() == 1) return;
  view.expect_plain_f32(1, 2);
  if (view.input(1).shape != view.output().shape) {
    view.fail("expected a residual ", shape_text(view.output().shape), ", got ",
              shape_text(view.input(1).shape));
  }
}

bool dynamic_linear_keeps_batch_whole(const StepView& view) {
  return view.attributes<DynamicLinearAttributes>().per_tensor;
}

class DynamicLinearRunner final : public Runner {
 public:
  DynamicLinearRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()),
        linear_(packed<kernels::DynamicLinear>(view, "linear", [&] { return make(view, isa); })) {}
  size_t workspace_bytes(int64_t batch, int workers) const override {
    return linear_->workspace_bytes(rows(batch), workers);
  }
  void run(const RunArgs& args) const override {
    linear_->run(rows(args.batch), static_cast<const float*>(args.inputs[0]),
                 args.inputs.size() == 2 ? static_cast<const float*>(args.inputs[1]) : nullptr,
                 static_cast<float*>(args.output), args.workspace, args.parallel);
  }
  std::string kernel() const override { return linear_->name(); }

 private:
  static std::unique_ptr<kernels::DynamicLinear> make(const StepView& view, kernels::Isa isa) {
    const auto& attributes = view.attributes<DynamicLinearAttributes>();
    const Constant& weight = *view.constant("weight");
    const std::vector<float> scale = floats_of(*view.constant("weight_scale"));
    std::vector<float> bias;
    if (const Constant* constant = view.constant("bias")) bias = floats_of(*constant);
    return kernels::make_dynamic_linear({.in = weight.shape[1],
                                         .out = weight.shape[0],
                                         .activation = attributes.activation,
                                         .residual = view.input_count() == 2,
                                         .per_tensor = attributes.per_tensor},
                                        {.codes = reinterpret_cast<const int8_t*>(weight.bytes.data()),
                                         .scale = scale.data(),
                                         .bias = bias.empty() ? nullptr : bias.data()},
                                        isa);
  }
  int64_t rows(int64_t batch) const { return element_count(info_, batch) / info_.shape.back(); }

  TensorInfo info_;
  std::shared_ptr<const kernels::DynamicLinear> linear_;
};

StepWork dynamic_linear_work(const StepView& view, int64_t batch) {
  StepWork work = product_work(view, batch, static_cast<double>(view.input().shape.back()));
  work.math = kernels::MathType::int8;
  return work;
}

}  // namespace

const OpDef ops::dynamic_linear = {.max_inputs = 2,
                                   .roles = {"weight", "bias", "weight_scale"},
                                   .infer = infer_dynamic_linear,
                                   .check_output = check_dynamic_linear_output,
                                   .keeps_batch_whole = dynamic_linear_keeps_batch_whole,
                                   .work = dynamic_linear_work,
                                   .prepare = make_runner<DynamicLinearRunner>};

}  // namespace ulp::runtime
