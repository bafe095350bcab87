// Group normalisation of images and sequences, computed in f32.
#include "ulp/kernels/elementwise/group_norm.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_group_norm(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.layout == Layout::plain) {
    view.expect_plain_numbers(0, 3);
  } else {
    view.expect_images("an input", x);
    view.expect_activation_type(x);
  }
  const int64_t channels[] = {x.shape[1]}, groups = view.attributes<GroupNormAttributes>().groups;
  if (channels[0] % groups != 0) {
    view.fail("expected groups that divide the ", channels[0], " channels, got ", groups);
  }
  for (const char* role : {"weight", "bias"}) {
    if (view.constant(role) != nullptr) view.expect_constant(role, DataType::f32, channels);
  }
  return x.shape;
}

void check_group_norm_output(const StepView& view) {
  view.expect_activation_type(view.output());
  view.expect_same_layout(view.input());
}

class GroupNormRunner final : public Runner {
 public:
  GroupNormRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()), epsilon_(view.attributes<GroupNormAttributes>().epsilon), isa_(isa) {
    shape_ = {.channels = info_.shape[1],
              .pixels = item_elements(info_) / info_.shape[1],
              .groups = view.attributes<GroupNormAttributes>().groups,
              .channels_last = info_.layout == Layout::nhwc,
              .input = format_of(info_),
              .output = format_of(view.output())};
    if (const Constant* weight = view.constant("weight")) weight_ = floats_of(*weight);
    if (const Constant* bias = view.constant("bias")) bias_ = floats_of(*bias);
  }
  void run(const RunArgs& args) const override {
    kernels::group_norm(shape_, first_size(info_, args.batch), args.inputs[0],
                        weight_.empty() ? nullptr : weight_.data(), bias_.empty() ? nullptr : bias_.data(),
                        epsilon_, args.output, isa_, args.parallel);
  }
  std::string kernel() const override { return std::string("group_norm_") + kernels::to_string(isa_); }

 private:
  TensorInfo info_;
  kernels::GroupNormShape shape_;
  float epsilon_;
  kernels::Isa isa_;
  std::vector<float> weight_, bias_;
};

/// The sum, the square of the difference and its sum, scale and shift.
StepWork group_norm_work(const StepView& view, int64_t batch) {
  return elementwise_work(view, batch, 6);
}

}  // namespace

const OpDef ops::group_norm = {.roles = {"weight", "bias"},
                               .infer = infer_group_norm,
                               .check_output = check_group_norm_output,
                               .sharing = share_in_place,
                               .work = group_norm_work,
                               .prepare = make_runner<GroupNormRunner>};

}  // namespace ulp::runtime
