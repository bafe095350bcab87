// Signs of floats as bits.
#include "ulp/runtime/ops/binary_bits.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_binarize(const StepView& view) {
  const TensorInfo& x = view.input();
  view.expect_type("an input", x.type, DataType::f32);
  const size_t axis = sign_axis(view, x);
  const int64_t channels[] = {x.shape[axis]};
  if (view.constant("threshold") != nullptr) {
    view.expect_constant("threshold", DataType::f32, channels);
    view.expect_no_nan("threshold");
  }
  expect_flip(view, channels[0]);
  std::vector<int64_t> shape = x.shape;
  shape[axis] = kernels::bit_bytes(channels[0]);
  return shape;
}

void check_binarize_output(const StepView& view) {
  view.expect_same_layout(view.input());
  expect_bits(view, "an output", view.output());
}

class BinarizeRunner final : public Runner {
 public:
  BinarizeRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()), channels_(info_.shape[sign_axis(view, info_)]), isa_(isa) {
    if (const Constant* constant = view.constant("threshold")) threshold_ = floats_of(*constant);
    if (const Constant* constant = view.constant("flip")) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(constant->bytes.data());
      flip_.assign(bytes, bytes + constant->bytes.size());
    }
  }
  void run(const RunArgs& args) const override {
    const kernels::SignRows signs{.channels = channels_,
                                  .threshold = threshold_.empty() ? nullptr : threshold_.data(),
                                  .flip = flip_.empty() ? nullptr : flip_.data()};
    kernels::pack_signs(signs, element_count(info_, args.batch) / channels_,
                        static_cast<const float*>(args.inputs[0]), static_cast<uint8_t*>(args.output), isa_,
                        args.parallel);
  }
  std::string kernel() const override { return std::string("pack_signs_") + to_string(isa_); }

 private:
  TensorInfo info_;
  int64_t channels_;
  kernels::Isa isa_;
  std::vector<float> threshold_;
  std::vector<uint8_t> flip_;
};

}  // namespace

const OpDef ops::binarize = {.roles = {"threshold", "flip"},
                             .infer = infer_binarize,
                             .check_output = check_binarize_output,
                             .prepare = make_runner<BinarizeRunner>};

}  // namespace ulp::runtime
