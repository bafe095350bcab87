// The form in which a linear layer's weights are kept: dense, without the blocks that are zero, or a bit for each weight.
#pragma once

#include <memory>
#include <string>

#include "ulp/kernels/conv/conv.h"
#include "ulp/runtime/ops/packs.h"

namespace ulp::runtime {

/// How many items one run of a layer may take: rows of a linear layer, images of a convolution.
struct ItemRange {
  int64_t low = 1, high = 1;
};

/// A layer ready to run, and what there is to say about its zeros ("" where it has none worth a word).
struct LinearForm {
  std::shared_ptr<const kernels::Conv> layer;
  std::string note;
};

/// Whether make_linear_form() would look at anything but the dense form.
bool may_leave_zeros_out(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                         const PackRules& rules);

/// make_conv(), and what `rules` say of its zeros. With SparseWeights::measure all forms that could pay are run on synthetic
/// rows, in the numbers that lie in `items`, on the calling thread; a layer that is best in different forms for few and for
/// many rows keeps both. Rows are as many as take neither long nor more memory than rules.measured->most_bytes(): a layer
/// of more pixels is measured on a smaller image, and one that cannot be stays dense and says so.
LinearForm make_linear_form(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                            kernels::Isa isa, const PackRules& rules, const ItemRange& items);

}  // namespace ulp::runtime
