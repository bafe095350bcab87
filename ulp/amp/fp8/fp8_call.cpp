#include "ulp/amp/fp8/fp8_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <map>
#include <mutex>

#include "ulp/amp/fp8/fp8_sink.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

using torch::autograd::AutogradContext;

constexpr const char* kFp8Where = "amp.fp8";
constexpr const char* kCallName = "call";

/// Texts are read once.
Fp8LayerRecipe recipe_of(const std::string& text) {
  static std::mutex mutex;
  static std::map<std::string, Fp8LayerRecipe> known;
  const std::scoped_lock lock(mutex);
  const auto found = known.find(text);
  return found != known.end() ? found->second
                              : known.emplace(text, Fp8LayerRecipe::from_text(text)).first->second;
}

formats::RandomKey next_random() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return {.seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64(), .stream = 0};
}

std::optional<formats::RandomKey> random_of(const Fp8LayerRecipe& recipe, Fp8Role role) {
  const bool random = recipe.scaling == Fp8Scaling::nvfp4 && recipe.stochastic && role == Fp8Role::gradient;
  return random ? std::optional(next_random()) : std::nullopt;
}

void check_operands(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  for (const at::Tensor& one : {x, weight}) {
    if (!one.defined() || !one.is_floating_point())
      fail(kFp8Where, "expected floating-point operands, got ", one.defined() ? one.toString() : "none");
  }
  if (x.device() != weight.device())
    fail(kFp8Where, "expected operands on one device, got ", x.device(), " and ", weight.device());
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0)))
    fail(kFp8Where, "expected a bias [", weight.size(0), "], got ", bias.sizes());
}

}  // namespace

Fp8Tensor Fp8Call::quantize(const at::Tensor& x, Fp8Role role) const {
  Fp8Tensor made;
  if (recipe.scaling == Fp8Scaling::delayed) {
    made = quantize_whole(x, fp8_format(recipe, role), state.scale_of(role));
    if (trains()) state.note(role, amax_of(x));
  } else {
    made = quantize_fp8(x, recipe, role, random_of(recipe, role));
  }
  tell_fp8_sink(name, role, x, made);
  return made;
}

Fp8Operand Fp8Call::quantize_matrix(const at::Tensor& x, Fp8Role role, bool both) const {
  Fp8Operand out{quantize(x, role), {}};
  if (!both) return out;
  const Fp8Block& block = out.by_columns.block;
  if (out.by_columns.scale_inv.dim() == 0 || block.rows == block.columns) {
    out.by_rows = out.by_columns.transposed();
    return out;
  }
  // For the weight's gradient, which sums over the samples.
  at::Tensor turned = x.detach().t();
  if (recipe.scaling == Fp8Scaling::nvfp4 && recipe.hadamard) turned = hadamard_16(turned);
  out.by_rows = quantize_fp8(turned, recipe, role, random_of(recipe, role));
  return out;
}

QuantizedWeight Fp8Call::quantize_weight(const at::Tensor& weight, bool matrix) const {
  std::string key = recipe_text + (needs_input ? " both" : "");
  // What an evaluation rounds has noted no magnitude: training makes it again.
  if (recipe.scaling == Fp8Scaling::delayed && !trains()) key += " evaluated";
  return quantized_weight(weight, key, [&]() -> QuantizedWeight {
    if (!matrix) return {quantize(weight, Fp8Role::weight), {}};
    Fp8Operand made = quantize_matrix(weight, Fp8Role::weight, needs_input);
    return {std::move(made.by_columns), std::move(made.by_rows)};
  });
}

c10::intrusive_ptr<Fp8Call> fp8_call(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                     const std::optional<at::Tensor>& scale,
                                     const std::optional<at::Tensor>& amax_history, c10::string_view recipe,
                                     c10::string_view name) {
  check_operands(x, weight, bias);
  auto call = c10::make_intrusive<Fp8Call>();
  call->name = std::string(name);
  call->recipe_text = std::string(recipe);
  call->recipe = recipe_of(call->recipe_text);
  call->state = {scale.value_or(at::Tensor()), amax_history.value_or(at::Tensor())};
  check_fp8_state(call->state, call->recipe);
  const at::DeviceType device = x.device().type();
  const bool autocast = at::autocast::is_autocast_enabled(device);
  call->result = autocast ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
  call->input_dtype = x.scalar_type();
  call->weight_dtype = weight.scalar_type();
  const bool records = at::GradMode::is_enabled();
  call->needs_input = records && x.requires_grad();
  call->needs_weight = records && weight.requires_grad();
  call->needs_bias = records && bias.defined() && bias.requires_grad();
  if (bias.defined()) call->bias_dtype = bias.scalar_type();
  return call;
}

c10::intrusive_ptr<Fp8Call> call_of(AutogradContext& context) {
  if (at::GradMode::is_enabled())
    fail(kFp8Where, "expected a backward pass without create_graph; gradients of fp8 layers have none");
  return c10::static_intrusive_pointer_cast<Fp8Call>(context.saved_data.at(kCallName).toCapsule());
}

void save_operands(AutogradContext& context, const c10::intrusive_ptr<Fp8Call>& call, const Fp8Tensor& x,
                   const Fp8Tensor& weight) {
  context.save_for_backward({x.codes, x.scale_inv, weight.codes, weight.scale_inv});
  context.saved_data[kCallName] = c10::IValue::make_capsule(call);
}

SavedOperands saved_operands(const AutogradContext& context, const Fp8Call& call) {
  const std::vector<at::Tensor> saved = context.get_saved_variables();
  const auto tensor = [&](Fp8Role role, size_t first) {
    return Fp8Tensor{.format = &fp8_format(call.recipe, role),
                     .codes = saved[first],
                     .scale_inv = saved[first + 1],
                     .block = fp8_block(call.recipe, role)};
  };
  return {tensor(Fp8Role::input, 0), tensor(Fp8Role::weight, 2)};
}

}  // namespace ulp::amp
