// conv and linear: one kernel family serves both, a linear layer being a 1x1 convolution over a 1x1 image.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ulp/kernels/conv/conv.h"
#include "ulp/runtime/ops/conv_runner.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/quantized_linear.h"

namespace ulp::runtime {
namespace {

/// Sum of |weight| times 255, the largest code, and |bias|: what an accumulator never exceeds. Where the number of weights
/// tells that nothing can overflow, it is a bound on that, and the weights are not read.
int64_t largest_accumulator(const int8_t* weight, int64_t per_channel, int64_t bias) {
  const int64_t bound = per_channel * 128 * 255 + std::llabs(bias);
  if (bound <= std::numeric_limits<int32_t>::max()) return bound;
  int64_t sum = 0;
  for (int64_t k = 0; k < per_channel; ++k) sum += std::abs(int{weight[k]});
  return sum * 255 + std::llabs(bias);
}

ConstantFacts::Channels look_through(const StepView& view, int64_t channels, int64_t per_channel) {
  const int8_t* weight = constant_data<int8_t>(view, "weight");
  const int32_t* bias = constant_data<int32_t>(view, "bias");
  const float* scale = constant_data<float>(view, "weight_scale");
  ConstantFacts::Channels found;
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t sum =
        largest_accumulator(weight + c * per_channel, per_channel, bias == nullptr ? 0 : bias[c]);
    if (sum > found.largest_sum) found.largest_sum = sum, found.largest = c;
    const bool right = scale[c] > 0 && std::isfinite(scale[c]);
    if (found.positive && !right) found.positive = false, found.low = found.high = c;
    if (found.positive && scale[c] < scale[found.low]) found.low = c;
    if (found.positive && scale[c] > scale[found.high]) found.high = c;
  }
  return found;
}

/// look_through(), once for steps that share their constants.
ConstantFacts::Channels channels_of(const StepView& view, int64_t channels, int64_t per_channel) {
  if (view.facts() == nullptr) return look_through(view, channels, per_channel);
  std::string key;
  for (const auto& [role, name] : view.step().constants)
    key += role + '\n' + name + shape_text(view.constant(role.c_str())->shape) + '\n';
  const auto [at, fresh] = view.facts()->channels.try_emplace(key);
  if (fresh) at->second = look_through(view, channels, per_channel);
  return at->second;
}

/// The accumulator is exact only while |bias| + 255 * sum |w| stays inside int32, and the multiplier must be
/// a number: the smallest and the largest scale tell it of all.
void check_u8_channels(const StepView& view, int64_t channels, int64_t per_channel) {
  const ConstantFacts::Channels found = channels_of(view, channels, per_channel);
  if (found.largest_sum > std::numeric_limits<int32_t>::max()) {
    view.fail("expected an int8 layer whose sums fit 32 bits, up to ", std::numeric_limits<int32_t>::max(),
              ", got one whose channel ", found.largest, " can reach ", found.largest_sum,
              "; leave the layer in float by the recipe");
  }
  for (const int64_t channel : {found.low, found.high}) {
    const float scale = constant_data<float>(view, "weight_scale")[channel];
    const float multiplier = view.input().scale * scale / view.output().scale;
    if (found.positive && std::isfinite(multiplier)) continue;
    view.fail("expected 'weight_scale' and the multiplier of channel ", channel,
              " to be finite and > 0, got ", scale, " and ", multiplier);
  }
}

void check_weights(const StepView& view, const std::vector<int64_t>& weight_shape) {
  const int64_t channels[] = {weight_shape[0]};
  const DataType type = view.input().type;
  if (type != DataType::f32 && type != DataType::bf16 && type != DataType::u8) {
    view.fail("expected an input of type f32, bf16 or u8, got ", to_string(type));
  }
  const bool u8 = type == DataType::u8;
  view.expect_constant("weight", u8 ? DataType::i8 : type, weight_shape);
  if (view.constant("bias") != nullptr) {
    view.expect_constant("bias", u8 ? DataType::i32 : DataType::f32, channels);
  }
  if (u8) {
    view.expect_constant("weight_scale", DataType::f32, channels);
  } else if (view.constant("weight_scale") != nullptr) {
    view.fail("'weight_scale' is for u8 inputs, got it with ", to_string(type));
  }
}

/// Common to conv and linear; the weight's shape is known to be right.
void check_result(const StepView& view, Activation activation) {
  const TensorInfo& x = view.input();
  const TensorInfo& y = view.output();
  view.expect_same_layout(x);
  if (is_coded_linear(view)) view.expect_curve_on_f32(activation);
  const bool narrows = x.type == DataType::f32 && y.type == DataType::bf16 && !is_coded_linear(view);
  if (y.type != x.type && y.type != DataType::f32 && !narrows) {
    view.fail("expected an output of type ", to_string(x.type), " or f32, got ", to_string(y.type));
  }
  if (x.type == DataType::u8) {
    const Constant& weight = *view.constant("weight");
    const int64_t channels = weight.shape[0];
    const int64_t per_channel = static_cast<int64_t>(weight.bytes.size()) / channels;
    check_u8_channels(view, channels, per_channel);
  }
  if (view.input_count() == 2) {
    const TensorInfo& r = view.input(1);
    if (is_coded_linear(view)) view.expect_type("a residual", r.type, DataType::f32);
    view.expect_activation_type(r);
    if (r.shape != y.shape || r.layout != y.layout) {
      view.fail("expected a residual like the output, ", shape_text(y.shape), " ", to_string(y.layout),
                ", got ", shape_text(r.shape), " ", to_string(r.layout));
    }
    if (!std::isfinite(r.scale / y.scale)) view.fail("the residual's scale is too far from the output's");
  }
}

void check_conv(const StepView& view) {
  check_result(view, view.attributes<ConvAttributes>().activation);
}

void check_linear(const StepView& view) {
  check_result(view, view.attributes<ActivationAttributes>().activation);
}

std::vector<int64_t> infer_conv(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<ConvAttributes>();
  const Window& w = attributes.window;
  const int64_t groups = attributes.groups;
  view.expect_images("an input", x);
  const Constant* weight = view.constant("weight");
  if (weight == nullptr || weight->shape.size() != 4) {
    view.fail("expected a constant 'weight' of 4 dimensions");
  }
  const int64_t channels = weight->shape[0];
  if (x.shape[1] % groups != 0 || channels % groups != 0) {
    view.fail("expected ", x.shape[1], " input and ", channels, " output channels to divide by ", groups,
              " groups");
  }
  check_weights(view, {channels, x.shape[1] / groups, w.kernel_h, w.kernel_w});
  return convolved(view, w, channels);
}

std::vector<int64_t> infer_linear(const StepView& view) {
  if (is_coded_linear(view)) return infer_coded_linear(view);
  for (const char* role : {"weight_zero", "weight_minimum"}) {
    if (view.constant(role) != nullptr) view.fail("'", role, "' is for 4-bit codes");
  }
  const TensorInfo& x = view.input();
  if (x.shape.size() < 2 || x.layout != Layout::plain) {
    view.fail("expected an input of at least 2 dimensions and layout plain, got ", shape_text(x.shape), " ",
              to_string(x.layout));
  }
  const Constant* weight = view.constant("weight");
  if (weight == nullptr || weight->shape.size() != 2) {
    view.fail("expected a constant 'weight' of 2 dimensions");
  }
  check_weights(view, {weight->shape[0], x.shape.back()});
  std::vector<int64_t> shape = x.shape;
  shape.back() = weight->shape[0];
  return shape;
}

/// What conv and linear have in common; the shape is theirs.
kernels::ConvConfig config_of(const StepView& view, Activation activation) {
  const TensorInfo& x = view.input();
  const TensorInfo& y = view.output();
  kernels::ConvConfig config;
  config.input = x.type;
  config.output = y.type;
  config.activation = activation;
  config.input_q = affine_of(x);
  config.output_q = affine_of(y);
  if (view.input_count() == 2) {
    config.residual = true;
    config.residual_type = view.input(1).type;
    config.residual_q = affine_of(view.input(1));
  }
  return config;
}

kernels::ConvWeights weights_of(const StepView& view) {
  const DataType type = view.input().type;
  kernels::ConvWeights weights;
  if (type == DataType::u8) {
    weights.i8 = constant_data<int8_t>(view, "weight");
    weights.scale = constant_data<float>(view, "weight_scale");
    weights.bias_i32 = constant_data<int32_t>(view, "bias");
    return weights;
  }
  if (type == DataType::bf16) {
    weights.bf16 = constant_data<uint16_t>(view, "weight");
  } else {
    weights.f32 = constant_data<float>(view, "weight");
  }
  weights.bias = constant_data<float>(view, "bias");
  return weights;
}

/// `per_item`: images or rows in an item of the batch.
std::unique_ptr<Runner> prepare_conv(const StepView& view, const kernels::ConvConfig& config,
                                     int64_t per_item, kernels::Isa isa) {
  const PackRules rules = rules_of(view);
  const auto make = [&] {
    return std::make_unique<const LayerForm>(
        make_layer_form(config, weights_of(view), isa, rules, usual_items(view, per_item)));
  };
  // A convolution is packed for the size of its images, a linear layer for any number of rows.
  std::shared_ptr<const LayerForm> form = view.step().op == Op::linear
                                              ? packed<LayerForm>(view, "linear", make)
                                              : std::shared_ptr<const LayerForm>(make());
  return std::make_unique<ConvRunner>(std::move(form), view.input(), per_item);
}

std::unique_ptr<Runner> prepare_conv(const StepView& view, kernels::Isa isa) {
  return prepare_conv(view, conv_layer(view).config, slices_of(view.input()), isa);
}

std::unique_ptr<Runner> prepare_linear(const StepView& view, kernels::Isa isa) {
  if (is_coded_linear(view)) return prepare_coded_linear(view, isa);
  const TensorInfo& x = view.input();
  kernels::ConvConfig config = config_of(view, view.attributes<ActivationAttributes>().activation);
  config.shape.in_channels = x.shape.back();
  config.shape.out_channels = view.output().shape.back();
  return prepare_conv(view, config, item_elements(x) / x.shape.back(), isa);
}

StepWork conv_work(const StepView& view, int64_t batch) {
  const std::vector<int64_t>& weight = view.constant("weight")->shape;
  StepWork work =
      window_work(view, batch, view.attributes<ConvAttributes>().window, 2 * static_cast<double>(weight[1]));
  work.math = math_of(view.input().type);
  return work;
}

StepWork linear_work(const StepView& view, int64_t batch) {
  return product_work(view, batch, static_cast<double>(view.input().shape.back()));
}

}  // namespace

kernels::BlockLayer conv_layer(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<ConvAttributes>();
  kernels::ConvConfig config = config_of(view, attributes.activation);
  config.shape.in_h = rows_of(x);
  config.shape.in_w = columns_of(x);
  config.shape.in_channels = x.shape[1];
  config.shape.out_channels = view.output().shape[1];
  config.shape.groups = attributes.groups;
  set_window(config.shape, attributes.window);
  return {config, weights_of(view)};
}

const OpDef ops::conv = {.max_inputs = 2,
                         .roles = {"weight", "bias", "weight_scale"},
                         .infer = infer_conv,
                         .check_output = check_conv,
                         .work = conv_work,
                         .prepare = prepare_conv};
const OpDef ops::linear = {.max_inputs = 2,
                           .roles = {"weight", "bias", "weight_scale", "weight_zero", "weight_minimum"},
                           .infer = infer_linear,
                           .check_output = check_linear,
                           .work = linear_work,
                           .prepare = prepare_linear};

}  // namespace ulp::runtime
