// Change of layout and element type in one pass: the first step of most plans (f32 NCHW -> u8 NHWC) and the
// last.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ulp/kernels/elementwise/elementwise.h"
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/engine/arena.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

bool same_numbers(const TensorInfo& x, const TensorInfo& y) {
  return x.type == y.type && x.scale == y.scale && x.zero_point == y.zero_point;
}

std::vector<int64_t> infer_convert(const StepView& view) {
  return view.input().shape;
}

void check_convert_output(const StepView& view) {
  const TensorInfo& x = view.input();
  const TensorInfo& y = view.output();
  view.expect_activation_type(x);
  if (y.type == DataType::i64) {
    // Places of extremes, counted in f32 inside.
    view.expect_type("an input", x.type, DataType::f32);
    view.expect_same_layout(x);
    return;
  }
  view.expect_activation_type(y);
  if (x.type != y.type && x.type != DataType::f32 && y.type != DataType::f32) {
    view.fail("expected a conversion from or to f32, got ", to_string(x.type), " to ", to_string(y.type));
  }
  if (!std::isfinite(x.scale / y.scale)) view.fail("the input's scale is too far from the output's");
}

Sharing convert_sharing(const StepView& view) {
  const bool nothing =
      same_order(view.input(), view.output().layout) && same_numbers(view.input(), view.output());
  return nothing ? Sharing::alias : Sharing::none;
}

/// Without its fraction; what no int64 holds becomes the nearest. A NaN becomes the lowest one, as in LibTorch: no
/// table has it as an id.
int64_t whole_number(float value) {
  if (std::isnan(value)) return std::numeric_limits<int64_t>::min();
  if (value >= 0x1p63F) return std::numeric_limits<int64_t>::max();
  return value < -0x1p63F ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(value);
}

/// Converts elements in the order they lie in.
void convert_elements(const TensorInfo& x, const TensorInfo& y, const void* from, void* to, int64_t n,
                      kernels::Isa isa, const Parallel& parallel) {
  const auto wide = [](const void* data) { return static_cast<const float*>(data); };
  const auto bytes = [](const void* data) { return static_cast<const uint8_t*>(data); };
  if (x.type == DataType::u8 && y.type == DataType::u8) {
    kernels::requantize(bytes(from), static_cast<uint8_t*>(to), n, affine_of(x), affine_of(y), isa, parallel);
  } else if (y.type == DataType::i64) {
    std::transform(wide(from), wide(from) + n, static_cast<int64_t*>(to), whole_number);
  } else if (y.type == DataType::u8) {
    kernels::quantize(wide(from), static_cast<uint8_t*>(to), n, affine_of(y), isa, parallel);
  } else if (x.type == DataType::u8) {
    kernels::dequantize(bytes(from), static_cast<float*>(to), n, affine_of(x), isa, parallel);
  } else if (y.type == DataType::bf16) {
    kernels::convert_f32_to_bf16(wide(from), static_cast<uint16_t*>(to), n, isa, parallel);
  } else {
    kernels::convert_bf16_to_f32(static_cast<const uint16_t*>(from), static_cast<float*>(to), n, isa,
                                 parallel);
  }
}

class ConvertRunner final : public Runner {
 public:
  ConvertRunner(const StepView& view, kernels::Isa isa)
      : x_(view.input()),
        y_(view.output()),
        isa_(isa),
        moves_(!same_order(x_, y_.layout)),
        converts_(!same_numbers(x_, y_)) {}

  size_t workspace_bytes(int64_t, int workers) const override {
    return moves_ && converts_ ? static_cast<size_t>(workers) * scratch_bytes() : 0;
  }

  void run(const RunArgs& args) const override {
    if (!converts_ && !moves_) {
      std::memcpy(args.output, args.inputs[0], byte_count(x_, args.batch));
    } else if (!moves_) {
      convert_elements(x_, y_, args.inputs[0], args.output, element_count(x_, args.batch), isa_,
                       args.parallel);
    } else if (!converts_) {
      move(args.inputs[0], args.output, first_size(x_, args.batch), args.parallel);
    } else {
      convert_images(args);
    }
  }

  std::string kernel() const override {
    const std::string name = converts_ ? "convert_" + std::string(kernels::to_string(isa_)) : "copy";
    return moves_ ? name + (y_.layout == Layout::nhwc ? "+nchw_to_nhwc" : "+nhwc_to_nchw") : name;
  }

 private:
  bool narrows() const { return element_bytes(y_.type) < element_bytes(x_.type); }
  size_t scratch_bytes() const {
    return align_up(static_cast<size_t>(item_elements(x_) * element_bytes(narrows() ? y_.type : x_.type)));
  }

  /// Channels are moved in the narrower of the two types.
  void move(const void* from, void* to, int64_t images, const Parallel& parallel) const {
    const int64_t size = std::min(element_bytes(x_.type), element_bytes(y_.type));
    const int64_t pixels = pixels_of(x_);
    if (y_.layout == Layout::nhwc) {
      kernels::nchw_to_nhwc(size, from, to, images, x_.shape[1], pixels, isa_, parallel);
    } else {
      kernels::nhwc_to_nchw(size, from, to, images, x_.shape[1], pixels, parallel);
    }
  }

  /// Both changes, image by image, so that what lies between them stays in the cache.
  void convert_images(const RunArgs& args) const {
    const int64_t images = first_size(x_, args.batch);
    if (images < args.parallel.workers()) {
      for (int64_t n = 0; n < images; ++n) convert_image(args, n, 0, args.parallel);
      return;
    }
    args.parallel.run(images,
                      [&](int64_t n, int worker) { convert_image(args, n, worker, SerialParallel()); });
  }

  void convert_image(const RunArgs& args, int64_t image, int worker, const Parallel& parallel) const {
    const int64_t n = item_elements(x_);
    const int64_t at = image * n;
    const std::byte* from = static_cast<const std::byte*>(args.inputs[0]) + at * element_bytes(x_.type);
    std::byte* to = static_cast<std::byte*>(args.output) + at * element_bytes(y_.type);
    std::byte* scratch =
        static_cast<std::byte*>(args.workspace) + static_cast<size_t>(worker) * scratch_bytes();
    if (narrows()) {
      convert_elements(x_, y_, from, scratch, n, isa_, parallel);
      move(scratch, to, 1, parallel);
    } else {
      move(from, scratch, 1, parallel);
      convert_elements(x_, y_, scratch, to, n, isa_, parallel);
    }
  }

  TensorInfo x_, y_;
  kernels::Isa isa_;
  bool moves_, converts_;
};

}  // namespace

const OpDef ops::convert = {.infer = infer_convert,
                            .check_output = check_convert_output,
                            .sharing = convert_sharing,
                            .prepare = make_runner<ConvertRunner>};

}  // namespace ulp::runtime
