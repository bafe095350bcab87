#include "ulp/lower/windowed_attention.h"

#include <torch/library.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "ulp/lower/attention.h"
#include "ulp/lower/match.h"

namespace ulp::lowering {
namespace {

at::Tensor for_each_head(const at::Tensor& x, const at::Tensor& query) {
  return x.size(-3) == query.size(-3) ? x : x.repeat_interleave(query.size(-3) / x.size(-3), -3);
}

at::Tensor make_windowed_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const std::optional<at::Tensor>& attn_mask, double dropout_p,
                                   bool is_causal, std::optional<double> scale, bool /*enable_gqa*/,
                                   int64_t window, double softcap) {
  const int64_t queries = query.size(-2), keys = key.size(-2);
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor scores = torch::matmul(query * factor, for_each_head(key, query).transpose(-2, -1));
  if (softcap > 0) scores = torch::tanh(scores / softcap) * softcap;
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  if (is_causal || window > 0) {
    at::Tensor seen = torch::ones({queries, keys}, query.options().dtype(at::kBool)).tril();
    if (window > 0) seen = seen.triu(1 - window);
    scores = scores.masked_fill(seen.logical_not(), kUnseen);
  }
  if (attn_mask) {
    scores = attn_mask->scalar_type() == at::kBool ? scores.masked_fill(attn_mask->logical_not(), kUnseen)
                                                   : scores + *attn_mask;
  }
  const at::Tensor none = (scores == kUnseen).all(-1, /*keepdim=*/true);
  const at::Tensor weights = torch::softmax(scores, -1).masked_fill(none, 0.0);
  return torch::matmul(torch::dropout(weights, dropout_p, dropout_p > 0), for_each_head(value, query));
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def(
      "windowed_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float "
      "dropout_p=0.0, "
      "bool is_causal=False, *, float? scale=None, bool enable_gqa=False, int window=0, float softcap=0.0) "
      "-> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("windowed_attention", make_windowed_attention);
}

}  // namespace

bool is_attention(const graph::Node& node) {
  return node.is(kAttention) || node.is(kWindowedAttention);
}

WindowAndCap window_and_cap(const graph::Node& attention) {
  if (!attention.is(kWindowedAttention)) return {};
  return {int_arg(attention, "window"), number_arg(attention, "softcap").value_or(0)};
}

void make_attention(graph::Graph& graph, graph::Node& node, std::vector<graph::Argument> args,
                    const WindowAndCap& more) {
  if (more.window == 0 && more.softcap == 0) return graph.retarget(&node, kAttention, std::move(args));
  args.resize(7);
  args.emplace_back(c10::IValue(false));
  args.emplace_back(c10::IValue(more.window));
  args.emplace_back(c10::IValue(more.softcap));
  graph.retarget(&node, kWindowedAttention, std::move(args));
}

}  // namespace ulp::lowering
