// Instructions on images, in units that may be computed in any order.
#include <algorithm>

#include "ulp/train/compile/partition.h"
#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

namespace {

using kernels::StepConv;

/// The operands of an instruction on images.
struct ImageOperands {
  const StepRun& step;
  const Instruction& one;
  const MatrixView& view(int matrix) const { return step.views[static_cast<size_t>(matrix)]; }
  const MatrixView& out() const { return view(one.out); }
  const MatrixView& a() const { return view(one.a); }
  const MatrixView& b() const { return view(one.b); }
  float* data(int matrix) const { return matrix < 0 ? nullptr : view(matrix).data; }
  const PlannedConv& planned() const { return step.plan->convs[static_cast<size_t>(one.shape)]; }
  const StepConv& conv() const { return planned().conv; }
  const kernels::StepPool& pool() const { return step.plan->pools[static_cast<size_t>(one.shape)]; }
  bool relu() const { return one.finish == kernels::ProductFinish::relu; }
  kernels::StepNormRows norm(int matrix) const { return {view(matrix).data, view(matrix).stride}; }
  /// Doubles in a matrix of floats.
  double* doubles(int matrix) const { return reinterpret_cast<double*>(view(matrix).data); }
  int64_t doubles_stride(int matrix) const { return view(matrix).stride / 2; }
};

kernels::StepImages images(const MatrixView& view) {
  return {view.data, view.stride};
}

/// Rows [begin, end) of a matrix.
kernels::StepRows rows_between(const MatrixView& view, int64_t begin, int64_t end) {
  return {view.data + begin * view.stride, end - begin, view.width, view.stride};
}

int64_t batch_of(const StepConv& conv, const MatrixView& x) {
  return x.rows / (conv.in_height * conv.in_width);
}

/// Calls each(packed place, weight's place) of a depthwise convolution.
template <typename Each>
void for_each_depthwise(const PlannedConv& of, int64_t stride, const Each& each) {
  for (int64_t tap = 0; tap < of.conv.taps(); ++tap) {
    for (int64_t c = 0; c < of.conv.out_channels; ++c)
      each(tap * stride + c, c * of.output_step + tap * of.tap_step);
  }
}

void pack(const ImageOperands& of, int64_t begin, int64_t end) {
  const PlannedConv& planned = of.planned();
  const kernels::ConvWeightSteps steps{planned.output_step, planned.input_step, planned.tap_step};
  const float* weights = of.a().data;
  float* out = of.out().data;
  if (of.one.op == Op::unpack_weights) {
    float* to = out;
    if (!planned.conv.depthwise())
      return kernels::unpack_conv_weights(planned.conv, weights, of.one.adds, to, steps, begin, end);
    return for_each_depthwise(planned, of.a().stride, [&](int64_t place, int64_t at) {
      to[at] = of.one.adds ? to[at] + weights[place] : weights[place];
    });
  }
  if (planned.conv.depthwise())
    return for_each_depthwise(planned, of.out().stride,
                              [&](int64_t place, int64_t at) { out[place] = weights[at]; });
  if (of.one.op == Op::pack_weights)
    return kernels::pack_conv_forward(planned.conv, weights, steps, out, begin, end, planned.words);
  kernels::pack_conv_input(planned.conv, weights, steps, out, begin, end, planned.words);
}

void convolve(const ImageOperands& of, int64_t begin, int64_t end) {
  const StepConv& conv = of.conv();
  const kernels::ConvProductOps& ops = of.planned().words.numbers > 0 ? *of.step.word_convs : *of.step.convs;
  const MatrixView &a = of.a(), &b = of.b(), &out = of.out();
  const kernels::StepConvResult result{out.data, out.stride, of.data(of.one.c), of.one.adds, of.relu()};
  if (of.one.op == Op::convolution) {
    if (conv.depthwise()) return ops.depthwise_forward(conv, images(a), b.data, b.stride, result, begin, end);
    return ops.forward(conv, batch_of(conv, a), images(a), b.data, result, begin, end);
  }
  if (of.one.op == Op::convolution_input) {
    if (conv.depthwise()) return ops.depthwise_input(conv, images(a), b.data, b.stride, result, begin, end);
    return ops.input_gradient(conv, batch_of(conv, out), images(a), b.data, result, begin, end);
  }
  const int64_t batch = batch_of(conv, a);
  if (conv.depthwise())
    return ops.depthwise_weight(conv, batch, images(a), images(b), out.data, out.stride, begin, end);
  ops.weight_gradient(conv, batch, images(a), images(b), out.data, begin, end);
}

/// The running statistics move to those of the batch, as LibTorch moves them.
void update_running(const ImageOperands& of) {
  const kernels::StepNormRows norm = of.norm(of.one.a);
  const auto share = static_cast<double>(of.one.p[0]);
  float *mean = of.b().data, *variance = of.data(of.one.c);
  const auto move = [share](float to, float from) {
    return static_cast<float>(share * static_cast<double>(to) + (1 - share) * static_cast<double>(from));
  };
  for (int64_t j = 0; j < of.b().width; ++j) {
    mean[j] = move(norm.mean()[j], mean[j]);
    variance[j] = move(norm.unbiased()[j], variance[j]);
  }
}

void normalise_images(const ImageOperands& of, int64_t begin, int64_t end) {
  const Instruction& one = of.one;
  const kernels::StepImageOps& ops = *of.step.images;
  const MatrixView& a = of.a();
  switch (one.op) {
    case Op::norm_moments: {
      const int64_t rows = a.rows / of.out().rows;
      for (int64_t part = begin; part < end; ++part)
        ops.norm_moments(rows_between(a, part * rows, (part + 1) * rows),
                         of.doubles(one.out) + part * of.doubles_stride(one.out));
      return;
    }
    case Op::norm_join:
      return ops.norm_join(of.doubles(one.a), of.doubles_stride(one.a), a.rows, of.view(one.d).rows / a.rows,
                           of.view(one.d).width, one.p[0], of.data(one.b), of.data(one.c), of.norm(one.out));
    case Op::norm_given:
      return ops.norm_given(a.data, of.b().data, a.width, one.p[0], of.data(one.c), of.data(one.d),
                            of.norm(one.out));
    case Op::norm_apply:
      return ops.norm_apply(rows_between(a, begin, end), of.norm(one.b),
                            one.c < 0 ? nullptr : of.data(one.c) + begin * a.stride, one.norm_finish,
                            of.out().data + begin * a.stride);
    case Op::norm_gradient_sums: {
      const int64_t rows = a.rows / of.out().rows;
      for (int64_t part = begin; part < end; ++part)
        ops.norm_gradient_sums(rows_between(a, part * rows, (part + 1) * rows),
                               of.b().data + part * rows * a.stride, of.norm(one.c), one.norm_finish,
                               of.doubles(one.out) + part * of.doubles_stride(one.out));
      return;
    }
    case Op::norm_gradient_join:
      return ops.norm_gradient_join(of.doubles(one.a), of.doubles_stride(one.a), a.rows,
                                    static_cast<double>(of.b().rows), of.norm(one.c), of.out().width,
                                    of.out().data, of.out().stride, one.adds, of.data(one.d), one.second_adds,
                                    of.data(one.e));
    case Op::norm_gradient:
      return ops.norm_gradient(rows_between(a, begin, end), of.b().data + begin * a.stride, of.norm(one.c),
                               one.norm_finish, of.data(one.d), one.d < 0 ? 0 : of.view(one.d).stride,
                               of.out().data + begin * a.stride);
    default:
      return update_running(of);
  }
}

void pool_images(const ImageOperands& of, int64_t begin, int64_t end) {
  const Instruction& one = of.one;
  const kernels::StepImageOps& ops = *of.step.images;
  const MatrixView &a = of.a(), &out = of.out();
  switch (one.op) {
    case Op::max_pool:
      return ops.max_pool(of.pool(), images(a), out.data, of.data(one.d), out.stride, begin, end);
    case Op::max_pool_gradient:
      return ops.max_pool_gradient(of.pool(), images(a), of.data(one.b), out.data, out.stride, begin, end);
    case Op::average_pool:
      return ops.average_pool(of.pool(), images(a), out.data, out.stride, begin, end);
    default:
      return ops.average_pool_gradient(of.pool(), images(a), out.data, out.stride, begin, end);
  }
}

}  // namespace

int64_t image_units(const StepRun& step, const Instruction& one) {
  const auto rows = [&](int matrix) { return step.views[static_cast<size_t>(matrix)].rows; };
  const auto conv = [&]() -> const StepConv& {
    return step.plan->convs[static_cast<size_t>(one.shape)].conv;
  };
  switch (one.op) {
    case Op::to_pixels:
      return rows(one.out) / (one.from * one.to);
    case Op::from_pixels:
      return rows(one.a) / (one.from * one.to);
    case Op::to_words:
      return rows(one.a);
    case Op::convolution: {
      const int64_t batch = rows(one.a) / (conv().in_height * conv().in_width);
      return conv().depthwise() ? batch : kernels::conv_forward_units(conv(), batch);
    }
    case Op::convolution_input: {
      const int64_t batch = rows(one.out) / (conv().in_height * conv().in_width);
      return conv().depthwise() ? batch : kernels::conv_input_units(conv(), batch);
    }
    case Op::convolution_weight:
      return conv().depthwise() ? (conv().in_channels + 15) / 16 : kernels::conv_weight_units(conv());
    case Op::norm_moments:
    case Op::norm_gradient_sums:
      return rows(one.out);
    case Op::norm_apply:
    case Op::norm_gradient:
      return rows(one.a);
    case Op::max_pool:
    case Op::max_pool_gradient:
    case Op::average_pool:
    case Op::average_pool_gradient: {
      const kernels::StepPool& pool = step.plan->pools[static_cast<size_t>(one.shape)];
      return rows(one.a) / (one.op == Op::max_pool || one.op == Op::average_pool
                                ? pool.in_height * pool.in_width
                                : pool.out_height * pool.out_width);
    }
    case Op::pack_weights:
    case Op::unpack_weights:
      return conv().depthwise() ? 1 : kernels::conv_pack_units(conv());
    case Op::pack_reversed:
      return conv().depthwise() ? 1 : kernels::conv_pack_input_units(conv());
    case Op::norm_join:
    case Op::norm_given:
    case Op::norm_gradient_join:
    case Op::norm_update:
      return 1;
    default:
      return 0;
  }
}

void run_image_units(const StepRun& step, const Instruction& one, int64_t begin, int64_t end) {
  const ImageOperands of{step, one};
  const MatrixView& a = of.a();
  switch (one.op) {
    case Op::to_pixels:
      return step.images->to_pixels(a.as_rows(), one.from, one.to, of.out().width, of.out().data,
                                    of.out().stride, begin, end);
    case Op::from_pixels:
      return step.images->from_pixels(images(a), one.from, one.to, a.width, of.out().data, of.out().width,
                                      of.out().stride, begin, end);
    case Op::to_words:
      return step.packed->pack_left({a.data + begin * a.stride, a.stride, 1}, end - begin, a.width,
                                    of.out().data + begin * of.out().stride, of.out().stride, 1);
    case Op::pack_weights:
    case Op::pack_reversed:
    case Op::unpack_weights:
      return pack(of, begin, end);
    case Op::convolution:
    case Op::convolution_input:
    case Op::convolution_weight:
      return convolve(of, begin, end);
    case Op::max_pool:
    case Op::max_pool_gradient:
    case Op::average_pool:
    case Op::average_pool_gradient:
      return pool_images(of, begin, end);
    default:
      return normalise_images(of, begin, end);
  }
}

Cut image_cut(const StepRun& step, const Instruction& one) {
  const auto numbers = [&](int matrix) {
    const MatrixView& of = step.views[static_cast<size_t>(matrix)];
    return static_cast<double>(of.rows * of.width);
  };
  constexpr double kMoved = 0.15, kPooled = 1, kPacked = 1.5;  // nanoseconds for a number
  Cut cut{.units = image_units(step, one), .nanoseconds = 0};
  switch (one.op) {
    case Op::convolution:
    case Op::convolution_input:
    case Op::convolution_weight: {
      const StepConv& conv = step.plan->convs[static_cast<size_t>(one.shape)].conv;
      const int pixels = one.op == Op::convolution         ? one.out
                         : one.op == Op::convolution_input ? one.a
                                                           : one.b;
      const auto window = static_cast<double>(conv.taps() * conv.group_inputs());
      cut.nanoseconds = numbers(pixels) * window * step.multiply_add_nanoseconds * (conv.depthwise() ? 4 : 1);
      return cut;
    }
    case Op::max_pool:
    case Op::max_pool_gradient:
    case Op::average_pool:
    case Op::average_pool_gradient:
      cut.nanoseconds = numbers(one.a) * kPooled;
      return cut;
    case Op::pack_weights:
    case Op::pack_reversed:
      cut.nanoseconds = numbers(one.out) * kPacked;
      return cut;
    case Op::unpack_weights:
      cut.nanoseconds = numbers(one.a) * kPacked;
      return cut;
    case Op::to_words:
    case Op::to_pixels:
    case Op::from_pixels:
    case Op::norm_moments:
    case Op::norm_gradient_sums:
    case Op::norm_apply:
    case Op::norm_gradient:
      cut.nanoseconds = numbers(one.a) * kMoved;
      return cut;
    default:
      return cut;
  }
}

}  // namespace ulp::train::compiled
