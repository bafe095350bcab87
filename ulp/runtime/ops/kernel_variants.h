// The form in which a layer's weights are kept: as they come, without the blocks that are zero, a bit for
// each weight, or in bf16.
#pragma once

#include <memory>
#include <string>

#include "ulp/kernels/conv/conv.h"
#include "ulp/runtime/ops/prepacked_weights.h"

namespace ulp::runtime {

/// How many items one run of a layer may take: rows of a linear layer, images of a convolution.
struct ItemRange {
  int64_t low = 1, high = 1;
};

/// A layer ready to run, and what there is to say of its form ("" where that is not worth a word).
struct LayerForm {
  std::shared_ptr<const kernels::Conv> layer;
  std::string note;
};

/// Whether make_layer_form() would leave zeros out.
bool may_leave_zeros_out(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                         const PackRules& rules);

/// make_conv(), or the form that `rules` prefer. With SparseWeights::measure, and of f32 layers with an error
/// budget, all forms that could pay are run on synthetic rows, in the numbers that lie in `items`, on the
/// calling thread; a layer that is best in different forms for few and for many rows keeps both. Rows are as
/// many as take neither long nor more memory than rules.measured->most_bytes(): a linear layer of more pixels
/// is measured on a smaller image. One that cannot be measured so, or when the time for measuring is over,
/// stays as it comes and says so.
LayerForm make_layer_form(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                          kernels::Isa isa, const PackRules& rules, const ItemRange& items);

}  // namespace ulp::runtime
