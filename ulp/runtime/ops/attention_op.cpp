// Scaled dot-product attention of several heads, in f32.
#include "ulp/kernels/sequence/attention.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  for (size_t i = 0; i < 3; ++i) {
    view.expect_plain_f32(i, 3);
    if (view.input(i).shape.size() != 3) view.fail("expected q, k and v of 3 dimensions");
  }
  const std::vector<int64_t>&q = view.input(0).shape, &k = view.input(1).shape;
  if (k != view.input(2).shape || q[0] != k[0] || q[2] != k[2]) {
    view.fail("expected q [N, queries, width], k and v [N, keys, width], got ", shape_text(q), ", ",
              shape_text(k), " and ", shape_text(view.input(2).shape));
  }
  const int64_t heads = view.attributes<AttentionAttributes>().heads;
  if (q[2] % heads != 0) view.fail("expected heads that divide ", q[2], ", got ", heads);
  if (view.input_count() == 4) {
    view.expect_plain_f32(3, 2);
    const std::vector<int64_t> expected = {k[0], k[1]};
    if (view.input(3).shape != expected) {
      view.fail("expected a mask ", shape_text(expected), ", got ", shape_text(view.input(3).shape));
    }
  }
  return q;
}

void check_output(const StepView& view) {
  view.expect_plain_f32_output();
}

class AttentionRunner final : public Runner {
 public:
  AttentionRunner(const StepView& view, kernels::Isa isa) : info_(view.input()), isa_(isa) {
    const auto& attributes = view.attributes<AttentionAttributes>();
    shape_ = {.heads = attributes.heads,
              .depth = info_.shape[2] / attributes.heads,
              .queries = info_.shape[1],
              .keys = view.input(1).shape[1],
              .scale = attributes.scale,
              .causal = attributes.causal};
  }
  size_t workspace_bytes(int64_t, int workers) const override {
    return kernels::attention_workspace_bytes(shape_, workers);
  }
  void run(const RunArgs& args) const override {
    const auto input = [&](size_t i) { return static_cast<const float*>(args.inputs[i]); };
    kernels::attention(shape_, first_size(info_, args.batch), input(0), input(1), input(2),
                       args.inputs.size() == 4 ? input(3) : nullptr, static_cast<float*>(args.output),
                       args.workspace, isa_, args.parallel);
  }
  std::string kernel() const override { return std::string("attention_") + kernels::to_string(isa_); }

 private:
  TensorInfo info_;
  kernels::AttentionShape shape_;
  kernels::Isa isa_;
};

}  // namespace

const OpDef ops::attention = {.min_inputs = 3,
                              .max_inputs = 4,
                              .infer = infer,
                              .check_output = check_output,
                              .prepare = make_runner<AttentionRunner>};

}  // namespace ulp::runtime
