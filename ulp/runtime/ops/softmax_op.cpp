// Softmax over the last axis of f32 or bf16, computed in f32, and its logarithm.
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/reduce/reduce.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_softmax(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.shape.size() < 2 || x.layout != Layout::plain) {
    view.fail("expected an input of at least 2 dimensions and layout plain, got ", shape_text(x.shape), " ",
              to_string(x.layout));
  }
  if (x.type != DataType::f32 && x.type != DataType::bf16) {
    view.fail("expected an input of type f32 or bf16, got ", to_string(x.type));
  }
  if (view.attributes<SoftmaxAttributes>().log) view.expect_type("an input", x.type, DataType::f32);
  return x.shape;
}

void check_softmax_output(const StepView& view) {
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class SoftmaxRunner final : public Runner {
 public:
  SoftmaxRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()), log_(view.attributes<SoftmaxAttributes>().log), isa_(isa) {}
  void run(const RunArgs& args) const override {
    const int64_t columns = info_.shape.back();
    if (log_) {
      kernels::log_softmax(static_cast<const float*>(args.inputs[0]), static_cast<float*>(args.output),
                           element_count(info_, args.batch) / columns, columns, isa_, args.parallel);
      return;
    }
    kernels::softmax(info_.type, args.inputs[0], args.output, element_count(info_, args.batch) / columns,
                     columns, isa_, args.parallel);
  }
  std::string kernel() const override {
    return std::string(log_ ? "log_softmax_" : "softmax_") + kernels::to_string(isa_);
  }

 private:
  TensorInfo info_;
  bool log_;
  kernels::Isa isa_;
};

/// The largest, its difference, the exponential, the sum, the share.
StepWork softmax_work(const StepView& view, int64_t batch) {
  return elementwise_work(view, batch, 5);
}

}  // namespace

const OpDef ops::softmax = {.infer = infer_softmax,
                            .check_output = check_softmax_output,
                            .sharing = share_in_place,
                            .work = softmax_work,
                            .prepare = make_runner<SoftmaxRunner>};

}  // namespace ulp::runtime
