#include "ulp/quant/static/quantized_average.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/static/window_runs.h"

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

/// The windows of an adaptive average along each dimension, as runs; empty where a size is free, or where
/// they would be too many parts.
std::vector<std::vector<WindowRun>> adaptive_runs(const Node& node) {
  const Value& x = *node.args[0].value;
  const size_t dims = node.is("aten::adaptive_avg_pool1d") ? 1 : 2;
  const std::optional<Sizes> output = list_of(node, "output_size", dims);
  if (!output || output->size() != dims) return {};
  std::vector<std::vector<WindowRun>> all;
  size_t parts = 1;
  for (size_t d = 0; d < dims; ++d) {
    const graph::SizeExpr size = x.meta->sizes[2 + d];
    if (!size.constant() || size.offset < 1 || (*output)[d] < 1) return {};
    all.push_back(window_runs(adaptive_spans(size.offset, (*output)[d])));
    parts *= all.back().size();
  }
  return parts <= kMostWindowRuns ? all : std::vector<std::vector<WindowRun>>();
}

/// Whether it is an adaptive average of images or sequences with a batch.
bool is_adaptive(const Node& node) {
  if (node.kind() != Node::Kind::call || node.args.empty() || !node.args[0].is_value()) return false;
  const Value& x = *node.args[0].value;
  const size_t rank = x.meta ? x.meta->sizes.size() : 0;
  return (rank == 4 && node.is("aten::adaptive_avg_pool2d")) ||
         (rank == 3 && node.is("aten::adaptive_avg_pool1d"));
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
      if ((!window && !is_adaptive(*node)) || !reads_codes(*node)) continue;
      Node* quantize = graph::only_reader(graph_, node->output());
      if (quantize == nullptr || !is_whole(*quantize)) continue;
      if (window) {
        rewrite(*node, *window, quantize);
      } else {
        rewrite_unequal(*node, quantize);
      }
    }
    graph_.remove_dead();
  }

 private:
  using Runs = std::vector<WindowRun>;
  static Argument number(int64_t one) { return c10::IValue(one); }
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

  /// Windows of unequal sizes: an average of codes for each run of equal ones. Those of several runs are
  /// joined as numbers, whose codes the quantize node gives back.
  void rewrite_unequal(const Node& average, Node* quantize) {
    const Node& from = *average.args[0].value->producer;
    const std::vector<Runs> runs = adaptive_runs(average);
    if (runs.empty() || !rounds_away(from, *quantize)) return;
    if (std::ranges::all_of(runs, [](const Runs& one) { return one.size() == 1; })) {
      Window window{{}, {}, Sizes(runs.size(), 0)};
      for (const Runs& one : runs) {
        window.kernel.push_back(one[0].kernel);
        window.stride.push_back(one[0].stride);
      }
      return rewrite(average, window, quantize);
    }
    before_ = quantize;
    quantize->args[0] = joined(average, runs, 0, from.args[0].value);
  }

  /// Averages of these codes by the runs along this dimension and those behind it, as numbers.
  Value* joined(const Node& average, const std::vector<Runs>& runs, size_t d, Value* codes, Sizes kernel = {},
                Sizes stride = {}) {
    if (d == runs.size()) return averaged(average, codes, kernel, stride);
    const auto dim = static_cast<int64_t>(2 + d);
    std::vector<Argument> parts;
    int64_t all = 0;
    for (const WindowRun& run : runs[d]) {
      Value* part = codes;
      if (run.elements() != codes->meta->sizes[2 + d].offset) {
        const int64_t end = run.start + run.elements();
        part = made("aten::slice.Tensor", {codes, number(dim), number(run.start), number(end), number(1)},
                    average, with_size(*codes, 2 + d, run.elements()));
      }
      Sizes kernels = kernel, strides = stride;
      kernels.push_back(run.kernel);
      strides.push_back(run.stride);
      parts.emplace_back(joined(average, runs, d + 1, part, std::move(kernels), std::move(strides)));
      all += run.count;
    }
    if (parts.size() == 1) return parts[0].value;
    const graph::TensorMeta meta = with_size(*parts[0].value, 2 + d, all);
    return made("aten::cat", {Argument::list(std::move(parts)), number(dim)}, average, meta);
  }

  /// The average over windows without padding, dequantized.
  Value* averaged(const Node& average, Value* codes, const Sizes& kernel, const Sizes& stride) {
    const Node& from = *average.args[0].value->producer;
    const Argument scale = from.arg("scale"), zero = from.arg("zero_point");
    graph::TensorMeta meta = *codes->meta;
    for (size_t d = 0; d < kernel.size(); ++d) {
      graph::SizeExpr& size = meta.sizes[2 + d];
      size.offset = (size.offset - kernel[d]) / stride[d] + 1;
    }
    const Sizes none(kernel.size(), 0);
    Value* y = made("ulp::average_codes",
                    {codes, scale, zero, scale, zero, numbers(kernel), numbers(stride), numbers(none),
                     c10::IValue(false), c10::IValue(true), c10::IValue("half_away")},
                    average, meta);
    meta.dtype = at::kFloat;
    return made("ulp::dequantize", {y, scale, zero, number(-1)}, average, meta);
  }

  static graph::TensorMeta with_size(const Value& value, size_t dim, int64_t size) {
    graph::TensorMeta meta = *value.meta;
    meta.sizes[dim].offset = size;
    return meta;
  }

  /// The result of a call of the average's module, in front of its quantize node.
  Value* made(const char* target, std::vector<Argument> args, const Node& average,
              const graph::TensorMeta& meta) {
    Node* node = graph_.call(target, std::move(args), before_, average.name() + "_part");
    node->scope = average.scope;
    node->output()->meta = meta;
    return node->output();
  }

  Graph& graph_;
  AverageRounding rounding_;
  Node* before_ = nullptr;
};

}  // namespace

void average_on_codes(Graph& graph, AverageRounding rounding) {
  Rewriter(graph, rounding).run();
}

}  // namespace ulp::quant
