// Weight-only quantization decided by data: GPTQ and AWQ.
//
//   auto small = ulp::quant::gptq(captured, [&](const auto& run) {
//     for (const at::Tensor& batch : calibration) run({batch});
//   }, {.bits = 4, .group = 128, .act_order = true});
//
// The result is that of quantize_weights(): the same operators, codes and engine. Layers are quantized in
// order of execution, and the inputs of each are those that the layers before it give with their codes. Of
// the data a layer is told two sums over the rows x of its input: H = sum x x^T, the Hessian of ||(W - Q)
// X||^2 but for a factor, and sum |x|. They are kept for one layer at a time (for all that read one value:
// queries, keys and values share them).
//
// Embeddings, and layers that share their weight with one, are rounded as without data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/calibrate.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// The error that a method leaves in one layer.
struct WeightError {
  std::string layer;       ///< its label
  std::string weight;      ///< name of the weight
  int64_t rows = 0;        ///< of its input that calibrated; 0: rounded without data
  int64_t columns = 0;     ///< of the weight
  int64_t groups = 0;      ///< a row
  double error = 0;        ///< ||(W - Q) X||^2 / ||W X||^2; 0 where no data reached it
  double plain_error = 0;  ///< the same of plain rounding
  double damp = 0;         ///< gptq: what was added to the diagonal, as a share of its mean
  double alpha = 0;        ///< awq: scales are (mean |x|)^alpha
  std::string note;        ///< what else there is to say; may be empty
};

/// So many inputs of layers are done; `layer` is the one that comes next or, at the end, empty.
using OnLayer = std::function<void(int64_t done, int64_t total, const std::string& layer)>;

/// quantize_weights() by the recipe's method; `data` is not read by rtn. It is called once; with
/// WeightOnlyRecipe::recompute once for each input of layers. Batches are not kept; unless recompute is set,
/// the activations are that later layers need: those of one place in the model. The captured model stays as
/// it is, also where this throws. Throws what quantize_weights() does, and ulp::Error naming the layer for no
/// data, a layer that no row of data reaches, inputs that are NaN or infinite or whose squares are, and a
/// Hessian that no damping makes positive definite. Fewer rows than columns are allowed, since damping makes
/// up for them, and noted. `report` and `errors` (may be null) receive what was quantized, and how far off
/// each layer is.
ULP_API std::shared_ptr<graph::GraphModule> quantize_weights(
    const std::shared_ptr<graph::GraphModule>& captured, const WeightOnlyRecipe& recipe,
    const CalibrationData& data, graph::PassReport* report = nullptr,
    std::vector<WeightError>* errors = nullptr, const OnLayer& on_layer = {});

/// GPTQ (Frantar, Ashkboos, Hoefler, Alistarh 2022, arXiv 2210.17323, algorithm 1): columns are rounded in
/// order, and what each leaves over is made up for by those behind it. With U the upper Cholesky factor of (H
/// + damp mean(diag H) I)^-1:
///   q_j = round(w_j), e_j = (w_j - q_j) / U_jj, w_k -= e_j U_jk for k > j
/// Scales of a group are found when its first column is reached, of the weights as they are then; with
/// act_order or static_groups beforehand. act_order takes columns by descending diag(H); codes stay in their
/// own places. Where the Cholesky factorization fails, damping grows tenfold, up to 1; WeightError says how
/// much it took. Inputs that were always zero leave their column to plain rounding. A layer that comes out
/// worse than by plain rounding is rounded plainly, and the report says so. `recipe.method` is taken for
/// gptq; everything else is as in quantize_weights().
ULP_API std::shared_ptr<graph::GraphModule> gptq(const std::shared_ptr<graph::GraphModule>& captured,
                                                 const CalibrationData& data,
                                                 const WeightOnlyRecipe& recipe = {.bits = 4, .group = 128},
                                                 graph::PassReport* report = nullptr,
                                                 std::vector<WeightError>* errors = nullptr);

/// AWQ (Lin et al. 2023, arXiv 2306.00978, section 3.2): W x = (W diag(s)) (x / s) with s = (mean |x|)^alpha,
/// divided by sqrt(max s min s). Of alpha = 0, 1/20, ..., 19/20 the one with the least ||(W - Q(W s) / s)
/// X||^2 over all layers that read x is taken; then (`clip`) the range of each group is shrunk by 1, 0.95,
/// ..., 0.55 to the least error of the group alone. 1 / s goes into the norm, the product with a stored
/// vector or the linear layer that makes x, through relu and products, where nothing else reads x. Else a
/// product with 1 / s is kept before the layers, and the report says so. alpha = 0 needs none.
/// `recipe.method` is taken for awq; everything else is as in quantize_weights().
ULP_API std::shared_ptr<graph::GraphModule> awq(const std::shared_ptr<graph::GraphModule>& captured,
                                                const CalibrationData& data,
                                                const WeightOnlyRecipe& recipe = {.bits = 4, .group = 128},
                                                graph::PassReport* report = nullptr,
                                                std::vector<WeightError>* errors = nullptr);

/// GPTQ of one matrix, [rows, columns], with H [columns, columns] from elsewhere. `error` (may be null)
/// receives damping and errors, those relative to tr(W H W^T). Throws ulp::Error for other shapes, numbers
/// that are not finite, and as gptq().
ULP_API StoredQuantizedWeight gptq_weight(const at::Tensor& weight, const at::Tensor& hessian,
                                          const WeightOnlyRecipe& recipe, WeightError* error = nullptr);

}  // namespace ulp::quant
