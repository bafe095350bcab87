// binary_conv and binary_linear: one kernel family serves both.
#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/runtime/ops/binary_bits.h"
#include "ulp/runtime/ops/binary_forms.h"
#include "ulp/runtime/ops/conv_runner.h"

namespace ulp::runtime {
namespace {

using kernels::bit_bytes;

bool gives_bits(const StepView& view) {
  return view.constant("threshold") != nullptr;
}

/// Of the weight, whose first dimension they are.
int64_t outputs_of(const StepView& view) {
  return view.constant("weight")->shape[0];
}

void check_input(const StepView& view, int64_t channels, int64_t bytes) {
  expect_bits(view, "an input", view.input());
  if (bit_bytes(channels) != bytes) {
    view.fail("expected ", bit_bytes(channels), " bytes for ", channels, " channels, got an input ",
              shape_text(view.input().shape));
  }
}

/// Its shape behind the outputs is known; fails where sums could leave int32.
void check_weight(const StepView& view, std::vector<int64_t> shape) {
  const Constant* weight = view.constant("weight");
  if (weight == nullptr || weight->shape.size() != shape.size()) {
    view.fail("expected a constant 'weight' of ", shape.size(), " dimensions");
  }
  shape[0] = weight->shape[0];
  view.expect_constant("weight", DataType::u8, shape);
  const auto window = static_cast<int64_t>(weight->bytes.size()) / shape[0];
  if (window > kernels::kMostBinaryWindow / 8) {
    view.fail("expected at most ", kernels::kMostBinaryWindow, " channels in a window, got ", window,
              " bytes of them");
  }
}

/// What the sums become. `pixels`: a scale may have one number for each of them, too.
void check_ending(const StepView& view, std::span<const int64_t> pixels, Activation activation) {
  const int64_t outputs[] = {outputs_of(view)};
  if (gives_bits(view)) {
    view.expect_constant("threshold", DataType::i32, outputs);
    expect_flip(view, outputs[0]);
    for (const char* role : {"scale", "bias"}) {
      if (view.constant(role) != nullptr)
        view.fail("'", role, "' is for f32 results, got it with 'threshold'");
    }
    if (view.input_count() == 2) view.fail("a residual is for f32 results, got one with 'threshold'");
    if (activation != Activation::none) {
      view.fail("an activation is for f32 results, got ", to_string(activation), " with 'threshold'");
    }
    return;
  }
  if (view.constant("flip") != nullptr) view.fail("'flip' needs 'threshold'");
  const Constant* scale = view.constant("scale");
  std::vector<int64_t> map = {outputs[0]};
  map.insert(map.end(), pixels.begin(), pixels.end());
  const bool is_map = scale != nullptr && scale->shape.size() > 1 && !pixels.empty();
  view.expect_constant("scale", DataType::f32, is_map ? std::span<const int64_t>(map) : outputs);
  if (view.constant("bias") != nullptr) view.expect_constant("bias", DataType::f32, outputs);
}

std::vector<int64_t> infer_binary_conv2d(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<BinaryConvAttributes>();
  const Window& w = attributes.window;
  view.expect_images("an input", x);
  check_input(view, attributes.channels, x.shape[1]);
  check_weight(view, {0, w.kernel_h, w.kernel_w, x.shape[1]});
  const int64_t outputs = outputs_of(view);
  const std::vector<int64_t> shape = convolved(view, w, gives_bits(view) ? bit_bytes(outputs) : outputs);
  check_ending(view, std::span(shape).last(2), attributes.activation);
  return shape;
}

std::vector<int64_t> infer_binary_linear(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<BinaryLinearAttributes>();
  if (x.shape.size() < 2 || x.layout != Layout::plain) {
    view.fail("expected an input of at least 2 dimensions and layout plain, got ", shape_text(x.shape), " ",
              to_string(x.layout));
  }
  check_input(view, attributes.channels, x.shape.back());
  check_weight(view, {0, x.shape.back()});
  check_ending(view, {}, attributes.activation);
  std::vector<int64_t> shape = x.shape;
  shape.back() = gives_bits(view) ? bit_bytes(outputs_of(view)) : outputs_of(view);
  return shape;
}

void check_binary_conv_output(const StepView& view) {
  const TensorInfo& y = view.output();
  view.expect_same_layout(view.input());
  if (gives_bits(view)) return expect_bits(view, "an output", y);
  view.expect_type("an output", y.type, DataType::f32);
  if (view.input_count() == 1) return;
  const TensorInfo& r = view.input(1);
  view.expect_type("a residual", r.type, DataType::f32);
  if (r.shape != y.shape || r.layout != y.layout) {
    view.fail("expected a residual like the output, ", shape_text(y.shape), " ", to_string(y.layout),
              ", got ", shape_text(r.shape), " ", to_string(r.layout));
  }
}

kernels::BinaryConvConfig config_of(const StepView& view) {
  const TensorInfo& x = view.input();
  kernels::BinaryConvConfig config;
  config.shape.out_channels = outputs_of(view);
  config.residual = view.input_count() == 2;
  if (view.step().op == Op::binary_linear) {
    const auto& attributes = view.attributes<BinaryLinearAttributes>();
    config.shape.in_channels = attributes.channels;
    config.activation = attributes.activation;
    return config;
  }
  const auto& attributes = view.attributes<BinaryConvAttributes>();
  config.shape.in_h = rows_of(x);
  config.shape.in_w = columns_of(x);
  config.shape.in_channels = attributes.channels;
  set_window(config.shape, attributes.window);
  config.padding = attributes.padding;
  config.activation = attributes.activation;
  config.scale_map = !gives_bits(view) && view.constant("scale")->shape.size() > 1;
  return config;
}

size_t binary_conv_prepared_bytes(const StepView& view) {
  return static_cast<size_t>(kernels::binary_conv_bytes(config_of(view)));
}

std::unique_ptr<Runner> prepare_binary_conv(const StepView& view, kernels::Isa isa) {
  const TensorInfo& x = view.input();
  const bool rows = view.step().op == Op::binary_linear;
  const int64_t per_item = rows ? item_elements(x) / x.shape.back() : slices_of(x);
  const PackRules rules = rules_of(view);
  const bool measure = rules.sparse == SparseWeights::measure && doubts_bits(isa);
  const auto make = [&] {
    const kernels::BinaryConvWeights weights{.bits = constant_data<uint8_t>(view, "weight"),
                                             .scale = constant_data<float>(view, "scale"),
                                             .bias = constant_data<float>(view, "bias"),
                                             .threshold = constant_data<int32_t>(view, "threshold"),
                                             .flip = constant_data<uint8_t>(view, "flip")};
    return std::make_unique<const LayerForm>(
        make_binary_form(config_of(view), weights, isa, rules, usual_items(view, per_item), measure));
  };
  // Rows are packed for any number of them.
  std::shared_ptr<const LayerForm> form =
      rows ? packed<LayerForm>(view, "binary", make) : std::shared_ptr<const LayerForm>(make());
  return std::make_unique<ConvRunner>(std::move(form), x, per_item);
}

StepWork binary_conv_work(const StepView& view, int64_t batch) {
  const bool rows = view.step().op == Op::binary_linear;
  const int64_t channels = rows ? view.attributes<BinaryLinearAttributes>().channels
                                : view.attributes<BinaryConvAttributes>().channels;
  StepWork work = rows ? elementwise_work(view, batch)
                       : window_work(view, batch, view.attributes<BinaryConvAttributes>().window, 1);
  const TensorInfo& y = view.output();
  const size_t axis = rows ? y.shape.size() - 1 : 1;
  const double places = static_cast<double>(element_count(y, batch)) / static_cast<double>(y.shape[axis]);
  const int64_t window = rows ? 1 : view.constant("weight")->shape[1] * view.constant("weight")->shape[2];
  work.operations = 2 * places * static_cast<double>(outputs_of(view) * window * channels);
  work.math = kernels::MathType::binary;
  return work;
}

}  // namespace

const OpDef ops::binary_conv = {.max_inputs = 2,
                                .roles = {"weight", "scale", "bias", "threshold", "flip"},
                                .infer = infer_binary_conv2d,
                                .check_output = check_binary_conv_output,
                                .prepared_bytes = binary_conv_prepared_bytes,
                                .work = binary_conv_work,
                                .prepare = prepare_binary_conv};
const OpDef ops::binary_linear = {.max_inputs = 2,
                                  .roles = {"weight", "scale", "bias", "threshold", "flip"},
                                  .infer = infer_binary_linear,
                                  .check_output = check_binary_conv_output,
                                  .prepared_bytes = binary_conv_prepared_bytes,
                                  .work = binary_conv_work,
                                  .prepare = prepare_binary_conv};

}  // namespace ulp::runtime
