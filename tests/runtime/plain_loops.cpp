#include "plain_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exact_activation.h"
#include "plain_values.h"
#include "support.h"

namespace ulp::runtime::plain {
namespace {

float widen(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

/// `value` counts steps of the output's scale, which is 1 unless the output is u8.
float activate(float value, Activation activation, const View& y) {
  if (activation == Activation::none) return value;
  if (is_smooth_activation(activation)) {
    return static_cast<float>(ulp::test::exact_activation(activation, value * y.info.scale)) / y.info.scale;
  }
  value = std::max(value, info_of(activation).low / y.info.scale);
  return std::min(value, info_of(activation).high / y.info.scale);
}

/// One output of a convolution from its accumulator; y = activation(acc * m + residual).
void finish(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t at,
            int64_t channel, double sum, int64_t sum_u8) {
  const bool bias = step.constants.contains("bias");
  float value;
  if (x[0].info.type == DataType::u8) {
    if (bias) sum_u8 += constant_at<int32_t>(plan, step, "bias", channel);
    const float multiplier =
        x[0].info.scale * constant_at<float>(plan, step, "weight_scale", channel) / y.info.scale;
    value = static_cast<float>(sum_u8) * multiplier;
  } else {
    value = static_cast<float>(sum + (bias ? constant_at<float>(plan, step, "bias", channel) : 0.0F));
  }
  if (x.size() == 2) value += x[1].steps(at) * (x[1].info.scale / y.info.scale);
  y.set_steps(at, activate(value, testing::activation_of(step), y));
}

float weight_at(const Plan& plan, const Step& step, int64_t i) {
  switch (plan.constants.at(step.constants.at("weight")).type) {
    case DataType::i8:
      return constant_at<int8_t>(plan, step, "weight", i);
    case DataType::bf16:
      return widen(constant_at<uint16_t>(plan, step, "weight", i));
    default:
      return constant_at<float>(plan, step, "weight", i);
  }
}

void conv_pixel(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t n,
                int64_t c, int64_t oh, int64_t ow) {
  const auto& [w, groups, activation] = step.get<ConvAttributes>();
  const TensorInfo& in = x[0].info;
  const int64_t per_group = in.shape[1] / groups;
  const int64_t first = c / (y.info.shape[1] / groups) * per_group;
  double sum = 0;
  for (int64_t k = 0; k < per_group; ++k) {
    for (int64_t i = 0; i < w.kernel_h; ++i) {
      for (int64_t j = 0; j < w.kernel_w; ++j) {
        const int64_t ih = oh * w.stride_h - w.pad_h + i * w.dilation_h;
        const int64_t iw = ow * w.stride_w - w.pad_w + j * w.dilation_w;
        if (ih < 0 || iw < 0 || ih >= in.shape[2] || iw >= in.shape[3]) continue;
        sum += double{x[0].steps(x[0].at(n, first + k, ih, iw))} *
               weight_at(plan, step, ((c * per_group + k) * w.kernel_h + i) * w.kernel_w + j);
      }
    }
  }
  finish(plan, step, x, y, y.at(n, c, oh, ow), c, sum, static_cast<int64_t>(sum));
}

void linear(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const int64_t in = x[0].info.shape.back(), out = y.info.shape.back();
  const int64_t rows = element_count(x[0].info, batch) / in;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < out; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k)
        sum += double{x[0].steps(r * in + k)} * weight_at(plan, step, c * in + k);
      finish(plan, step, x, y, r * out + c, c, sum, static_cast<int64_t>(sum));
    }
  }
}

void softmax(const View& x, const View& y, int64_t rows, int64_t size, bool log) {
  for (int64_t r = 0; r < rows; ++r) {
    float top = -std::numeric_limits<float>::infinity();
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) top = std::max(top, x.get(r * size + i));
    for (int64_t i = 0; i < size; ++i) sum += std::exp(double{x.get(r * size + i)} - top);
    for (int64_t i = 0; i < size; ++i) {
      const double difference = double{x.get(r * size + i)} - top;
      y.set(r * size + i, static_cast<float>(log ? difference - std::log(sum) : std::exp(difference) / sum));
    }
  }
}

void pool_pixel(const Step& step, const View& x, const View& y, int64_t n, int64_t c, int64_t oh,
                int64_t ow) {
  const int64_t height = x.info.shape[2], width = x.info.shape[3];
  PoolWindow w{{.kernel_h = height, .kernel_w = width}};
  if (step.op != Op::global_avg_pool) w = step.get<PoolAttributes>().window;
  const int64_t h0 = oh * w.stride_h - w.pad_h, w0 = ow * w.stride_w - w.pad_w;
  const bool away = step.op == Op::avg_pool && step.get<PoolAttributes>().rounding == MeanRounding::half_away;
  float top = -std::numeric_limits<float>::infinity(), sum = 0;
  int64_t seen = 0;
  for (int64_t i = 0; i < w.kernel_h; ++i) {
    for (int64_t j = 0; j < w.kernel_w; ++j) {
      const int64_t ih = h0 + i * w.dilation_h, iw = w0 + j * w.dilation_w;
      if (ih < 0 || iw < 0 || ih >= height || iw >= width) continue;
      const float value = x.steps(x.at(n, c, ih, iw));
      top = std::max(top, value);
      sum += value;
      ++seen;
    }
  }
  const int64_t at = y.at(n, c, oh, ow);
  if (step.op == Op::max_pool) return y.set_steps(at, top);
  // PyTorch counts padding, but not what ceil_mode adds beyond it.
  const int64_t padded =
      (std::min(h0 + w.kernel_h, height + w.pad_h) - h0) * (std::min(w0 + w.kernel_w, width + w.pad_w) - w0);
  const auto count = static_cast<float>(w.count_include_pad ? padded : seen);
  if (!away) return y.set_steps(at, sum * (x.info.scale / y.info.scale / count));
  const double code0 = x.info.zero_point - 128;  // of s8
  y.set_steps(at, static_cast<float>(std::round(double{sum} / double{count} + code0) - code0));
}

void convert(const View& x, const View& y, int64_t batch) {
  const auto one = [&](int64_t from, int64_t to) {
    if (x.info.type == DataType::u8 && y.info.type == DataType::u8) {
      y.set_steps(to, x.steps(from) * (x.info.scale / y.info.scale));
    } else {
      y.set(to, x.get(from));
    }
  };
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) one(logical(x, i), logical(y, i));
}

/// The channel is dimension 1 of an image or a volume and the last of everything else, and innermost in memory in both.
int64_t channels_of(const View& x) {
  return x.info.layout == Layout::nhwc ? x.info.shape[1] : x.info.shape.back();
}

/// Calls f(row, channel, index) for each element.
template <typename F>
void each_channel(const View& x, int64_t batch, F f) {
  const int64_t channels = channels_of(x);
  for (int64_t i = 0; i < element_count(x.info, batch); ++i) f(i / channels, i % channels, i);
}

/// Along any dimension, element by element in logical order.
void concat_axis(const std::vector<View>& x, const View& y, size_t axis, int64_t batch) {
  int64_t offset = 0, inner = 1;
  for (size_t d = axis + 1; d < y.info.shape.size(); ++d) inner *= y.info.shape[d];
  for (const View& part : x) {
    const int64_t run = part.info.shape[axis] * inner, whole = y.info.shape[axis] * inner;
    for (int64_t i = 0; i < element_count(part.info, batch); ++i) {
      y.set_steps(logical(y, i / run * whole + offset + i % run),
                  part.steps(logical(part, i)) * (part.info.scale / y.info.scale));
    }
    offset += run;
  }
}

void concat(const std::vector<View>& x, const View& y, int64_t batch) {
  int64_t offset = 0;
  for (const View& part : x) {
    each_channel(part, batch, [&](int64_t row, int64_t c, int64_t i) {
      y.set_steps(row * channels_of(y) + offset + c, part.steps(i) * (part.info.scale / y.info.scale));
    });
    offset += channels_of(part);
  }
}

void slice(const Step& step, const View& x, const View& y, int64_t batch) {
  each_channel(y, batch, [&](int64_t row, int64_t c, int64_t i) {
    y.set_steps(i, x.steps(row * channels_of(x) + step.get<SliceAttributes>().begin + c));
  });
}

void channel_shuffle(const Step& step, const View& x, const View& y, int64_t batch) {
  const int64_t groups = step.get<ShuffleAttributes>().groups;
  const int64_t channels = channels_of(x), count = channels / groups;
  each_channel(x, batch, [&](int64_t row, int64_t c, int64_t i) {
    y.set_steps(row * channels + c % count * groups + c / count, x.steps(i));
  });
}

void flatten(const View& x, const View& y, int64_t batch) {
  View plain = y;
  plain.info.shape = x.info.shape;
  convert(x, plain, batch);
}

void depth_to_space(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& window = step.get<DepthToSpaceAttributes>().window;
  const int64_t h = window.stride_h, w = window.stride_w;
  const int64_t channels = y.info.shape[1];
  each_pixel(y, batch, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    const int64_t part = i % h * w + j % w;
    y.set_steps(y.at(n, c, i, j), x.steps(x.at(n, part * channels + c, i / h, j / w)));
  });
}

void select(const Step& step, const View& x, const View& y, int64_t batch) {
  const int64_t inner = element_count(y.info, batch) / first_of(y, batch);
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    y.set_steps(
        i, x.steps((i / inner * x.info.shape[1] + step.get<SelectAttributes>().begin) * inner + i % inner));
  }
}

void token_mean(const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const int64_t steps = x[0].info.shape[1], width = x[0].info.shape[2];
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    double sum = 0, count = 0;
    for (int64_t t = i / width * steps; t < (i / width + 1) * steps; ++t) {
      if (x.size() == 2 && x[1].id(t) == step.get<TokenAttributes>().token) continue;
      sum += x[0].get(t * width + i % width);
      ++count;
    }
    y.set(i, static_cast<float>(sum / std::max(1.0, count)));
  }
}

void layer_norm(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch) {
  const int64_t n = x.info.shape.back();
  for (int64_t row = 0; row < element_count(x.info, batch); row += n) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < n; ++i) mean += double{x.get(row + i)} / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) variance += std::pow(x.get(row + i) - mean, 2) / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) {
      double v =
          (x.get(row + i) - mean) / std::sqrt(variance + double{step.get<LayerNormAttributes>().epsilon});
      if (step.constants.contains("weight")) v *= constant_at<float>(plan, step, "weight", i);
      if (step.constants.contains("bias")) v += constant_at<float>(plan, step, "bias", i);
      y.set(row + i, static_cast<float>(v));
    }
  }
}

void group_norm(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& attributes = step.get<GroupNormAttributes>();
  const int64_t groups = attributes.groups;
  const int64_t channels = x.info.shape[1], pixels = element_count(x.info, 1) / channels / first_of(x, 1);
  const int64_t width = channels / groups * pixels;
  const auto at = [&](int64_t group, int64_t i) {
    const int64_t image = group / groups, channel = group % groups * (channels / groups) + i / pixels;
    if (x.info.layout == Layout::plain) return (image * channels + channel) * pixels + i % pixels;
    return x.at(image, channel, i % pixels / x.info.shape[3], i % x.info.shape[3]);
  };
  for (int64_t group = 0; group < first_of(x, batch) * groups; ++group) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += double{x.get(at(group, i))} / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i)
      variance += std::pow(x.get(at(group, i)) - mean, 2) / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t channel = group % groups * (channels / groups) + i / pixels;
      double v = (x.get(at(group, i)) - mean) / std::sqrt(variance + double{attributes.epsilon});
      if (step.constants.contains("weight")) v *= constant_at<float>(plan, step, "weight", channel);
      if (step.constants.contains("bias")) v += constant_at<float>(plan, step, "bias", channel);
      y.set(at(group, i), static_cast<float>(v));
    }
  }
}

void embedding(const Plan& plan, const Step& step, const View& x, const View& y, int64_t batch) {
  const int64_t width = y.info.shape.back();
  const int64_t rows = plan.constants.at(step.constants.at("weight")).shape[0];
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    int64_t id = x.id(i / width);
    if (id < 0) id += rows;
    y.set(i, weight_at(plan, step, id * width + i % width));
  }
}

void attention(const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const int64_t queries = y.info.shape[1], width = y.info.shape[2], keys = x[1].info.shape[1];
  const auto& own = step.get<AttentionAttributes>();
  const float scale = own.scale;
  const int64_t depth = width / own.heads, kv_heads = own.kv_heads > 0 ? own.kv_heads : own.heads;
  const int64_t kv_width = kv_heads * depth, shared = own.heads / kv_heads;
  for (int64_t i = 0; i < element_count(y.info, batch); ++i) {
    const int64_t row = i / width, item = row / queries, head = i % width / depth;
    double sum = 0, mixed = 0;
    const int64_t column = head / shared * depth;  // of the keys and values of the head
    const int64_t seen = own.causal ? row % queries + 1 : keys;
    const auto value = [&](int64_t key) {
      return double{x[2].get((item * keys + key) * kv_width + column + i % depth)};
    };
    for (int64_t key = own.window > 0 ? std::max<int64_t>(0, seen - own.window) : 0; key < seen; ++key) {
      double score = 0;
      for (int64_t d = 0; d < depth; ++d) {
        score += double{x[0].get(row * width + head * depth + d)} *
                 x[1].get((item * keys + key) * kv_width + column + d) * scale;
      }
      if (own.softcap > 0) score = own.softcap * std::tanh(score / own.softcap);
      if (x.size() == 4) score += x[3].get(item * keys + key);
      sum += std::exp(score);
      mixed += std::exp(score) * value(key);
    }
    double blind = 0;
    for (int64_t key = 0; key < keys && own.blind == BlindQueries::mean; ++key)
      blind += value(key) / static_cast<double>(keys);
    if (own.blind == BlindQueries::nan) blind = NAN;
    y.set(i, static_cast<float>(sum == 0 ? blind : mixed / sum));
  }
}

void dynamic_linear(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y,
                    int64_t batch) {
  const int64_t in = x[0].info.shape.back(), out = y.info.shape.back();
  const int64_t total = element_count(x[0].info, batch);
  const auto quantizer = [&](int64_t begin, int64_t end) {
    float low = 0, high = 0;
    for (int64_t i = begin; i < end; ++i) {
      low = std::min(low, x[0].get(i));
      high = std::max(high, x[0].get(i));
    }
    return Quantizer(low, high);
  };
  for (int64_t row = 0; row < total / in; ++row) {
    const Quantizer q = step.get<DynamicLinearAttributes>().per_tensor ? quantizer(0, total)
                                                                       : quantizer(row * in, row * in + in);
    for (int64_t c = 0; c < out; ++c) {
      int64_t sum = 0;
      for (int64_t k = 0; k < in; ++k) {
        sum += q.centered(x[0].get(row * in + k)) * constant_at<int8_t>(plan, step, "weight", c * in + k);
      }
      const float factor = q.scale * constant_at<float>(plan, step, "weight_scale", c);
      float v = static_cast<float>(sum) * factor;
      if (step.constants.contains("bias")) v += constant_at<float>(plan, step, "bias", c);
      if (x.size() == 2) v += x[1].get(row * out + c);
      y.set(row * out + c, activate(v, testing::activation_of(step), y));
    }
  }
}

}  // namespace

float View::steps(int64_t i) const {
  switch (info.type) {
    case DataType::u8:
      return static_cast<float>(static_cast<const uint8_t*>(data)[i] - info.zero_point);
    case DataType::bf16:
      return widen(static_cast<const uint16_t*>(data)[i]);
    case DataType::i32:
    case DataType::i64:
      return static_cast<float>(id(i));
    default:
      return static_cast<const float*>(data)[i];
  }
}

void View::set_steps(int64_t i, float value) const {
  if (info.type == DataType::u8) {
    const float q = std::nearbyint(value) + static_cast<float>(info.zero_point);
    static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(std::clamp(q, 0.0F, 255.0F));
  } else if (info.type == DataType::bf16) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
  } else if (info.type == DataType::i64) {
    static_cast<int64_t*>(data)[i] = static_cast<int64_t>(value);
  } else if (info.type == DataType::i32) {
    static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
  } else {
    static_cast<float*>(data)[i] = value;
  }
}

namespace {

/// A volume whose channels are innermost in memory is as many images as it has slices.
View images_of(View x, int64_t batch) {
  const std::vector<int64_t> shape = x.info.shape;
  if (shape.size() == 5 && x.info.layout == Layout::nhwc)
    x.info.shape = {first_of(x, batch) * shape[2], shape[1], shape[3], shape[4]};
  return x;
}

/// Steps that take each slice by itself.
void run_on_images(const Plan& plan, const Step& step, const std::vector<View>& volumes, const View& volume,
                   int64_t batch) {
  std::vector<View> x;
  for (const View& one : volumes) x.push_back(images_of(one, batch));
  const View y = images_of(volume, batch);
  if (step.op != Op::conv && step.op != Op::max_pool && step.op != Op::avg_pool)
    return resize(step, x[0], y, batch);
  each_pixel(y, batch, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    if (step.op == Op::conv) return conv_pixel(plan, step, x, y, n, c, h, w);
    pool_pixel(step, x[0], y, n, c, h, w);
  });
}

}  // namespace

void run_step(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const int64_t count = element_count(y.info, batch);
  switch (step.op) {
    case Op::conv:
    case Op::max_pool:
    case Op::avg_pool:
    case Op::resize_nearest:
    case Op::resize_bilinear:
    case Op::resize_bicubic:
      return run_on_images(plan, step, x, y, batch);
    case Op::grid_sample:
      return grid_sample(step, x[0], x[1], y, batch);
    case Op::linear:
      return linear(plan, step, x, y, batch);
    case Op::add:
      for (int64_t i = 0; i < count; ++i) {
        if (x.size() == 1) {
          const int64_t at = i % (count / first_of(y, batch));
          const float addend = y.info.type == DataType::bf16
                                   ? widen(constant_at<uint16_t>(plan, step, "addend", at))
                                   : constant_at<float>(plan, step, "addend", at);
          y.set_steps(i, activate(x[0].steps(i) + addend, testing::activation_of(step), y));
          continue;
        }
        const float sum = x[0].steps(i) * (x[0].info.scale / y.info.scale) +
                          x[1].steps(i) * (x[1].info.scale / y.info.scale);
        y.set_steps(i, activate(sum, testing::activation_of(step), y));
      }
      return;
    case Op::relu:
      for (int64_t i = 0; i < count; ++i)
        y.set_steps(i, activate(x[0].steps(i), testing::activation_of(step), y));
      return;
    case Op::global_avg_pool:
      return each_pixel(y, batch, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
        pool_pixel(step, x[0], y, n, c, h, w);
      });
    case Op::flatten:
    case Op::squeeze:
    case Op::unsqueeze:
      return flatten(x[0], y, batch);
    case Op::depth_to_space:
      return depth_to_space(step, x[0], y, batch);
    case Op::softmax:
      return softmax(x[0], y, count / y.info.shape.back(), y.info.shape.back(),
                     step.get<SoftmaxAttributes>().log);
    case Op::concat:
      if (const int64_t axis = step.get<ConcatAttributes>().axis; axis > 0) {
        return concat_axis(x, y, static_cast<size_t>(axis), batch);
      }
      return concat(x, y, batch);
    case Op::move:
      return move(step, x[0], y, batch);
    case Op::move_batch:
      return move_batch(step, x[0], y, batch);
    case Op::regroup:
      for (int64_t i = 0; i < element_count(y.info, batch); ++i) y.set_steps(i, x[0].steps(i));
      return;
    case Op::reduce:
      return reduce(step, x[0], y, batch);
    case Op::cumsum:
      return cumsum(step, x[0], y, batch);
    case Op::matmul:
      return matmul(plan, step, x, y, batch);
    case Op::pad:
      return pad(step, x[0], y, batch);
    case Op::gather:
      return gather(plan, step, x, y, batch);
    case Op::scatter:
      return scatter(step, x, y, batch);
    case Op::sort:
      return sort(step, x[0], y, batch);
    case Op::constant:
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = i % (count / first_of(y, batch));
        y.set(i, y.info.type == DataType::i64
                     ? static_cast<float>(constant_at<int64_t>(plan, step, "value", at))
                     : constant_at<float>(plan, step, "value", at));
      }
      return;
    case Op::slice:
      return slice(step, x[0], y, batch);
    case Op::channel_shuffle:
      return channel_shuffle(step, x[0], y, batch);
    case Op::convert:
      return convert(x[0], y, batch);
    case Op::select:
      return select(step, x[0], y, batch);
    case Op::layer_norm:
      return layer_norm(plan, step, x[0], y, batch);
    case Op::group_norm:
      return group_norm(plan, step, x[0], y, batch);
    case Op::embedding:
      return embedding(plan, step, x[0], y, batch);
    case Op::token_mask:
      for (int64_t i = 0; i < count; ++i) {
        y.set(i, x[0].id(i) == step.get<TokenAttributes>().token ? -std::numeric_limits<float>::infinity()
                                                                 : 0.0F);
      }
      return;
    case Op::token_mean:
      return token_mean(step, x, y, batch);
    case Op::attention:
      return attention(step, x, y, batch);
    case Op::dynamic_linear:
      return dynamic_linear(plan, step, x, y, batch);
    case Op::pointwise:
      return pointwise(plan, step, x, y, batch);
    case Op::lstm:
    case Op::gru:
      return recurrent(plan, step, x, y, batch);
    case Op::binarize:
      return binarize(plan, step, x[0], y, batch);
    case Op::binary_conv:
      return binary_conv(plan, step, x, y, batch);
    case Op::binary_linear:
      return binary_linear(plan, step, x, y, batch);
  }
}

}  // namespace ulp::runtime::plain
