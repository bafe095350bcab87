// Weight-only quantization: weights stored in 8 or 4 bits, everything computed in float32. No data is needed.
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
#include "ulp/quant/weights/weight_codes.h"

namespace ulp::quant {

/// Which weights are stored small, and how.
struct ULP_API WeightOnlyRecipe {
  static constexpr const char* kType = "ulp.quant.WeightOnlyRecipe";

  int64_t bits = 8;        ///< 8: a scale for each output channel; 4: one for each group
  int64_t group = 32;      ///< 4 bits: neighbours in a row that share a scale; even
  bool affine = false;     ///< 4 bits: a zero point for each group, else symmetric in [-7, 7]
  bool embeddings = true;  ///< embeddings, too, not linear layers alone
  /// Module paths left in float; '*' matches any run of characters.
  std::vector<std::string> skip_modules = {};

  /// 4 bits in groups of 32: what Recipe::weight_only() says.
  static WeightOnlyRecipe four_bits();
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// How the codes of a weight are chosen.
  Scheme scheme() const;
  /// {"type": "ulp.quant.WeightOnlyRecipe", "version": 1, ...}; reading is as Recipe::from_json(), and fields
  /// that are missing keep the values of four_bits().
  std::string to_json() const;
  static WeightOnlyRecipe from_json(const std::string& text);
  bool operator==(const WeightOnlyRecipe&) const = default;
};
/// The name of version 0.1.
using WeightOptions = WeightOnlyRecipe;

/// What a recipe of the backend weight_only says of weights. Throws ulp::Error for another backend, a scheme
/// that is none of those above, and fields that have no meaning here.
ULP_API WeightOnlyRecipe weight_options(const Recipe& recipe);

/// A copy of a captured model, in eval mode, whose linear layers and embeddings read stored codes; products with stored
/// matrices [in, out] (addmm, matmul: GPT-2's Conv1D) are linear layers, too. The captured one stays as it is. Throws ulp::Error for bad options, a skip pattern that matches no module,
/// weights that are not finite, and a model without such layers. `report` receives what was quantized, and
/// what not and why.
ULP_API std::shared_ptr<graph::GraphModule> quantize_weights(
    const std::shared_ptr<graph::GraphModule>& captured, const WeightOnlyRecipe& options = {},
    graph::PassReport* report = nullptr);

/// The operator by itself: f32 [rows, columns]. Throws ulp::Error for shapes or types other than above.
ULP_API at::Tensor dequantize_weight(const at::Tensor& codes, const at::Tensor& scale,
                                     const std::optional<at::Tensor>& zero_point, int64_t columns,
                                     const std::optional<at::Tensor>& minimum = std::nullopt);
/// Of the parts of `codes`.
ULP_API at::Tensor dequantize_weight(const WeightCodes& codes);

}  // namespace ulp::quant
