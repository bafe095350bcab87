// Tensors side by side along the channels.
#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/channels.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  std::vector<int64_t> shape = view.input().shape;
  const size_t axis = channel_axis(view, view.input());
  for (size_t i = 1; i < view.input_count(); ++i) {
    std::vector<int64_t> other = view.input(i).shape;
    if (other.size() == shape.size()) {
      channel_axis(view, view.input(i));
      const int64_t sum = shape[axis] + other[axis];
      other[axis] = shape[axis];
      if (other == shape) {
        shape[axis] = sum;
        continue;
      }
    }
    view.fail("expected inputs that differ in their channels only, got ", shape_text(view.input().shape),
              " and ", shape_text(view.input(i).shape));
  }
  return shape;
}

void check_output(const StepView& view) {
  for (size_t i = 0; i < view.input_count(); ++i) view.expect_same_kind(i);
}

class ConcatRunner final : public Runner {
 public:
  ConcatRunner(const StepView& view, kernels::Isa isa)
      : y_(view.output()), channels_(y_.shape[channel_axis(view, y_)]), isa_(isa) {
    int64_t offset = 0;
    for (size_t i = 0; i < view.input_count(); ++i) {
      const TensorInfo& x = view.input(i);
      const bool same = x.scale == y_.scale && x.zero_point == y_.zero_point;
      parts_.push_back({offset, x.shape[channel_axis(view, x)], affine_of(x), same});
      offset += parts_.back().channels;
      copies_ = copies_ && same;
    }
  }
  void run(const RunArgs& args) const override {
    const int64_t rows = element_count(y_, args.batch) / channels_;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (part.same) {
        kernels::copy_channels(element_bytes(y_.type), args.inputs[i], args.output, rows, part.channels,
                               channels_, part.offset, args.parallel);
      } else {
        kernels::requantize_channels(static_cast<const uint8_t*>(args.inputs[i]),
                                     static_cast<uint8_t*>(args.output), rows, part.channels, channels_,
                                     part.offset, part.quantizer, affine_of(y_), isa_, args.parallel);
      }
    }
  }
  std::string kernel() const override {
    return copies_ ? "copy" : std::string("requantize_") + kernels::to_string(isa_);
  }

 private:
  struct Part {
    int64_t offset, channels;
    kernels::Affine quantizer;
    bool same;  // numbers as in the output
  };
  TensorInfo y_;
  int64_t channels_;
  kernels::Isa isa_;
  std::vector<Part> parts_;
  bool copies_ = true;
};

}  // namespace

const OpDef ops::concat = {.min_inputs = 2,
                           .max_inputs = 8,
                           .infer = infer,
                           .check_output = check_output,
                           .prepare = make_runner<ConcatRunner>};

}  // namespace ulp::runtime
