#include "ulp/lower/decompose_images.h"

#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/match.h"
#include "ulp/lower/writer.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::Value;

namespace {

/// An adaptive pooling of known sizes.
struct Adaptive {
  std::vector<int64_t> in, out;  ///< of the dimensions behind the channels
  size_t dims() const { return in.size(); }
  bool divides(size_t i) const { return in[i] % out[i] == 0; }
  bool divides() const {
    for (size_t i = 0; i < dims(); ++i) {
      if (!divides(i)) return false;
    }
    return true;
  }
  std::vector<int64_t> windows() const {
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < dims(); ++i) sizes.push_back(in[i] / out[i]);
    return sizes;
  }
};

std::optional<Adaptive> adaptive(const Node& node) {
  const Value* x = node.args.at(0).value;
  const std::optional<std::vector<int64_t>> given = graph::integers(node.arg("output_size"));
  const auto dims = static_cast<size_t>(node.op()[node.op().size() - 2] - '0');  // "...pool2d"
  if (x == nullptr || !x->meta || x->meta->sizes.size() != dims + 2 || !given || given->empty())
    return std::nullopt;
  Adaptive found;
  for (size_t d = 2; d < x->meta->sizes.size(); ++d) {
    if (!x->meta->sizes[d].constant()) return std::nullopt;
    found.in.push_back(x->meta->sizes[d].offset);
  }
  found.out = graph::spread(*given, dims);
  const bool known =
      found.out.size() == dims && std::ranges::all_of(found.out, [](int64_t size) { return size >= 1; });
  return known ? std::optional(found) : std::nullopt;
}

/// Where window o of `windows` over `from` elements begins and ends.
int64_t begin_of(int64_t o, int64_t from, int64_t windows) {
  return o * from / windows;
}
int64_t end_of(int64_t o, int64_t from, int64_t windows) {
  return ((o + 1) * from + windows - 1) / windows;
}

/// Row o holds the shares with which the mean of window o takes each element.
at::Tensor mean_windows(int64_t from, int64_t windows) {
  at::Tensor shares = torch::zeros({windows, from});
  for (int64_t o = 0; o < windows; ++o) {
    const int64_t begin = begin_of(o, from, windows), end = end_of(o, from, windows);
    shares[o].slice(0, begin, end).fill_(1.0 / static_cast<double>(end - begin));
  }
  return shares;
}

/// The elements of each window in turn; the last one again where a window is shorter than the longest.
at::Tensor window_elements(int64_t from, int64_t windows) {
  int64_t longest = 0;
  for (int64_t o = 0; o < windows; ++o)
    longest = std::max(longest, end_of(o, from, windows) - begin_of(o, from, windows));
  at::Tensor ids = torch::empty({windows, longest}, at::kLong);
  for (int64_t o = 0; o < windows; ++o) {
    ids[o] = (torch::arange(longest) + begin_of(o, from, windows)).clamp_max(end_of(o, from, windows) - 1);
  }
  return ids;
}

/// Means of windows that overlap or differ in size are products with a matrix, one for each dimension.
void adaptive_mean(Graph& graph, Node& node) {
  const std::optional<Adaptive> pool = adaptive(node);
  const bool volume = node.is("aten::adaptive_avg_pool3d");
  if (!pool || (pool->divides() && !volume)) return;
  const Argument yes = c10::IValue(true), no = c10::IValue(false), none = c10::IValue();
  if (pool->out == std::vector<int64_t>(3, 1))
    return graph.retarget(&node, "aten::mean.dim", {node.args[0], ints({2, 3, 4}), yes, none});
  if (pool->divides()) {
    const Argument window = ints(pool->windows());
    return graph.retarget(&node, "aten::avg_pool3d",
                          {node.args[0], window, window, ints({0, 0, 0}), no, yes, none});
  }
  const Writer write(graph, node);
  Argument x = node.args[0];
  for (size_t i = pool->dims(); i-- > 0;) {
    if (pool->in[i] == pool->out[i]) continue;
    const Argument dim = literal(static_cast<int64_t>(i) + 2), last = literal(-1);
    const Argument shares = write.constant(".windows", mean_windows(pool->in[i], pool->out[i]));
    x = write("aten::linear", {write("aten::transpose.int", {x, dim, last}), shares, none});
    x = write("aten::transpose.int", {x, dim, last});
  }
  write.replace(x);
}

void adaptive_max(Graph& graph, Node& node) {
  const std::optional<Adaptive> pool = adaptive(node);
  const Writer write(graph, node);
  if (!pool || write.reads_further_results()) return;
  const size_t dims = pool->dims();
  Argument x = node.args[0];
  std::vector<int64_t> window = pool->windows();
  std::vector<SizeExpr> sizes = x.value->meta->sizes;
  for (size_t i = 0; i < dims; ++i) {
    if (pool->divides(i)) continue;
    const at::Tensor elements = window_elements(pool->in[i], pool->out[i]);
    const Argument dim = literal(static_cast<int64_t>(i) + 2);
    x = write("aten::index_select", {x, dim, write.constant(".elements", elements.reshape({-1}))});
    window[i] = elements.size(1);
    sizes[i + 2].offset = elements.numel();
    x.value->meta = node.args[0].value->meta;
    x.value->meta->sizes = sizes;
  }
  const std::string op = "aten::max_pool" + std::to_string(dims) + "d";
  const Argument none = ints(std::vector<int64_t>(dims, 0)), one = ints(std::vector<int64_t>(dims, 1));
  const Argument pooled = write(op.c_str(), {x, ints(window), ints(window), none, one, c10::IValue(false)});
  pooled.value->meta = node.output()->meta;
  write.replace(pooled);
}

/// The sum over a divisor is the mean times the window's size over it, where every window has that size.
void own_divisor(Graph& graph, Node& node) {
  const std::optional<int64_t> divisor = graph::integer(node.arg("divisor_override"));
  const std::optional<std::vector<int64_t>> kernel = graph::integers(node.arg("kernel_size"));
  if (!divisor || *divisor == 0 || !kernel || bool_arg(node, "ceil_mode")) return;
  double elements = 1;
  for (const int64_t size : graph::spread(*kernel, node.is("aten::avg_pool3d") ? 3 : 2))
    elements *= static_cast<double>(size);
  const Argument mean =
      Writer(graph, node)(node.target().c_str(), {node.args[0], node.args[1], node.args[2], node.args[3],
                                                  node.args[4], c10::IValue(true), c10::IValue()});
  graph.retarget(&node, "aten::mul.Scalar", {mean, c10::IValue(elements / static_cast<double>(*divisor))});
}

/// Windows of an image as columns.
void im2col(Graph& graph, Node& node) {
  const auto pair = [&](const char* name) {
    return graph::spread(graph::integers(node.arg(name)).value_or(std::vector<int64_t>{1}), 2);
  };
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (!meta || meta->sizes.size() != 3) return;
  const std::vector<int64_t> kernel = pair("kernel_size"), dilation = pair("dilation"),
                             padding = pair("padding"), stride = pair("stride");
  const Writer write(graph, node);
  const Argument border = ints({padding[1], padding[1], padding[0], padding[0]});
  Argument x = write("aten::constant_pad_nd", {node.args[0], border, literal(0)});
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = dilation[i] * (kernel[i] - 1) + 1;
    const auto dim = static_cast<int64_t>(i);
    x = write("aten::unfold", {x, literal(dim + 2), literal(reach), literal(stride[i])});
    x = write("aten::slice.Tensor", {x, literal(dim + 4), literal(0), literal(reach), literal(dilation[i])});
  }
  graph.retarget(&node, "aten::reshape",
                 {write("aten::permute", {x, ints({0, 1, 4, 5, 2, 3})}), sizes_argument(meta->sizes)});
}

/// Each column is a window of an image, and windows add up where they overlap: a transposed convolution in
/// which every element of a window has a channel of its own.
void col2im(Graph& graph, Node& node) {
  const auto pair = [&](const char* name) {
    return graph::spread(graph::integers(node.arg(name)).value_or(std::vector<int64_t>{1}), 2);
  };
  const Value* x = node.args.at(0).value;
  if (x == nullptr || !x->meta || x->meta->sizes.size() != 3 || !x->meta->sizes[1].constant()) return;
  const std::vector<int64_t> out = pair("output_size"), kernel = pair("kernel_size"),
                             dilation = pair("dilation"), padding = pair("padding"), stride = pair("stride");
  const int64_t taps = kernel[0] * kernel[1], channels = x->meta->sizes[1].offset / taps;
  std::vector<int64_t> windows, more;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t room = out[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    windows.push_back(room / stride[i] + 1);
    more.push_back(room % stride[i]);
  }
  // The convolution computes the zeros between channels, too.
  constexpr int64_t kMost = 1 << 24;
  if (channels * channels * taps * taps * stride[0] * stride[1] > kMost) return;
  const Writer write(graph, node);
  const SizeExpr batch = x->meta->sizes[0];
  const Argument columns =
      write("aten::view",
            {node.args[0],
             sizes_argument({batch, {0, 1, channels * taps}, {0, 1, windows[0]}, {0, 1, windows[1]}})});
  const at::Tensor ones =
      torch::eye(taps).repeat({channels, 1}).reshape({channels * taps, 1, kernel[0], kernel[1]});
  graph.retarget(&node, "aten::conv_transpose2d.input",
                 {columns, write.constant(".taps", ones), c10::IValue(), ints(stride), ints(padding),
                  ints(more), literal(channels), ints(dilation)});
}

/// The places of the pixels of an image in [-1, 1]: their centres, or from corner to corner.
at::Tensor places(int64_t size, bool align_corners) {
  if (size == 1) return torch::zeros({1}, at::kDouble);
  const at::Tensor all = torch::linspace(-1, 1, size, at::kDouble);
  return align_corners ? all : all * (static_cast<double>(size - 1) / static_cast<double>(size));
}

/// The places (x, y, 1) of all pixels times each item's matrix [2, 3].
void affine_grid(Graph& graph, Node& node) {
  const Argument& size = node.arg("size");
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (!meta || meta->sizes.size() != 4 || (size.kind == Argument::Kind::list && size.items.size() != 4))
    return;
  if (!meta->sizes[1].constant() || !meta->sizes[2].constant()) return;
  const int64_t rows = meta->sizes[1].offset, columns = meta->sizes[2].offset;
  const bool corners = bool_arg(node, "align_corners");
  const std::vector<at::Tensor> at = torch::meshgrid({places(rows, corners), places(columns, corners)}, "ij");
  const at::Tensor all =
      torch::stack({at[1], at[0], torch::ones_like(at[0])}, -1).reshape({rows * columns, 3});
  const Writer write(graph, node);
  const Argument matrix = write("aten::transpose.int", {node.arg("theta"), literal(1), literal(2)});
  const Argument product = write("aten::matmul", {write.constant(".places", all.to(at::kFloat)), matrix});
  graph.retarget(&node, "aten::view", {product, sizes_argument(meta->sizes)});
}

}  // namespace

void spell_out_images(Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    for (const char* op : {"aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d"}) {
      if (node->is("aten::_" + std::string(op).substr(6))) graph.retarget(node.get(), op, node->args);
    }
    if (node->op().starts_with("aten::adaptive_max_pool")) adaptive_max(graph, *node);
    if (node->is("aten::adaptive_avg_pool2d") || node->is("aten::adaptive_avg_pool3d"))
      adaptive_mean(graph, *node);
    if (node->is("aten::avg_pool2d") || node->is("aten::avg_pool3d")) own_divisor(graph, *node);
    if (node->is("aten::im2col")) im2col(graph, *node);
    if (node->is("aten::col2im")) col2im(graph, *node);
    if (node->is("aten::affine_grid_generator")) affine_grid(graph, *node);
  }
  graph.remove_dead();
}

}  // namespace ulp::lowering
