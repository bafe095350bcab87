#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/rewrite.h"

namespace ulp::graph {

namespace {

/// Rounds toward minus infinity; b > 0.
int64_t floor_div(int64_t a, int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// One axis of a transposed convolution of stride s. Output o = s t + r has the taps k with s | r + padding -
/// k dilation, of input t + (r + padding - k dilation) / s. So the results of one r, for all t, are those of
/// a convolution whose kernel reaches from the smallest to the largest of these distances, and the results of
/// all r lie side by side in its channels.
struct Axis {
  int64_t kernel, stride, padding, dilation;
  int64_t reach = 0;  ///< the convolution's padding on both sides
  int64_t size = 0;   ///< of its kernel
  int64_t crop = 0;   ///< outputs of the last t that the transposed one has not
  int64_t more = 0;   ///< results of the convolution beyond the size of its input

  Axis(int64_t k, int64_t s, int64_t p, int64_t out_padding, int64_t d)
      : kernel(k), stride(s), padding(p), dilation(d) {
    // out = s in + rest
    const int64_t rest = d * (k - 1) + out_padding + 1 - 2 * p - s;
    more = -floor_div(-rest, s);
    crop = s * more - rest;
    int64_t before = 0, after = 0;
    for (int64_t r = 0; r < s; ++r) {
      for (int64_t i = 0; i < k; ++i) {
        if (!has(r, i)) continue;
        before = std::max(before, -distance(r, i));
        after = std::max(after, distance(r, i));
      }
    }
    // in + 2 reach - (size - 1) results: `more` more than its input has.
    reach = std::max(before, after + more);
    size = 2 * reach - more + 1;
  }
  bool has(int64_t phase, int64_t tap) const { return (phase + padding - tap * dilation) % stride == 0; }
  int64_t distance(int64_t phase, int64_t tap) const { return (phase + padding - tap * dilation) / stride; }
};

/// [I, O / groups, kh, kw] -> [sh sw O, I, size_h, size_w]; inputs of other groups meet zeros.
at::Tensor phases_of(const at::Tensor& weight, const Axis& h, const Axis& w, int64_t groups) {
  const int64_t in = weight.size(0), out = weight.size(1) * groups, part = weight.size(1);
  const at::Tensor all = at::zeros({h.stride, w.stride, out, in, h.size, w.size}, weight.options());
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t inputs = in / groups;
    const at::Tensor taps = weight.narrow(0, g * inputs, inputs).transpose(0, 1);
    for (int64_t r = 0; r < h.stride; ++r) {
      for (int64_t q = 0; q < w.stride; ++q) {
        const at::Tensor mine =
            all.select(0, r).select(0, q).narrow(0, g * part, part).narrow(1, g * inputs, inputs);
        for (int64_t i = 0; i < h.kernel; ++i) {
          for (int64_t j = 0; j < w.kernel; ++j) {
            if (!h.has(r, i) || !w.has(q, j)) continue;
            const int64_t y = h.distance(r, i) + h.reach, x = w.distance(q, j) + w.reach;
            mine.select(2, y).select(2, x).copy_(taps.select(2, i).select(2, j));
          }
        }
      }
    }
  }
  return all.reshape({-1, in, h.size, w.size});
}

Argument ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}
Argument one(int64_t value) {
  return c10::IValue(value);
}

std::optional<TensorMeta> phase_meta(const Node& node, const Axis& h, const Axis& w, const Value* weight) {
  const auto& in = node.arg("input").value->meta;
  if (!in) return std::nullopt;
  TensorMeta meta = *in;
  meta.sizes[1] = {0, 1, weight->meta->sizes[0].offset};
  meta.sizes[2].offset += h.more;
  meta.sizes[3].offset += w.more;
  meta.channels_last = false;
  return meta;
}

/// Returns what stands in the way.
std::string rewrite(Graph& graph, Node& node) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = stored_tensor(graph, node.arg("weight")),
                   bias = stored_tensor(graph, node.arg("bias"));
  if (!weight.defined() || (!bias.defined() && !node.arg("bias").is_none()))
    return "its parameters are computed, not stored";
  const auto stride = integers(node.arg("stride")), padding = integers(node.arg("padding")),
             out_padding = integers(node.arg("output_padding")), dilation = integers(node.arg("dilation"));
  const auto groups = integer(node.arg("groups"));
  if (rank(node.arg("input")) != 4 || !stride || !padding || !out_padding || !dilation || !groups)
    return "its input is not known to be images, or its numbers are computed";
  const auto axis = [&](size_t i) {
    return Axis(weight.size(static_cast<int64_t>(i) + 2), spread(*stride, 2)[i], spread(*padding, 2)[i],
                spread(*out_padding, 2)[i], spread(*dilation, 2)[i]);
  };
  const Axis h = axis(0), w = axis(1);
  const std::string name = node.arg("weight").value->producer->target();
  const std::string path = name.substr(0, name.rfind('.') + 1) + "phases.";
  Value* phases = store_parameter(graph, path + "weight", phases_of(weight, h, w, *groups));
  Argument shift = c10::IValue();
  if (bias.defined()) {
    shift = store_parameter(graph, path + "bias", bias.detach().repeat({h.stride * w.stride}));
  }
  Node* conv = graph.call(
      "aten::conv2d",
      {node.arg("input"), phases, shift, ints({1, 1}), ints({h.reach, w.reach}), ints({1, 1}), one(1)}, &node,
      node.name() + "_conv");
  conv->scope = node.scope;
  conv->output()->meta = phase_meta(node, h, w, phases);
  Node* last = &node;
  Value* parts = conv->output();
  // What acts on each element by itself can come first, so that it becomes part of the convolution's step.
  if (Node* next = sole_user(graph, node); next && clamp_bounds(*next)) {
    std::vector<Argument> args = next->args;
    args[0] = parts;
    Node* clamp = graph.call(next->target(), args, &node, next->name() + "_conv");
    clamp->scope = next->scope;
    clamp->output()->meta = parts->meta;
    parts = clamp->output();
    last = next;
  }
  graph.retarget(last, "ulp::depth_to_space",
                 {parts, one(h.stride), one(w.stride), one(h.crop), one(w.crop)});
  if (last != &node) graph.erase(&node);
  return "";
}

}  // namespace

PassReport transposed_as_conv(Graph& graph) {
  return rewrite_each(graph, "transposed_as_conv", "aten::conv_transpose2d",
                      [&](Node& node) { return rewrite(graph, node); });
}

}  // namespace ulp::graph
