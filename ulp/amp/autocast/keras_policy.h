// Keras's dtype policies on a captured model: for each module path, the dtype it computes in and the dtype
// its variables are stored in.
#pragma once

#include <c10/core/ScalarType.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::graph {
class GraphModule;
}

namespace ulp::amp {

/// One of Keras's policies by name.
struct DtypePolicy {
  std::string_view name;
  c10::ScalarType compute;   ///< floating inputs and variables are cast to it before a module's operations
  c10::ScalarType variable;  ///< parameters and floating buffers are stored in it
};

/// float32, mixed_float16, mixed_bfloat16, float16, bfloat16.
ULP_API std::span<const DtypePolicy> dtype_policies();

/// An unknown name is an error that lists the known ones.
ULP_API const DtypePolicy& find_dtype_policy(std::string_view name);

/// `path` is a module's path or a pattern with * ? [] (a * also matches dots). It means the modules it
/// matches with everything inside of them; "*" means the whole model.
struct PolicyRule {
  std::string path;
  std::string policy;
};

/// Gives every operation of the model the policy of the first rule that matches its module's path, and writes
/// the casts into the graph, each value once per dtype. What no rule matches stays as it is.
///
///     ulp::amp::apply_policy(*captured, {{"head", "float32"}, {"*", "mixed_bfloat16"}});
///
/// As Keras does it: everything in a module computes in its compute dtype, without lists of ops; the model's
/// output has the dtype of the last module, so the last one should be float32. A batch norm takes its input
/// in the compute dtype and keeps parameters and statistics in the variable dtype; an embedding looks up
/// first and casts what it found. fp64, complex and integer values are left alone, so are casts in the model.
///
/// Returns what was done, one change a module path; a rule that decides nothing because rules before it take
/// all that it matches is a near miss. Throws Error, and changes nothing, for an unknown policy and for a
/// path that matches no module of the model.
ULP_API graph::PassReport apply_policy(graph::GraphModule& module, const std::vector<PolicyRule>& rules);

}  // namespace ulp::amp
