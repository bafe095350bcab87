// The losses of distillation by name, as recipes and the command-line tool make them.
//
// Some methods are sums of these:
//   Hinton's distillation  (1 - a) cross-entropy + a kd; RepDistiller: a = 0.9, T = 4
//   DistilBERT             5 kd (T = 2) of the logits + 2 cross-entropy of the masked words
//                          + 1 cosine of the last hidden states
//   TinyBERT               first tinybert_attention of the scores + mse of the hidden states, layer by layer;
//                          then soft_cross_entropy of the logits
//   deep mutual learning   cross-entropy + the mean of mutual over the other students
//   DeiT's hard token      (cross-entropy + hard) / 2
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/distill/loss.h"

namespace ulp::distill {

/// The name of a loss and its options.
struct LossEntry {
  std::string name;
  std::string help;     ///< one line, without a full stop
  std::string options;  ///< with their defaults, "T=4, alpha=1"; empty for none
};

/// A loss by its name, with options as texts key=value ("T=4", "beta=8"); what is not given keeps its
/// default. Throws ulp::Error for a name that loss_entries() does not list, and for a key, value or limit
/// that is not the loss's.
ULP_API std::shared_ptr<Loss> make_loss(const std::string& name,
                                        const std::vector<std::string>& options = {});

/// Every loss, sorted by name.
ULP_API const std::vector<LossEntry>& loss_entries();

}  // namespace ulp::distill
