#include "ulp/lower/attention_mask.h"

#include <torch/library.h>
#include <torch/types.h>

#include <limits>

namespace ulp::lowering {
namespace {

using graph::Argument;
using runtime::BlindQueries;

/// A number that leaves nothing of a score that it is added to.
constexpr float kBlindScore = std::numeric_limits<float>::lowest() / 2;

at::Tensor make_attention_mask(const at::Tensor& keys, int64_t queries, bool causal, int64_t blind) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  at::Tensor mask = keys.expand({-1, -1, queries, -1});
  if (causal) mask = mask + torch::full({queries, keys.size(-1)}, kHidden, keys.options()).triu(1);
  if (blind == static_cast<int64_t>(BlindQueries::zeros)) return mask.contiguous();
  const at::Tensor none = (mask == kHidden).all(-1, /*keepdim=*/true);
  const bool nan = blind == static_cast<int64_t>(BlindQueries::nan);
  return torch::where(
      none, torch::full({}, nan ? std::numeric_limits<float>::quiet_NaN() : kBlindScore, keys.options()),
      mask);
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("attention_mask(Tensor keys, int queries, bool causal, int blind) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("attention_mask", make_attention_mask);
}

}  // namespace

graph::Value* attention_mask(graph::Graph& graph, const Argument& keys, int64_t queries, bool causal,
                             BlindQueries blind, graph::Node& node) {
  graph::Node* made = graph.call(
      kAttentionMask,
      {keys, c10::IValue(queries), c10::IValue(causal), c10::IValue(static_cast<int64_t>(blind))}, &node);
  made->scope = node.scope;
  return made->output();
}

const graph::Node* attention_mask_of(const graph::Node& attention) {
  const Argument& mask = attention.arg("attn_mask");
  if (!mask.is_value() || !mask.value->producer->is(kAttentionMask)) return nullptr;
  return mask.value->producer;
}

}  // namespace ulp::lowering
