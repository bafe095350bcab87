// Which keys attention leaves out: those whose id is the padding token.
#include <limits>

#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_token_mask(const StepView& view) {
  view.expect_ids();
  return view.input().shape;
}

void check_token_mask_output(const StepView& view) {
  view.expect_plain_f32_output();
}

class TokenMaskRunner final : public Runner {
 public:
  TokenMaskRunner(const StepView& view, kernels::Isa)
      : ids_(view.input()), token_(view.attributes<TokenAttributes>().token) {}
  void run(const RunArgs& args) const override {
    float* mask = static_cast<float*>(args.output);
    for (int64_t i = 0; i < element_count(ids_, args.batch); ++i) {
      mask[i] =
          id_at(ids_.type, args.inputs[0], i) == token_ ? -std::numeric_limits<float>::infinity() : 0.0F;
    }
  }
  std::string kernel() const override { return "token_mask"; }

 private:
  TensorInfo ids_;
  int64_t token_;
};

}  // namespace

const OpDef ops::token_mask = {.infer = infer_token_mask,
                               .check_output = check_token_mask_output,
                               .prepare = make_runner<TokenMaskRunner>};

}  // namespace ulp::runtime
