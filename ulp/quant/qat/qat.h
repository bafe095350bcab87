// Quantization-aware training of a captured model: train with rounded weights and activations, then convert.
//
//   auto qat = ulp::quant::prepare_qat(captured, Recipe::x86_int8());
//   for (...) {
//     qat->train();
//     loss(qat->forward({x}), y).backward();
//     optimizer.step();
//     schedule.apply(*qat, epoch);
//   }
//   auto quantized = ulp::quant::convert_qat(qat);  // the form of quantize.h, ready for ulp::lower
//
// The parameters are those of the captured model, under their own names, in fp32; docs/qat.md says what is
// computed.
#pragma once

#include <cstdint>
#include <memory>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/binary/binary_options.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

/// How a batch norm behind a layer is foreseen in the layer's quantized weights while its statistics are
/// those of the batch. W is the layer's weight, FQ the fake quantization, f = gamma / sqrt(running variance +
/// eps).
enum class BatchNormFolding : uint8_t {
  /// One convolution: BN(conv(x, FQ(W f)) / f + bias), f kept away from zero for the division.
  fast,
  /// Two: conv(x, W, bias) gives the statistics of the batch, conv(x, FQ(W f), f bias) the result, which is
  /// then scaled from the running to the batch's deviation. No division by gamma, and no error of rounding
  /// in the statistics.
  exact
};

/// The quantization parameters that are trained besides the model.
enum class LearnedParameters : uint8_t {
  none,                 ///< scales and zero points come from observers
  scale,                ///< LSQ: scales are parameters, started by the first batch
  scale_and_zero_point  ///< LSQ+: zero points of affine activations, too
};

/// Whose gradients learned parameters have. Values are the same, but for infinities.
enum class LearnedGradients : uint8_t {
  forward,  ///< of the codes of the forward pass: ulp::fake_quantize_learned
  /// Gradients of LibTorch's _fake_quantize_learnable_per_tensor_affine and per_channel_affine, bit for bit.
  /// Their backward pass finds the codes anew and adds the zero point before rounding, so that ties, and
  /// values half a step outside the range, may count on the other side; sums are in fp32.
  pytorch
};

}  // namespace ulp::quant

template <>
struct ulp::EnumNames<ulp::quant::BatchNormFolding> {
  static constexpr std::array<Word<quant::BatchNormFolding>, 2> list = {
      {{quant::BatchNormFolding::fast, "fast", "one pass"},
       {quant::BatchNormFolding::exact, "exact", "two passes"}}};
};
template <>
struct ulp::EnumNames<ulp::quant::LearnedParameters> {
  static constexpr std::array<Word<quant::LearnedParameters>, 3> list = {
      {{quant::LearnedParameters::none, "none", "ranges are observed"},
       {quant::LearnedParameters::scale, "scale", "LSQ"},
       {quant::LearnedParameters::scale_and_zero_point, "scale_and_zero_point", "LSQ+"}}};
};
template <>
struct ulp::EnumNames<ulp::quant::LearnedGradients> {
  static constexpr std::array<Word<quant::LearnedGradients>, 2> list = {
      {{quant::LearnedGradients::forward, "forward", "of the codes that the forward pass chose"},
       {quant::LearnedGradients::pytorch, "pytorch", "of PyTorch's operators, bit for bit"}}};
};

namespace ulp::quant {

/// How a model is made ready for quantization-aware training.
struct ULP_API QatOptions {
  BatchNormFolding folding = BatchNormFolding::fast;
  LearnedParameters learned = LearnedParameters::none;
  LearnedGradients learned_gradients = LearnedGradients::forward;  ///< of what is learned
  BinaryOptions binary = {};                                       ///< of recipes for Backend::binary

  void visit_fields(FieldVisitor& visit);
  bool operator==(const QatOptions&) const = default;
};

struct QatState;
struct QatParts;

/// A model in quantization-aware training; starts in train mode. In eval mode it computes what the converted
/// graph computes, and nothing is observed.
class ULP_API QatModule final : public graph::GraphModule {
 public:
  QatModule(std::unique_ptr<QatParts> parts, std::shared_ptr<graph::Graph> graph);
  ~QatModule() override;

  /// Disabled: activations keep their parameters (learned ones still learn), and weights those of the last
  /// forward pass in train mode.
  void set_observers_enabled(bool enabled);
  bool observers_enabled() const;
  /// Disabled: values and weights pass unrounded; observers work on.
  void set_fake_quant_enabled(bool enabled);
  bool fake_quant_enabled() const;
  /// Frozen: every batch norm uses its running statistics and leaves them alone, in train mode, too; gamma
  /// and beta still learn. train() does not undo it.
  void freeze_batch_norm(bool frozen = true);
  bool batch_norm_frozen() const;
  /// Off: layers that become binary multiply the signs of their inputs with the weights as they are.
  void set_binary_weights(bool binary);
  bool binary_weights() const;

  const Recipe& recipe() const;
  /// Lists what is quantized, and what is not and why.
  const graph::PassReport& report() const;

 private:
  friend ULP_API std::shared_ptr<graph::GraphModule> convert_qat(const std::shared_ptr<QatModule>&,
                                                                 graph::PassReport*);
  std::unique_ptr<QatParts> parts_;
};

/// When to freeze, counted in steps or in epochs, whichever apply() is called with.
struct ULP_API QatSchedule {
  int64_t fake_quantize_from = 0;     ///< before that the model trains in float and is only observed
  int64_t freeze_observers_at = -1;   ///< -1: never
  int64_t freeze_batch_norm_at = -1;  ///< -1: never
  int64_t binary_weights_from = 0;    ///< before that only the activations of binary layers are signs
  /// Sets all four switches to what they are at `now`, so that a resumed run need not remember them. Throws
  /// ulp::Error if observers would be frozen before they can be used.
  void apply(QatModule& module, int64_t now) const;
};

/// Everything that says how a model is trained on quantized numbers, besides the training itself.
struct ULP_API QatRecipe {
  static constexpr const char* kType = "ulp.quant.QatRecipe";

  Recipe tensors = Recipe::x86_int8();  ///< which ops, and how their tensors are quantized
  QatOptions options = {};
  double fake_quantize_after = 0.0;      ///< share of the steps that train in float and are only observed
  double freeze_batch_norm_after = 0.5;  ///< share of the steps; 1: never
  double freeze_observers_after = 0.75;  ///< share of the steps; 1: never

  /// The switches of a run of so many steps.
  QatSchedule schedule(int64_t total_steps) const;
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.quant.QatRecipe", "version": 2, "tensors": {...}, ...}; reading is as Recipe::from_json().
  /// A "training" object is passed over: it is for those who train (ulp quantize).
  std::string to_json() const;
  static QatRecipe from_json(const std::string& text);
  bool operator==(const QatRecipe&) const = default;
};

/// A copy of the captured model that trains as the recipe will quantize it; parameters and buffers are shared
/// with it. Activations are observed by moving averages with the recipe's averaging constant (or have its
/// fixed bounds), weights by the recipe's observer at every step. With Recipe::binary() layers become binary as
/// options.binary says, and what the recipe's `ops` names of the rest is quantized as with the others; see
/// binary_weights.h for what the training loop owes to the weights. Throws ulp::Error as prepare() does.
ULP_API std::shared_ptr<QatModule> prepare_qat(const std::shared_ptr<graph::GraphModule>& captured,
                                               const Recipe& recipe, const QatOptions& options = {});

/// The trained model with explicit quantize and dequantize nodes, in the form of quantize.h, with the
/// integers that the training saw, and the signs of binary layers as ulp::binarize and ulp::unpack_signs. Throws ulp::Error naming the layer where there was no data, or NaN.
/// `report` receives what was quantized, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> convert_qat(const std::shared_ptr<QatModule>& module,
                                                        graph::PassReport* report = nullptr);

}  // namespace ulp::quant
