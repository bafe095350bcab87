// Masks as part of a captured graph. For a parameter "fc1.weight" there is a buffer "fc1.weight_mask" of bits
// (bit_mask.h), and one call of ulp::apply_mask whose result all nodes read instead of the parameter: layers,
// recurrent layers' lists of weights, attention projections, embeddings, and the users of tied weights under
// all their names. The parameter itself keeps its dense values until bake(), so that a mask can be taken back
// or drawn anew.
//
// Buffers are in state_dict and in checkpoints: a graph that already has masks loads them with its weights.
// Engines and quantization take plain weights: ulp::lower(), quant::prepare() and their kin multiply the
// masks in by themselves.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"

namespace ulp::prune {

/// The mask of one parameter of a graph.
struct ParameterMask {
  std::string parameter;        ///< the first of its names
  at::Tensor dense;             ///< the parameter with its dense values
  at::Tensor bits;              ///< uint8
  bool dense_gradient = false;  ///< as apply_mask.h says
  /// Kept elements, of so many.
  int64_t kept = 0, elements = 0;
};

/// A mask to be set: bools of the parameter's shape, true for elements that are kept.
using NewMasks = std::vector<std::pair<std::string, at::Tensor>>;

/// Gives the parameter a mask, or another one in the place of the one it has. `keep`: bool, of its shape.
/// `dense_gradient`: the gradient of pruned elements is what it would be if they were not, so that scores can
/// read it; an optimizer must then hold them (FusedOptimizer::set_mask, MaskedStep). Throws ulp::Error, and
/// leaves the module as it was, for a name that is no parameter, for one that no node reads or a node writes,
/// and for a mask of another shape or type.
ULP_API void set_mask(graph::GraphModule& module, const std::string& parameter, const at::Tensor& keep,
                      bool dense_gradient = false);
/// Sets several masks, all or none. Throws ulp::Error for a parameter that is given twice, also by two of its
/// names.
ULP_API void set_masks(graph::GraphModule& module, const NewMasks& masks, bool dense_gradient = false);

/// Masks of ones for those of the parameters that have none, so that the module's buffers stay the same while masks are drawn. Throws
/// ulp::Error as set_mask() does.
ULP_API void add_masks(graph::GraphModule& module, const std::vector<std::string>& parameters,
                       bool dense_gradient = false);

/// Gives `to` the masks of `from`, and shares their bits: for a graph that is another form of the same one, with its parameters
/// under the same names (a clone with further results). Throws ulp::Error as set_mask() does.
ULP_API void share_masks(graph::GraphModule& to, const graph::GraphModule& from);

/// Every mask of the graph in the order of its parameters. Throws ulp::Error for a damaged one.
ULP_API std::vector<ParameterMask> masks(const graph::Graph& graph);

/// The mask of a parameter as bools of its shape; undefined where it has none. Throws ulp::Error for a name
/// that is no parameter.
ULP_API at::Tensor find_mask(const graph::Graph& graph, const std::string& parameter);

/// Takes the mask away: the dense values are what nodes read again. Throws ulp::Error for a parameter without
/// one.
ULP_API void remove_mask(graph::GraphModule& module, const std::string& parameter);
/// All masks; none is fine.
ULP_API void remove_masks(graph::GraphModule& module);

/// A copy with plain parameters: zeros where masks had them, the masks gone. Parameters without a mask,
/// buffers and submodules are shared with the original, which stays as it is, and so is its mode.
ULP_API std::shared_ptr<graph::GraphModule> bake(const graph::GraphModule& module);

}  // namespace ulp::prune
