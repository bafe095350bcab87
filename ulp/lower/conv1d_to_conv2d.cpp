#include "ulp/lower/conv1d_to_conv2d.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "ulp/graph/fusion/activation_of.h"
#include "ulp/lower/match.h"
#include "ulp/lower/writer.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::TensorMeta;
using graph::Value;

namespace {

bool is_sequence(const Argument& arg) {
  return arg.is_value() && arg.value->meta && arg.value->meta->sizes.size() == 3;
}

/// Acts on each element by itself and reads one tensor of the model. Scales along the last dimension would
/// have to follow it.
bool is_elementwise(const Node& node) {
  if (!node.is("ulp::quantize") && !node.is("ulp::dequantize")) return activation_of(node).has_value();
  return node.arg("axis").is_none() || int_arg(node, "axis") < 2;
}

/// The same numbers for an image of height 1: `first` for its height.
Argument widened(const Node& node, const char* name, int64_t first) {
  std::vector<int64_t> values = ints_arg(node, name);
  if (!values.empty()) values.insert(values.begin(), first);
  return ints(std::move(values));
}

void add_height(Value& value) {
  if (value.meta) value.meta->sizes.insert(value.meta->sizes.begin() + 2, graph::SizeExpr{0, 1, 1});
}

/// The factor by which a sequence is resized; none where its size is given.
Argument factor_of(const Node& node) {
  if (has_arg(node, "scales")) return node.arg("scales");
  const Argument& given = node.arg("scale_factors");
  const bool one = given.kind == Argument::Kind::literal && given.literal.isDoubleList() &&
                   given.literal.toDoubleVector().size() == 1;
  return one ? Argument(c10::IValue(given.literal.toDoubleVector()[0])) : Argument(c10::IValue());
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}

  void run() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::call || node->kind() == Node::Kind::output)
        nodes_.push_back(node.get());
    }
    for (at_ = 0; at_ + 1 < nodes_.size(); ++at_) visit(*nodes_[at_]);
    graph_.remove_dead();
  }

 private:
  void visit(Node& node) {
    if (node.args.empty()) return;
    if (node.is("aten::cat")) return visit_cat(node);
    if (!is_sequence(node.args[0])) return;
    if (node.target() == "aten::conv1d") return visit_conv(node);
    if (is_any(node,
               {"aten::max_pool1d", "aten::avg_pool1d", "aten::adaptive_avg_pool1d", "ulp::average_codes"}))
      return visit_pool(node);
    if (is_any(node,
               {"aten::upsample_nearest1d", "aten::_upsample_nearest_exact1d", "aten::upsample_linear1d"}))
      return visit_resize(node);
    const bool known = images_.contains(node.args[0].value);
    if (known && is_elementwise(node)) {
      node.args[0] = image_of(node.args[0].value);
      return became_image(node);
    }
    if (known && is_flatten(node)) {  // a squeeze, too, which takes one dimension away
      const Argument first = c10::IValue(int64_t{1}), last = c10::IValue(int64_t{-1});
      return graph_.retarget(&node, "aten::flatten.using_ints", {image_of(node.args[0].value), first, last});
    }
    if (node.target() == "aten::add.Tensor" && is_sequence(node.args[1])) visit_add(node);
  }

  void visit_conv(Node& node) {
    if (!widen_weight(node)) return;
    graph_.retarget(
        &node, "aten::conv2d",
        {image_of(node.args[0].value), node.arg("weight"), node.arg("bias"), widened(node, "stride", 1),
         widened(node, "padding", 0), widened(node, "dilation", 1), node.arg("groups")});
    became_image(node);
  }

  void visit_pool(Node& node) {
    Value* image = image_of(node.args[0].value);
    if (node.is("ulp::average_codes")) {
      node.args[0] = image;
      for (const char* name : {"kernel_size", "stride"}) node.arg(name) = widened(node, name, 1);
      node.arg("padding") = widened(node, "padding", 0);
    } else if (node.is("aten::adaptive_avg_pool1d")) {
      graph_.retarget(&node, "aten::adaptive_avg_pool2d", {image, widened(node, "output_size", 1)});
    } else if (node.is("aten::max_pool1d")) {
      graph_.retarget(&node, "aten::max_pool2d",
                      {image, widened(node, "kernel_size", 1), widened(node, "stride", 1),
                       widened(node, "padding", 0), widened(node, "dilation", 1), node.arg("ceil_mode")});
    } else {
      graph_.retarget(&node, "aten::avg_pool2d",
                      {image, widened(node, "kernel_size", 1), widened(node, "stride", 1),
                       widened(node, "padding", 0), node.arg("ceil_mode"), node.arg("count_include_pad")});
    }
    became_image(node);
  }

  /// Where nearest keeps or doubles a size, LibTorch leaves the factor out of images, but not of sequences.
  static bool is_other_than_an_image(const Node& node, const Argument& factor) {
    if (!node.is("aten::upsample_nearest1d") || !factor.literal.isDouble()) return false;
    const auto& from = node.args[0].value->meta;
    const int64_t out = node.output()->meta->sizes[2].offset;
    if (!from || !from->sizes[2].constant()) return true;
    const int64_t in = from->sizes[2].offset;
    return (out == in || out == 2 * in) &&
           factor.literal.toDouble() * static_cast<double>(in) != static_cast<double>(out);
  }

  void visit_resize(Node& node) {
    if (!node.output()->meta || !node.output()->meta->sizes[2].constant()) return;
    const Argument size = ints({1, node.output()->meta->sizes[2].offset}), none = c10::IValue();
    const Argument factor = factor_of(node);
    if (is_other_than_an_image(node, factor)) return;
    Value* image = image_of(node.args[0].value);
    if (node.is("aten::upsample_linear1d")) {
      graph_.retarget(&node, "aten::upsample_bilinear2d",
                      {image, size, node.arg("align_corners"), none, factor});
    } else {
      const bool exact = node.is("aten::_upsample_nearest_exact1d");
      graph_.retarget(&node, exact ? "aten::_upsample_nearest_exact2d" : "aten::upsample_nearest2d",
                      {image, size, none, factor});
    }
    became_image(node);
  }

  void visit_add(Node& node) {
    Value *a = node.args[0].value, *b = node.args[1].value;
    if (!images_.contains(a) && !images_.contains(b)) return;
    if (!a->meta || !b->meta || a->meta->sizes != b->meta->sizes) return;
    if (graph_.attribute_tensor(a).defined() || graph_.attribute_tensor(b).defined()) return;
    node.args[0] = image_of(a);
    node.args[1] = image_of(b);
    became_image(node);
  }

  void visit_cat(Node& node) {
    Argument& tensors = node.args[0];
    const auto is_image = [&](const Argument& item) {
      return item.is_value() && images_.contains(item.value);
    };
    if (tensors.kind != Argument::Kind::list || !std::ranges::all_of(tensors.items, is_sequence) ||
        !std::ranges::any_of(tensors.items, is_image)) {
      return;
    }
    const int64_t dim = int_arg(node, "dim");
    if (dim != 1 && dim != -2) return;
    for (Argument& item : tensors.items) item = image_of(item.value);
    node.arg("dim") = Argument(c10::IValue(int64_t{1}));
    became_image(node);
  }

  /// The image that the sequence is a view of, or a new view of it, before the node that is being visited.
  Value* image_of(Value* sequence) {
    const auto known = images_.find(sequence);
    if (known != images_.end()) return known->second;
    Node* view = graph_.call("aten::unsqueeze", {sequence, c10::IValue(int64_t{2})}, nodes_[at_]);
    view->scope = sequence->producer->scope;
    view->output()->meta = sequence->meta;
    add_height(*view->output());
    return images_[sequence] = view->output();
  }

  /// The node's result is an image now: whoever reads it gets a view.
  void became_image(Node& node) {
    Value* image = node.output();
    Node* view = graph_.call("aten::squeeze.dim", {image, c10::IValue(int64_t{2})}, nodes_[at_ + 1],
                             node.name() + "_row");
    view->scope = node.scope;
    view->output()->meta = image->meta;
    add_height(*image);
    graph_.replace_uses(image, view->output(), view);
    images_[view->output()] = image;
  }

  /// [O, I, k] -> [O, I, 1, k], once; false where others read the weight, too.
  bool widen_weight(Node& layer) {
    Value* weight = layer.arg("weight").value;
    Value* stored = weight;
    if (weight->producer->is("ulp::dequantize")) stored = weight->producer->args[0].value;
    const at::Tensor tensor = graph_.attribute_tensor(stored);
    if (!tensor.defined()) return false;
    if (tensor.dim() == 4) return true;
    const auto is_layer = [](const Node* user) { return user->target() == "aten::conv1d"; };
    for (const Node* user : graph_.users(stored)) {
      if (is_layer(user)) continue;
      if (!user->is("ulp::dequantize") || !std::ranges::all_of(graph_.users(user->output()), is_layer))
        return false;
    }
    for (Node* user : graph_.users(stored)) {
      if (!is_layer(user)) add_height(*user->output());
    }
    const std::string name = stored->producer->target();
    graph_.set_attribute(name, {graph_.find_attribute(name)->kind, tensor.unsqueeze(2)});
    add_height(*stored);
    return true;
  }

  Graph& graph_;
  std::vector<Node*> nodes_;
  size_t at_ = 0;
  std::unordered_map<const Value*, Value*> images_;  // sequence -> the image that it is a view of
};

}  // namespace

void make_sequences_images(Graph& graph) {
  Rewriter(graph).run();
}

}  // namespace ulp::lowering
