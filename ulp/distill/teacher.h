// Teachers: what gives the values that a student learns from.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::distill {

/// One batch as a teacher sees it.
struct TeacherBatch {
  std::vector<at::Tensor> inputs = {};
  at::Tensor samples = {};  ///< numbers of the samples, int64 (N); undefined where nobody numbers them
};

/// Gives values at places, without gradient.
class ULP_API Teacher {
 public:
  virtual ~Teacher();
  /// The values at the places it was made for, in their order.
  virtual std::vector<at::Tensor> values(const TeacherBatch& batch) = 0;
  /// How many there are.
  virtual size_t count() const = 0;
  /// For reports: "graph in bf16".
  virtual std::string description() const = 0;
};

/// A captured model: a copy of it in eval mode, cut down to what the places need, under the autocast of `precision` (which
/// must keep parameters in fp32). Throws ulp::Error as find_layer_output() does, and for another precision.
ULP_API std::shared_ptr<Teacher> graph_teacher(const graph::GraphModule& model,
                                               const std::vector<std::string>& places,
                                               amp::PrecisionName precision = {});

/// An engine, such as one in int8. Places are its outputs: "", output, output:1 or their names. Calls from several threads take
/// turns. Throws ulp::Error for other places.
ULP_API std::shared_ptr<Teacher> engine_teacher(std::shared_ptr<runtime::Engine> engine,
                                                const std::vector<std::string>& places);

/// Several teachers of the same classes as one that gives one value, logits of which softmax(logits / T) is the weighted mean of
/// the members' softmax(z / T): T log(sum of w softmax(z / T)), the weights divided by their sum (Hinton et al. 2015, section 5
/// averages probabilities). Weights: one a member, >= 0, or empty for equal ones. Throws ulp::Error for no members, members
/// with more than one value, and weights that are not so.
ULP_API std::shared_ptr<Teacher> ensemble(std::vector<std::shared_ptr<Teacher>> members,
                                          std::vector<double> weights = {}, double temperature = 1);

}  // namespace ulp::distill
