// Items with something around them.
#include "ulp/runtime/ops/pad_op.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ulp/kernels/common/float_bits.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

using kernels::PadDimension;

std::vector<int64_t> infer_pad(const StepView& view) {
  std::vector<int64_t> shape = view.input().shape;
  const auto& attributes = view.attributes<PadAttributes>();
  if (attributes.sides.size() + 1 != shape.size()) {
    view.fail("expected sides of ", shape.size() - 1, " dimensions, got ", attributes.sides.size());
  }
  for (size_t d = 1; d < shape.size(); ++d) {
    const PadDimension one{shape[d], attributes.sides[d - 1].before, attributes.sides[d - 1].after};
    if (!kernels::can_pad(one, attributes.mode)) {
      view.fail("expected sides that mode ", enum_name(attributes.mode), " can give a dimension of ",
                one.size, ", got ", one.before, " and ", one.after);
    }
    shape[d] += one.before + one.after;
  }
  return shape;
}

void check_pad_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

/// In the order of memory.
std::vector<PadDimension> pad_dimensions(const TensorInfo& x, const PadAttributes& attributes) {
  std::vector<PadDimension> dimensions;
  for (size_t d = 1; d < x.shape.size(); ++d) {
    dimensions.push_back({x.shape[d], attributes.sides[d - 1].before, attributes.sides[d - 1].after});
  }
  if (x.layout == Layout::nhwc) std::rotate(dimensions.begin(), dimensions.begin() + 1, dimensions.end());
  return dimensions;
}

/// The number in the tensor's type.
uint32_t bits_of(const TensorInfo& x, float value) {
  if (x.type == DataType::f32) return std::bit_cast<uint32_t>(value);
  if (x.type == DataType::bf16) return kernels::float_to_bf16(value);
  const float code = std::nearbyint(value / x.scale) + static_cast<float>(x.zero_point);
  return static_cast<uint32_t>(std::clamp(code, 0.0F, 255.0F));
}

/// The tables of the dimensions.
size_t pad_prepared_bytes(const StepView& view) {
  size_t bytes = 0;
  for (const int64_t size : view.output().shape)
    bytes += static_cast<size_t>(std::max<int64_t>(size, 1)) * 24;
  return bytes;
}

class PadRunner final : public Runner {
 public:
  PadRunner(const StepView& view, kernels::Isa)
      : info_(view.input()),
        pad_(element_bytes(info_.type), pad_dimensions(info_, view.attributes<PadAttributes>()),
             view.attributes<PadAttributes>().mode, bits_of(info_, view.attributes<PadAttributes>().value)) {}
  void run(const RunArgs& args) const override {
    pad_.run(args.inputs[0], args.output, first_size(info_, args.batch), args.parallel);
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo info_;
  kernels::Pad pad_;
};

}  // namespace

const OpDef ops::pad = {.infer = infer_pad,
                        .check_output = check_pad_output,
                        .prepared_bytes = pad_prepared_bytes,
                        .work = copied_work,
                        .prepare = make_runner<PadRunner>};

}  // namespace ulp::runtime
