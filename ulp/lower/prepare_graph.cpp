#include "ulp/lower/prepare_graph.h"

#include "ulp/graph/decompose/decompose.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/lower/batch_first.h"
#include "ulp/lower/constants.h"
#include "ulp/lower/conv1d_to_conv2d.h"
#include "ulp/lower/decompose_images.h"
#include "ulp/lower/decompose_index.h"
#include "ulp/lower/decompose_layers.h"
#include "ulp/lower/fuse_binary.h"
#include "ulp/lower/fuse_sdpa.h"
#include "ulp/lower/match.h"
#include "ulp/lower/products_of_heads.h"
#include "ulp/lower/shapes.h"
#include "ulp/lower/shared_heads.h"
#include "ulp/lower/token_mean.h"
#include "ulp/quant/static/quantized_average.h"

namespace ulp::lowering {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

/// Nodes that give back their input when inferring are taken out, so that they do not stand between what
/// fuses.
void remove_identities(Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (is_identity(*node)) found.push_back(node.get());
  }
  for (Node* node : found) {
    graph.replace_uses(node->output(), node->args[0].value);
    graph.erase(node);
  }
}

/// `1 - x` of the C++ frontend fills an empty tensor like x: what is filled is not read, so x itself will do.
void fill_without_copies(Graph& graph) {
  const auto like = [](const Value* value) {
    return value->producer->is("aten::empty_like") || value->producer->is("aten::ones_like") ||
           value->producer->is("aten::zeros_like");
  };
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::fill")) continue;
    while (like(node->args[0].value)) node->args[0] = node->args[0].value->producer->args[0];
  }
  graph.remove_dead();
}

/// What is no step, view or form of another one. Of windows whose places are read the pool takes the elements alone.
bool has_no_step(const Node& node) {
  return !is_any(node, {"aten::diagonal", "aten::unfold", "aten::true_divide"});
}

/// What networks that keep time before the batch need besides.
void bring_batch_first(Graph& graph) {
  if (!put_batch_first(graph)) return;
  graph.remove_dead();
  complete_shapes(graph);
  fold_constants(graph);
  spell_out(graph);
  graph.remove_dead(true);
  complete_shapes(graph);
}

}  // namespace

void prepare_graph(Graph& graph, std::vector<graph::PassReport>& reports, KnownWindows& windows) {
  for (const auto pass : {graph::fold_masks, graph::canonicalize, graph::strip_training,
                          graph::fold_batch_norm, fuse_token_mean}) {
    reports.push_back(pass(graph));
  }
  complete_shapes(graph);
  reports.push_back(fuse_binary(graph));
  quant::average_on_codes(graph);
  spell_out_images(graph);
  complete_shapes(graph);
  for (const auto pass : {graph::batch_norm_as_conv, graph::transposed_as_conv}) {
    reports.push_back(pass(graph));
  }
  make_sequences_images(graph);
  spell_out_images(graph);  // what was a sequence
  fill_without_copies(graph);
  fold_constants(graph);
  reports.push_back(graph::decompose(graph, has_no_step));
  fold_constants(graph);       // what it made of stored tensors
  products_over_heads(graph);  // also those of baddbmm, which decompose wrote
  complete_shapes(graph);
  reports.push_back(fuse_written_attention(graph, windows));
  spell_out(graph);
  spell_out_index(graph);
  graph.remove_dead(true);
  complete_shapes(graph);
  remove_identities(graph);
  bring_batch_first(graph);
  reports.push_back(write_out_attention(graph));
  reports.push_back(share_heads(graph));
  graph.remove_dead(true);
  complete_shapes(graph);
}

}  // namespace ulp::lowering
