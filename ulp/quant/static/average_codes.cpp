#include "ulp/quant/static/average_codes.h"

#include <optional>
#include <vector>

#include "ulp/graph/passes/pattern.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;
using Sizes = std::vector<int64_t>;

/// What is averaged: a window, or, where it is empty, the whole image or sequence.
struct Window {
  Sizes kernel, stride, padding;
  bool ceil_mode = false, count_include_pad = true;
};

std::optional<bool> flag(const Node& node, const char* name) {
  const Argument& arg = node.arg(name);
  if (arg.kind != Argument::Kind::literal || !arg.literal.isBool()) return std::nullopt;
  return arg.literal.toBool();
}

/// One number for each dimension behind the channels, or none at all.
std::optional<Sizes> list_of(const Node& node, const char* name, size_t dims) {
  const std::optional<Sizes> list = graph::integers(node.arg(name));
  return list && !list->empty() ? std::optional(graph::spread(*list, dims)) : list;
}

std::optional<Window> pooled(const Node& node, size_t dims) {
  const auto kernel = list_of(node, "kernel_size", dims), stride = list_of(node, "stride", dims),
             padding = list_of(node, "padding", dims);
  const auto ceil_mode = flag(node, "ceil_mode"), include = flag(node, "count_include_pad");
  if (!kernel || !stride || !padding || !ceil_mode || !include) return std::nullopt;
  if (dims == 2 && !node.arg("divisor_override").is_none()) return std::nullopt;
  return Window{*kernel, stride->empty() ? *kernel : *stride, *padding, *ceil_mode, *include};
}

/// An output size that divides the input's makes equal windows without gaps.
std::optional<Window> adaptive(const Node& node, const std::vector<graph::SizeExpr>& in, size_t dims) {
  const std::optional<Sizes> output = list_of(node, "output_size", dims);
  if (!output || output->size() != dims) return std::nullopt;
  if (*output == Sizes(dims, 1)) return Window{};
  Sizes kernel;
  for (size_t d = 0; d < dims; ++d) {
    const graph::SizeExpr size = in[2 + d];
    if (!size.constant() || (*output)[d] < 1 || size.offset % (*output)[d] != 0) return std::nullopt;
    kernel.push_back(size.offset / (*output)[d]);
  }
  return Window{kernel, kernel, Sizes(dims, 0)};
}

/// The window of a whole image or sequence; none where one of its sizes is free.
Window whole_window(const std::vector<graph::SizeExpr>& sizes) {
  Sizes kernel;
  for (size_t d = 2; d < sizes.size(); ++d) {
    if (!sizes[d].constant()) return {};
    kernel.push_back(sizes[d].offset);
  }
  return {kernel, kernel, Sizes(kernel.size(), 0)};
}

std::optional<Window> window_of(const Node& node) {
  if (node.kind() != Node::Kind::call || node.args.empty() || !node.args[0].is_value()) return std::nullopt;
  const Value& x = *node.args[0].value;
  const size_t rank = x.meta ? x.meta->sizes.size() : 0;
  if (rank == 4 && node.is("aten::avg_pool2d")) return pooled(node, 2);
  if (rank == 4 && node.is("aten::adaptive_avg_pool2d")) return adaptive(node, x.meta->sizes, 2);
  if (rank == 3 && node.is("aten::avg_pool1d")) return pooled(node, 1);
  if (rank == 3 && node.is("aten::adaptive_avg_pool1d")) return adaptive(node, x.meta->sizes, 1);
  return std::nullopt;
}

/// Codes of all 8 bits with one scale.
bool is_whole(const Node& quantize) {
  if (!quantize.is("ulp::quantize")) return false;
  const auto low = graph::integer(quantize.arg("qmin")), high = graph::integer(quantize.arg("qmax"));
  const bool bytes = (low == 0 && high == 255) || (low == -128 && high == 127);
  return graph::integer(quantize.arg("axis")) == -1 && bytes;
}

/// True where the average reads such codes.
bool reads_codes(const Node& average) {
  const Node* node = graph::producer(average.args[0], "ulp::dequantize");
  if (node == nullptr || !node->args[0].is_value()) return false;
  node = node->args[0].value->producer;
  return node->is("ulp::average_codes") || is_whole(*node);
}

class Rewriter {
 public:
  Rewriter(Graph& graph, AverageRounding rounding) : graph_(graph), rounding_(rounding) {}

  void run() {
    for (const auto& node : graph_.nodes()) {
      const std::optional<Window> window = window_of(*node);
      if (!window || !reads_codes(*node)) continue;
      Node* quantize = graph::only_reader(graph_, node->output());
      if (quantize == nullptr || !is_whole(*quantize)) continue;
      rewrite(*node, *window, quantize);
    }
    graph_.remove_dead();
  }

 private:
  static Argument numbers(const Sizes& list) { return c10::IValue(list); }

  bool equal(const Argument& a, const Argument& b) const {
    const at::Tensor left = graph_.attribute_tensor(a.value), right = graph_.attribute_tensor(b.value);
    return a.value == b.value || (left.defined() && right.defined() && left.equal(right));
  }
  /// Whether a dequantize node reads s8 codes.
  static bool reads_signed(const Node& dequantize) {
    const Node* codes = dequantize.args[0].value->producer;
    while (codes->is("ulp::average_codes")) codes = codes->args[0].value->producer;
    return codes->is("ulp::quantize") && graph::integer(codes->arg("qmin")) == -128;
  }
  bool rounds_away(const Node& from, const Node& quantize) const {
    return rounding_ == AverageRounding::half_away && reads_signed(from) &&
           equal(from.arg("scale"), quantize.arg("scale")) &&
           equal(from.arg("zero_point"), quantize.arg("zero_point"));
  }

  void rewrite(const Node& average, Window window, Node* quantize) {
    const Node& from = *average.args[0].value->producer;
    const bool away = rounds_away(from, *quantize);
    if (away && window.kernel.empty()) window = whole_window(average.args[0].value->meta->sizes);
    // A window of sizes that are not known is LiteRT's MEAN.
    const char* rounding = away && !window.kernel.empty() ? "half_away" : "half_even";
    graph_.retarget(
        quantize, "ulp::average_codes",
        {from.args[0], from.arg("scale"), from.arg("zero_point"), quantize->arg("scale"),
         quantize->arg("zero_point"), numbers(window.kernel), numbers(window.stride), numbers(window.padding),
         c10::IValue(window.ceil_mode), c10::IValue(window.count_include_pad), c10::IValue(rounding)});
  }

  Graph& graph_;
  AverageRounding rounding_;
};

}  // namespace

void average_on_codes(Graph& graph, AverageRounding rounding) {
  Rewriter(graph, rounding).run();
}

}  // namespace ulp::quant
