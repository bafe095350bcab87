#include "ulp/lower/ops.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/lower/attention.h"
#include "ulp/lower/pointwise.h"

namespace ulp::lowering {

using graph::Node;

// The files that have a table, <name>_lowerings().
#define ULP_LOWERINGS(X) \
  X(compute)             \
  X(binary)              \
  X(simple)              \
  X(channel)             \
  X(image)               \
  X(volume)              \
  X(text)                \
  X(norm)                \
  X(attention)           \
  X(recurrent)           \
  X(token_mean)          \
  X(move)                \
  X(join)                \
  X(reduce)              \
  X(matmul)              \
  X(index)               \
  X(scatter)

#define ULP_DECLARE(name) LoweringTable name##_lowerings();
ULP_LOWERINGS(ULP_DECLARE)
#undef ULP_DECLARE

namespace {

const std::vector<Lowering>& all_lowerings() {
  static const std::vector<Lowering> all = [] {
    std::vector<Lowering> rows;
#define ULP_GATHER(name) \
  for (const Lowering& row : name##_lowerings()) rows.push_back(row);
    ULP_LOWERINGS(ULP_GATHER)
#undef ULP_GATHER
    return rows;
  }();
  return all;
}

}  // namespace

namespace {

/// True for a node by itself that a specialised step does better than the pointwise one.
bool is_special(const graph::Graph& graph, const Group& group) {
  const Node& node = *group.root;
  if (node.is("aten::add")) return has_add_step(graph, node);
  if (node.is("aten::zeros_like")) return true;
  if (node.is("aten::ne")) return feeds_attention(graph, node.output());
  if (const std::optional<Activation> activation = activation_of(node))
    return !is_smooth_activation(*activation) || group.quantize == nullptr;
  return !is_pointwise(node);
}

}  // namespace

LowerFunction find_lowering(const graph::Graph& graph, const Group& group) {
  const Node& node = *group.root;
  if (node.kind() != Node::Kind::call) return nullptr;
  if (!group.inner.empty() || !is_special(graph, group)) return lower_pointwise;
  for (const Lowering& row : all_lowerings()) {
    if (node.is(row.op)) return row.lower;
  }
  return activation_of(node) ? lower_activation : nullptr;
}

std::string hint_for(const Node& node) {
  if (node.kind() == Node::Kind::module || node.is("ulp::fake_quantize")) {
    return "observers and fake-quantizers do not run in an engine; call quant::convert first";
  }
  if (node.is("aten::batch_norm"))
    return "only batch norm behind a linear layer, or of images and sequences, has a form in the engine";
  for (const char* op : {"aten::masked_select", "aten::nonzero", "aten::unique", "aten::_unique2",
                         "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"}) {
    if (node.is(op)) return "the size of its result depends on the data, and a plan's sizes are fixed";
  }
  for (const char* op :
       {"aten::_upsample_bilinear2d_aa", "aten::_upsample_bicubic2d_aa", "aten::_upsample_lanczos2d_aa"}) {
    if (node.is(op)) return "expected to resize with antialias=False";
  }
  if (node.is("aten::one_hot")) return "expected the number of classes, which otherwise depends on the data";
  if (node.is("aten::embedding_bag"))
    return "expected bags of one length, [batch, length] ids without offsets, and the bags alone as its "
           "result";
  if (node.op().starts_with("aten::adaptive_max_pool")) return "expected constant sizes";
  return "no lowering for this op";
}

}  // namespace ulp::lowering
