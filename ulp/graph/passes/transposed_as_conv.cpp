#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/rewrite.h"
#include "ulp/graph/passes/transposed_phases.h"

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

/// The digits of i to these bases, the last one counted first.
std::vector<int64_t> digits(int64_t i, const std::vector<int64_t>& bases) {
  std::vector<int64_t> found(bases.size());
  for (size_t d = bases.size(); d-- > 0; i /= bases[d]) found[d] = i % bases[d];
  return found;
}

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// One number of each axis.
std::vector<int64_t> each(const std::vector<Axis>& axes, int64_t Axis::*number) {
  std::vector<int64_t> all;
  for (const Axis& axis : axes) all.push_back(axis.*number);
  return all;
}

/// [I, O / groups, kernel...] -> [strides... O, I, sizes...]; inputs of other groups meet zeros.
at::Tensor phases_of(const at::Tensor& weight, const std::vector<Axis>& axes, int64_t groups) {
  const int64_t in = weight.size(0), part = weight.size(1), out = part * groups, inputs = in / groups;
  const std::vector<int64_t> strides = each(axes, &Axis::stride), kernel = each(axes, &Axis::kernel),
                             reach = each(axes, &Axis::size);
  std::vector<int64_t> sizes = {product(strides), out, in};
  sizes.insert(sizes.end(), reach.begin(), reach.end());
  const at::Tensor all = at::zeros(sizes, weight.options());
  for (int64_t r = 0; r < sizes[0]; ++r) {
    const std::vector<int64_t> phase = digits(r, strides);
    for (int64_t k = 0; k < product(kernel); ++k) {
      const std::vector<int64_t> tap = digits(k, kernel);
      at::Tensor from = weight, to = all[r];
      bool met = true;
      for (size_t d = 0; d < axes.size(); ++d) {
        met = met && axes[d].has(phase[d], tap[d]);
        from = from.select(2, tap[d]);
        if (met) to = to.select(2, axes[d].distance(phase[d], tap[d]) + axes[d].reach);
      }
      for (int64_t g = 0; met && g < groups; ++g) {
        to.narrow(0, g * part, part)
            .narrow(1, g * inputs, inputs)
            .copy_(from.narrow(0, g * inputs, inputs).transpose(0, 1));
      }
    }
  }
  sizes.erase(sizes.begin());
  sizes[0] *= all.size(0);
  return all.reshape(sizes);
}

}  // namespace

TransposedPhases::TransposedPhases(const at::Tensor& weight, const std::vector<int64_t>& stride,
                                   const std::vector<int64_t>& padding,
                                   const std::vector<int64_t>& output_padding,
                                   const std::vector<int64_t>& dilation, int64_t groups) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < stride.size(); ++i) {
    axes.emplace_back(weight.size(static_cast<int64_t>(i) + 2), stride[i], padding[i], output_padding[i],
                      dilation[i]);
  }
  strides = each(axes, &Axis::stride);
  reach = each(axes, &Axis::reach);
  crops = each(axes, &Axis::crop);
  more = each(axes, &Axis::more);
  const at::Tensor numbers = at::arange(1, weight.numel() + 1, at::kLong).view(weight.sizes());
  const at::Tensor found = phases_of(numbers, axes, groups);
  sizes = found.sizes().vec();
  taps = at::where(found == 0, at::full({}, weight.numel(), at::kLong), found - 1);
}

int64_t TransposedPhases::phases() const {
  return product(strides);
}

at::Tensor TransposedPhases::weight_of(const at::Tensor& weight) const {
  const at::Tensor numbers = at::cat({weight.reshape({-1}), at::zeros({1}, weight.options())});
  return numbers.index_select(0, taps.view({-1}).to(weight.device())).view(sizes);
}

at::Tensor TransposedPhases::joined(const at::Tensor& parts) const {
  static const auto kJoin = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("ulp::depth_to_space", "")
                                .typed<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, int64_t)>();
  if (strides.size() == 2) return kJoin.call(parts, strides[0], strides[1], crops[0], crops[1]);
  if (strides.size() == 1) return kJoin.call(parts.unsqueeze(2), 1, strides[0], 0, crops[0]).squeeze(2);
  const at::Tensor deep =
      kJoin.call(parts.flatten(3), strides[0], 1, crops[0], 0).unflatten(3, {parts.size(3), parts.size(4)});
  const at::Tensor flat = kJoin.call(deep.flatten(2, 3), strides[1], strides[2], 0, crops[2]);
  const at::Tensor whole = flat.unflatten(2, {deep.size(2), -1});
  return whole.narrow(3, 0, whole.size(3) - crops[1]);
}

namespace {

Argument ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}
Argument one(int64_t value) {
  return c10::IValue(value);
}

std::optional<TensorMeta> phase_meta(const Node& node, const TransposedPhases& made, const Value* weight) {
  const auto& in = node.arg("input").value->meta;
  if (!in) return std::nullopt;
  TensorMeta meta = *in;
  meta.sizes[1] = {0, 1, weight->meta->sizes[0].offset};
  for (size_t d = 0; d < made.more.size(); ++d) meta.sizes[d + 2].offset += made.more[d];
  meta.channels_last = false;
  return meta;
}

/// The calls that join the parts of the channels, of which the last takes the node's place. Sequences are
/// images of one row. Of volumes the depth comes first, with rows and columns as one; then come rows and
/// columns of all depths.
class Joiner {
 public:
  Joiner(Graph& graph, Node& node, const TransposedPhases& made) : graph_(graph), node_(node), made_(made) {}

  /// Makes the node the last one of them.
  void run(Value* parts) {
    const std::vector<int64_t>&strides = made_.strides, &crops = made_.crops;
    if (strides.size() == 2)
      return graph_.retarget(&node_, kJoin, join_args(parts, strides[0], strides[1], crops[0], crops[1]));
    batch_ = parts->meta->sizes[0];
    std::vector<int64_t> sizes;
    for (size_t d = 1; d < parts->meta->sizes.size(); ++d) sizes.push_back(parts->meta->sizes[d].offset);
    const int64_t channels = sizes[0], out = channels / made_.phases();
    if (strides.size() == 1) {
      Value* x = join(reshaped(parts, {channels, 1, sizes[1]}), 1, strides[0], 0, crops[0]);
      return end(x, {out, sizes[1] * strides[0] - crops[0]});
    }
    const int64_t depth = sizes[1] * strides[0] - crops[0], rows = sizes[2] * strides[1],
                  columns = sizes[3] * strides[2] - crops[2];
    Value* x = join(reshaped(parts, {channels, sizes[1], sizes[2] * sizes[3]}), strides[0], 1, crops[0], 0);
    x = join(reshaped(x, {channels / strides[0], depth * sizes[2], sizes[3]}), strides[1], strides[2], 0,
             crops[2]);
    if (crops[1] == 0) return end(x, {out, depth, rows, columns});
    x = reshaped(x, {out, depth, rows, columns});
    graph_.retarget(&node_, "aten::narrow", {x, one(3), one(0), one(rows - crops[1])});
  }

 private:
  static constexpr const char* kJoin = "ulp::depth_to_space";

  static std::vector<Argument> join_args(Value* x, int64_t rows, int64_t columns, int64_t less_rows,
                                         int64_t less_columns) {
    return {x, one(rows), one(columns), one(less_rows), one(less_columns)};
  }
  Argument with_batch(const std::vector<int64_t>& sizes) const {
    std::vector<Argument> all = {batch_};
    for (const int64_t size : sizes) all.emplace_back(one(size));
    return Argument::list(std::move(all));
  }
  Value* call(const char* op, std::vector<Argument> args) {
    Node* made = graph_.call(op, std::move(args), &node_);
    made->scope = node_.scope;
    return made->output();
  }
  Value* reshaped(Value* x, const std::vector<int64_t>& sizes) {
    return call("aten::reshape", {x, with_batch(sizes)});
  }
  Value* join(Value* x, int64_t rows, int64_t columns, int64_t less_rows, int64_t less_columns) {
    return call(kJoin, join_args(x, rows, columns, less_rows, less_columns));
  }
  void end(Value* x, const std::vector<int64_t>& sizes) {
    graph_.retarget(&node_, "aten::reshape", {x, with_batch(sizes)});
  }

  Graph& graph_;
  Node& node_;
  const TransposedPhases& made_;
  SizeExpr batch_;
};

/// Returns what stands in the way.
std::string rewrite_transposed(Graph& graph, Node& node) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = stored_tensor(graph, node.arg("weight")),
                   bias = stored_tensor(graph, node.arg("bias"));
  if (!weight.defined() || (!bias.defined() && !node.arg("bias").is_none()))
    return "its parameters are computed, not stored";
  const auto dims = static_cast<size_t>(weight.dim() - 2);
  const auto stride = integers(node.arg("stride")), padding = integers(node.arg("padding")),
             out_padding = integers(node.arg("output_padding")), dilation = integers(node.arg("dilation"));
  const auto groups = integer(node.arg("groups"));
  if (rank(node.arg("input")) != weight.dim() || !stride || !padding || !out_padding || !dilation || !groups)
    return "its input is not known to be images, or its numbers are computed";
  for (size_t i = 0; i < dims; ++i) {
    const SizeExpr& size = node.arg("input").value->meta->sizes[i + 2];
    if (dims != 2 && !size.constant()) return "its input is of no fixed size";
  }
  const TransposedPhases made(weight, spread(*stride, dims), spread(*padding, dims),
                              spread(*out_padding, dims), spread(*dilation, dims), *groups);
  const std::string name = node.arg("weight").value->producer->target();
  const std::string path = name.substr(0, name.rfind('.') + 1) + "phases.";
  Value* phases = store_parameter(graph, path + "weight", made.weight_of(weight.detach()));
  Argument shift = c10::IValue();
  if (bias.defined()) {
    shift = store_parameter(graph, path + "bias", bias.detach().repeat({made.phases()}));
  }
  const Argument ones = ints(std::vector<int64_t>(dims, 1));
  Node* conv = graph.call("aten::conv" + std::to_string(dims) + "d",
                          {node.arg("input"), phases, shift, ones, ints(made.reach), ones, one(1)}, &node,
                          node.name() + kPhasesSuffix);
  conv->scope = node.scope;
  conv->output()->meta = phase_meta(node, made, phases);
  Node* last = &node;
  Value* parts = conv->output();
  // What acts on each element by itself can come first, so that it becomes part of the convolution's step.
  if (Node* next = sole_user(graph, node); next && clamp_bounds(*next)) {
    std::vector<Argument> args = next->args;
    args[0] = parts;
    Node* clamp = graph.call(next->target(), args, &node, next->name() + kPhasesSuffix);
    clamp->scope = next->scope;
    clamp->output()->meta = parts->meta;
    parts = clamp->output();
    last = next;
  }
  Joiner(graph, *last, made).run(parts);
  if (last != &node) graph.erase(&node);
  return "";
}

}  // namespace

PassReport transposed_as_conv(Graph& graph) {
  return transposed_as_conv(graph,
                            {"aten::conv_transpose1d", "aten::conv_transpose2d", "aten::conv_transpose3d"},
                            [](const Node&) { return true; });
}

PassReport transposed_as_conv(Graph& graph, const std::vector<const char*>& ops,
                              const std::function<bool(const Node&)>& takes) {
  PassReport report{"transposed_as_conv", {}, {}};
  for (const char* op : ops) {
    PassReport one = rewrite_each(graph, "transposed_as_conv", op, [&](Node& node) {
      return takes(node) ? rewrite_transposed(graph, node) : std::string("it stays in float");
    });
    for (std::string& line : one.changes) report.changes.push_back(std::move(line));
    for (std::string& line : one.near_misses) report.near_misses.push_back(std::move(line));
  }
  return report;
}

}  // namespace ulp::graph
