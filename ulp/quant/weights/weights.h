// Weight-only quantization: weights stored in 8 bits, or in 4 and fewer, everything computed in float32. Plain rounding
// needs no data; GPTQ and AWQ do (calibrated_weights.h).
//
//   auto small = ulp::quant::quantize_weights(captured, {.bits = 4});
//
// The graph holds one explicit operator before each quantized linear layer or embedding, which reads its
// result as the weight:
//
//   ulp::dequantize_weight(Tensor codes, Tensor scale, Tensor? zero_point, int columns, Tensor? minimum=None)
//     -> Tensor
//
// 8 bits: codes s8 [rows, columns], one scale a row, symmetric in [-127, 127]; or s8 [rows, groups, size] with scale f32
// [rows, groups], as files of others have them (weight_codes.h).
// 4 bits: codes u8 [rows, groups, size / 2], two in a byte, the even column in the low half; scale f32 and
// zero_point u8 [rows, groups], or None: 8. The last group of a row may be padded. w = (code - zero) * scale,
// rounded to float32 once. With minimum f32 [rows, groups], in place of zero_point: w = code * scale - minimum, the product
// and the difference rounded to float32, as GGML's Q4_K. Engines unpack the same numbers as they use them.
// 2 and 3 bits: 4 or 8 of the 16 codes of 4 bits, stored as these are.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/weights/mixed_precision_search.h"
#include "ulp/quant/weights/quantized_weight.h"
#include "ulp/quant/weights/weight_method.h"

namespace ulp::quant {

/// An exception from the recipe for some weights. What is left out is as the recipe has it.
struct ULP_API WeightOverride {
  std::string weight;  ///< its name, or the path of a module that has it; '*' matches any run of characters
  std::optional<int64_t> bits = {};
  std::optional<int64_t> group = {};
  std::optional<bool> affine = {};  ///< left out beside 8 bits: false
  std::optional<WeightMethod> method = {};
  void visit_fields(FieldVisitor& visit);
  bool operator==(const WeightOverride&) const = default;
};

/// Which weights are stored small, and how.
struct ULP_API WeightOnlyRecipe {
  static constexpr const char* kType = "ulp.quant.WeightOnlyRecipe";

  int64_t bits = 8;    ///< 8: a scale for each output channel; 4, 3 or 2: one for each group
  int64_t group = 32;  ///< up to 4 bits: neighbours in a row that share a scale; even. -1: the whole row
  /// Up to 4 bits: a zero point for each group, else symmetric: in [-7, 7], [-4, 3] or [-2, 1].
  bool affine = false;
  bool embeddings =
      true;  ///< embeddings, too, not linear layers alone; they keep 4 bits where layers have fewer
  /// Module paths left in float; '*' matches any run of characters.
  std::vector<std::string> skip_modules = {};
  /// Other than rtn: for linear layers, with calibration data (calibrated_weights.h). Embeddings are rounded.
  WeightMethod method = WeightMethod::rtn;
  /// gptq: columns of the largest second moments come first; scales are then those of the weights as they were.
  bool act_order = false;
  bool static_groups =
      false;            ///< gptq: scales are those of the weights as they were before errors were made up for
  double damp = 0.01;   ///< gptq: so much of the mean of the Hessian's diagonal is added to it
  int64_t block = 128;  ///< gptq: columns whose errors reach the others in one product
  bool clip = true;     ///< awq: ranges of groups are clipped where that lessens the error
  /// Inputs of each layer are computed from the start, so that no activations are kept: less memory, more time.
  bool recompute = false;
  bool rotate = false;                         ///< the residual stream is rotated first (rotate_residual.h)
  std::vector<WeightOverride> overrides = {};  ///< by name; later ones win
  /// Bits and methods of each weight are searched for (mixed_precision.h); takes data.
  std::optional<MixedPrecisionSearch> search = {};

  /// 4 bits in groups of 32: what Recipe::weight_only() says.
  static WeightOnlyRecipe four_bits();
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// Which codes a weight has, and what shares a scale. 2 and 3 bits use all codes: one of so few is too many to
  /// give away.
  Scheme scheme() const;
  /// The recipe of the weight of this name, without overrides.
  WeightOnlyRecipe of_weight(const std::string& name) const;
  /// Whether any weight, or a candidate of the search, may have this method.
  bool takes(WeightMethod wanted) const;
  /// Whether data decide codes of any weight.
  bool needs_data() const;
  /// {"type": "ulp.quant.WeightOnlyRecipe", "version": 3, ...}; reading is as Recipe::from_json(), and fields
  /// that are missing keep the values of four_bits().
  std::string to_json() const;
  static WeightOnlyRecipe from_json(const std::string& text);
  bool operator==(const WeightOnlyRecipe&) const = default;
};
/// The name of version 0.1.
using WeightOptions = WeightOnlyRecipe;

/// Converts a recipe of the backend weight_only. Throws ulp::Error for another backend, a scheme
/// that is none of those above, and fields that have no meaning here.
ULP_API WeightOnlyRecipe weight_options(const Recipe& recipe);

/// A copy of a captured model, in eval mode, whose linear layers and embeddings read stored codes; products with stored
/// matrices [in, out] (addmm, matmul: GPT-2's Conv1D) are linear layers, too. The captured one stays as it is. Throws ulp::Error for bad options, a skip pattern that matches no module,
/// weights that are not finite, a model without such layers, and a method that needs data. `report` receives what was
/// quantized, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> quantize_weights(
    const std::shared_ptr<graph::GraphModule>& captured, const WeightOnlyRecipe& options = {},
    graph::PassReport* report = nullptr);

/// The operator by itself: f32 [rows, columns]. Throws ulp::Error for shapes or types other than above.
ULP_API at::Tensor dequantize_weight(const at::Tensor& codes, const at::Tensor& scale,
                                     const std::optional<at::Tensor>& zero_point, int64_t columns,
                                     const std::optional<at::Tensor>& minimum = std::nullopt);
/// Dequantizes the parts of `codes`.
ULP_API at::Tensor dequantize_weight(const StoredQuantizedWeight& codes);

}  // namespace ulp::quant
