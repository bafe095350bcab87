// Tensors side by side along the channels or another dimension.
#include "ulp/runtime/ops/concat_op.h"

#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/channels.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

size_t axis_of(const StepView& view) {
  const auto axis = static_cast<size_t>(view.attributes<ConcatAttributes>().axis);
  if (axis == 0) return channel_axis(view, view.input());
  if (axis >= view.input().shape.size()) {
    view.fail("expected inputs of more than ", axis, " dimensions, got ", shape_text(view.input().shape));
  }
  return axis;
}

/// Elements that lie together and belong to one index of the dimensions outside of the axis.
int64_t elements_along(const TensorInfo& tensor, size_t axis) {
  // In memory an image has its channels innermost.
  const bool nhwc = tensor.layout == Layout::nhwc;
  int64_t elements = tensor.shape[axis] * (nhwc && axis > 1 ? tensor.shape[1] : 1);
  const size_t end = nhwc && axis == 1 ? axis : tensor.shape.size();
  for (size_t d = axis + 1; d < end; ++d) elements *= tensor.shape[d];
  return elements;
}

std::vector<int64_t> infer_concat(const StepView& view) {
  std::vector<int64_t> shape = view.input().shape;
  const size_t axis = axis_of(view);
  for (size_t i = 1; i < view.input_count(); ++i) {
    std::vector<int64_t> other = view.input(i).shape;
    if (other.size() == shape.size()) {
      const int64_t sum = shape[axis] + other[axis];
      other[axis] = shape[axis];
      if (other == shape) {
        shape[axis] = sum;
        continue;
      }
    }
    const std::string where = view.attributes<ConcatAttributes>().axis == 0
                                  ? "their channels"
                                  : "dimension " + std::to_string(axis);
    view.fail("expected inputs that differ in ", where, " only, got ", shape_text(view.input().shape),
              " and ", shape_text(view.input(i).shape));
  }
  return shape;
}

void check_concat_output(const StepView& view) {
  const TensorInfo& y = view.output();
  for (size_t i = 0; i < view.input_count(); ++i) {
    if (y.type != DataType::i32 && y.type != DataType::i64) {
      view.expect_same_kind(i);
    } else {
      view.expect_type("inputs of the output's type,", view.input(i).type, y.type);
      view.expect_same_layout(view.input(i));
    }
  }
}

class ConcatRunner final : public Runner {
 public:
  ConcatRunner(const StepView& view, kernels::Isa isa)
      : y_(view.output()), channels_(elements_along(y_, axis_of(view))), isa_(isa) {
    int64_t offset = 0;
    for (size_t i = 0; i < view.input_count(); ++i) {
      const TensorInfo& x = view.input(i);
      const bool same = x.scale == y_.scale && x.zero_point == y_.zero_point;
      parts_.push_back({offset, elements_along(x, axis_of(view)), affine_of(x), same});
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

StepWork joined_work(const StepView& view, int64_t batch) {
  return elementwise_work(view, batch, 0);
}

}  // namespace

const OpDef ops::concat = {.min_inputs = 2,
                           .max_inputs = 64,
                           .infer = infer_concat,
                           .check_output = check_concat_output,
                           .work = joined_work,
                           .prepare = make_runner<ConcatRunner>};

}  // namespace ulp::runtime
