// Steps over signs, one number at a time.
#include "exact_activation.h"
#include "plain_loops.h"
#include "plain_values.h"
#include "support.h"

namespace ulp::runtime::plain {
namespace {

bool bit_at(const std::byte* bytes, int64_t i) {
  return (std::to_integer<unsigned>(bytes[i / 8]) >> i % 8 & 1U) != 0;
}

bool flips(const Plan& plan, const Step& step, int64_t channel) {
  return step.constants.contains("flip") &&
         bit_at(plan.constants.at(step.constants.at("flip")).bytes.data(), channel);
}

/// The byte of channels [8 c, 8 c + 8) of an element of y, and where the others of this pixel lie.
void set_sign(const View& y, int64_t byte, int64_t channel, bool negative) {
  auto* bytes = static_cast<std::byte*>(y.data);
  if (channel % 8 == 0) bytes[byte] = std::byte{0};
  if (negative) bytes[byte] |= std::byte{1} << channel % 8;
}

/// One result from its sum; `element`: of the scale's map, or -1.
void finish_binary(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                   int64_t first, int64_t o, int64_t element, int64_t sum) {
  if (step.constants.contains("threshold")) {
    const bool below = sum < constant_at<int32_t>(plan, step, "threshold", o);
    return set_sign(y, first + o / 8, o, below != flips(plan, step, o));
  }
  const bool map = plan.constants.at(step.constants.at("scale")).shape.size() > 1;
  float value = constant_at<float>(plan, step, "scale", map ? element : o) * static_cast<float>(sum);
  if (step.constants.contains("bias")) value += constant_at<float>(plan, step, "bias", o);
  if (x.size() == 2) value += x[1].get(first + o);
  y.set(first + o, static_cast<float>(ulp::test::exact_activation(testing::activation_of(step), value)));
}

int sign_of(const View& x, int64_t first, int64_t channel) {
  return bit_at(static_cast<const std::byte*>(x.data) + first, channel) ? -1 : 1;
}

}  // namespace

void binarize(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch) {
  const bool image = x.info.layout == Layout::nhwc;
  const int64_t channels = image ? x.info.shape[1] : x.info.shape.back();
  const int64_t bytes = image ? y.info.shape[1] : y.info.shape.back();
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) {
    const int64_t row = i / channels, c = i % channels;
    const float threshold =
        step.constants.contains("threshold") ? constant_at<float>(plan, step, "threshold", c) : 0.0F;
    set_sign(y, row * bytes + c / 8, c, !(x.get(i) >= threshold) != flips(plan, step, c));
  }
}

void binary_linear(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                   int64_t batch) {
  const Constant& weight = plan.constants.at(step.constants.at("weight"));
  const int64_t channels = step.get<BinaryLinearAttributes>().channels;
  const int64_t bytes = x[0].info.shape.back(), width = y.info.shape.back();
  for (int64_t row = 0; row < element_count(x[0].info, batch) / bytes; ++row) {
    for (int64_t o = 0; o < weight.shape[0]; ++o) {
      int64_t sum = 0;
      for (int64_t c = 0; c < channels; ++c)
        sum += sign_of(x[0], row * bytes, c) * (bit_at(weight.bytes.data() + o * bytes, c) ? -1 : 1);
      finish_binary(plan, step, x, y, row * width, o, -1, sum);
    }
  }
}

void binary_conv(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                 int64_t batch) {
  const Constant& weight = plan.constants.at(step.constants.at("weight"));
  const auto& [w, channels, padding, activation] = step.get<BinaryConvAttributes>();
  const std::vector<int64_t>&in = x[0].info.shape, &out = y.info.shape;
  const int64_t outputs = weight.shape[0], outside = padding == kernels::BinaryPadding::one ? 1 : 0;
  const auto dot = [&](int64_t n, int64_t o, int64_t oh, int64_t ow) {
    int64_t sum = 0;
    for (int64_t i = 0; i < w.kernel_h * w.kernel_w; ++i) {
      const int64_t ih = oh * w.stride_h - w.pad_h + i / w.kernel_w * w.dilation_h;
      const int64_t iw = ow * w.stride_w - w.pad_w + i % w.kernel_w * w.dilation_w;
      const bool inside = ih >= 0 && iw >= 0 && ih < in[2] && iw < in[3];
      const std::byte* signs = weight.bytes.data() + (o * w.kernel_h * w.kernel_w + i) * in[1];
      const int64_t pixel = ((n * in[2] + ih) * in[3] + iw) * in[1];
      for (int64_t c = 0; c < channels; ++c)
        sum += (inside ? sign_of(x[0], pixel, c) : outside) * (bit_at(signs, c) ? -1 : 1);
    }
    return sum;
  };
  for (int64_t n = 0; n < first_of(y, batch); ++n) {
    for (int64_t place = 0; place < out[2] * out[3]; ++place) {
      for (int64_t o = 0; o < outputs; ++o) {
        finish_binary(plan, step, x, y, (n * out[2] * out[3] + place) * out[1], o,
                      o * out[2] * out[3] + place, dot(n, o, place / out[3], place % out[3]));
      }
    }
  }
}

}  // namespace ulp::runtime::plain
