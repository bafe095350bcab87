// Weight sharing in a captured model: its weights become codes of trained codebooks, and plain weights again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/prune/storage/sharing/kmeans.h"

namespace ulp::prune {

/// Bits for the weights of some layers.
struct ULP_API LayerBits {
  std::string layer;  ///< path of a module or name of a parameter; '*' matches any run of characters
  int64_t bits = 6;   ///< 1..8; 0: left as it is
  void visit_fields(FieldVisitor& visit);
  bool operator==(const LayerBits&) const = default;
};

/// Which weights are shared, and how.
struct ULP_API ShareOptions {
  KMeansOptions kmeans;           ///< of every parameter of two dimensions or more
  std::vector<LayerBits> layers;  ///< exceptions; later ones win
  /// The bits of a parameter; 0: it stays. A pattern without '*' that is a parameter's whole name means it
  /// even with one dimension (a bias).
  int64_t bits_of(const std::string& parameter, int64_t dimensions) const;
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  bool operator==(const ShareOptions&) const = default;
};

/// A copy of a captured model in which `ulp::share_weights` computes each chosen weight "fc.weight" from the
/// parameter "fc.weight.codebook" and the buffers "fc.weight.codes" and, where it has zeros,
/// "fc.weight.mask": training it trains the shared values. A tied weight is shared once, by the last rule for
/// any of its names, and each name has codebook, codes and mask, tied as it was. Masks of pruning (masks.h)
/// are multiplied in first. The other tensors are shared with the captured model, which stays as it is.
/// Throws ulp::Error for null, bad options, a pattern that matches no parameter, weights that are not finite,
/// and where nothing is left to share. `report` receives what was shared, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> share_weights(const std::shared_ptr<graph::GraphModule>& captured,
                                                          const ShareOptions& options = {},
                                                          graph::PassReport* report = nullptr);

/// A copy with plain parameters under the names they had in the place of shared ones, at the end of the list
/// of parameters, tied ones tied; a model without any is copied. Throws ulp::Error for null and where a name
/// is taken.
ULP_API std::shared_ptr<graph::GraphModule> bake_shared(const std::shared_ptr<graph::GraphModule>& shared);

}  // namespace ulp::prune
