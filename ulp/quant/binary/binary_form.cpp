#include "ulp/quant/binary/binary_form.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/binary/binary_modules.h"
#include "ulp/quant/binary/binary_scale.h"

namespace ulp::quant {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

bool passes_clamps(const Node& node) {
  return is_any(node, {"aten::max_pool1d", "aten::max_pool2d", "aten::flatten", "aten::view", "aten::reshape",
                       "aten::contiguous", "aten::dropout"});
}

Argument ints(std::vector<int64_t> values) {
  return c10::IValue(std::move(values));
}

/// One layer in its binary form, in front of the node that it replaces.
class FormWriter {
 public:
  FormWriter(Graph& graph, Node& layer, const BinaryLayerOptions& options,
             const std::shared_ptr<const QatState>& state)
      : graph_(graph),
        layer_(layer),
        options_(options),
        state_(state),
        linear_(layer.is("aten::linear")),
        weight_(graph.attribute_tensor(layer.arg("weight").value)) {}

  void run() {
    Value* clamped = layer_.args[0].value;
    const Unclamped found = unclamped(clamped);
    Value* x = found.value;
    Value* signs = module(
        "signs_" + layer_.name(),
        std::make_shared<ActivationSigns>(options_.gradient, found.bounds, sides_of_ones(), state_), x);
    if (!sides_of_ones().empty()) signs->meta.reset();
    Value* weight = module("weight_" + layer_.name(), std::make_shared<WeightSigns>(options_, state_),
                           layer_.arg("weight").value);
    weight->meta = layer_.arg("weight").value->meta;
    Value* y = product(signs, weight);
    if (options_.activation_scale) y = call("aten::mul.Tensor", {y, activation_scale(x)});
    if (!options_.ternary) y = scaled(y);
    if (!layer_.arg("bias").is_none())
      y = call("aten::add.Tensor", {y, over_channels(layer_.arg("bias").value)});
    become(*y->producer);
    if (x != clamped) erase_unread(clamped->producer);
  }

 private:
  /// A call that nobody reads, and those that it alone read: a dropout there would still draw numbers.
  void erase_unread(Node* node) {
    while (node->kind() == Node::Kind::call && graph_.users(node->output()).empty()) {
      Node* before = node->args[0].value->producer;
      graph_.erase(node);
      node = before;
    }
  }

  /// The layer's node, whose names recipes know, is the last op of its form.
  void become(Node& last) {
    const std::string target = last.target();
    std::vector<Argument> args = last.args;
    graph_.retarget(&layer_, target, std::move(args));
    graph_.erase(&last);
  }

  Value* call(const char* target, std::vector<Argument> args) {
    const std::string op = target;
    const size_t begin = op.find("::") + 2;
    const std::string name = layer_.name() + "_" + op.substr(begin, op.find('.') - begin);
    Node* made = graph_.call(op, std::move(args), &layer_, name);
    made->scope = layer_.scope;
    made->output()->meta = layer_.output()->meta;
    return made->output();
  }

  Value* module(const std::string& wish, std::shared_ptr<libtorch::TensorModule> module, Value* input) {
    std::string name = wish;
    std::ranges::replace(name, '.', '_');
    graph_.modules()[name] = std::move(module);
    Node* node = graph_.call_module(name, input, &layer_);
    node->scope = layer_.scope;
    node->output()->meta = input->meta;
    return node->output();
  }

  /// What a clamp to numbers that are not negative was made of, and the clamp.
  struct Unclamped {
    Value* value;
    std::optional<graph::ClampBounds> bounds;
  };

  /// The ops between clamp and layer keep the order of numbers or move them: they work on the signs' numbers as well.
  Unclamped unclamped(Value* x) {
    const Node& node = *x->producer;
    const std::optional<graph::ClampBounds> bounds = graph::clamp_bounds(node);
    if (bounds && bounds->low >= 0) return {node.args[0].value, bounds};
    if (!passes_clamps(node)) return {x, std::nullopt};
    const Unclamped before = unclamped(node.args[0].value);
    if (!before.bounds) return {x, std::nullopt};
    // Dropout multiplies: what it passes on may be beyond bounds other than 0 and infinity.
    const bool relu = before.bounds->low == 0 && std::isinf(before.bounds->high);
    if (node.is("aten::dropout") && !relu) return {x, std::nullopt};
    std::vector<Argument> args = node.args;
    args[0] = before.value;
    Value* made = call(node.target().c_str(), std::move(args));
    made->meta = x->meta;
    return {made, before.bounds};
  }

  int64_t axes() const { return weight_.dim() - 2; }

  /// The padding of the layer where it is one of +1, as aten::constant_pad_nd has it: the last dimension first.
  std::vector<int64_t> sides_of_ones() const {
    if (linear_ || options_.padding != BinaryPadding::one) return {};
    const std::vector<int64_t> padding = graph::integers(layer_.arg("padding")).value();
    if (std::ranges::all_of(padding, [](int64_t pad) { return pad == 0; })) return {};
    std::vector<int64_t> sides;
    for (auto pad = padding.rbegin(); pad != padding.rend(); ++pad) sides.insert(sides.end(), {*pad, *pad});
    return sides;
  }

  Value* product(Value* signs, Value* weight) {
    const Argument none = c10::IValue();
    if (linear_) return call("aten::linear", {signs, weight, none});
    std::vector<int64_t> padding = graph::integers(layer_.arg("padding")).value();
    if (!sides_of_ones().empty()) std::ranges::fill(padding, 0);
    return call(axes() == 1 ? "aten::conv1d" : "aten::conv2d",
                {signs, weight, none, layer_.arg("stride"), ints(padding), layer_.arg("dilation"),
                 layer_.arg("groups")});
  }

  /// XNOR-Net's K: the mean of |x| under the window, with zeros outside.
  Value* activation_scale(Value* x) {
    Value* size = call("aten::abs", {x});
    const Argument dims = ints({linear_ ? -1 : 1});
    Value* mean = call("aten::mean.dim", {size, dims, c10::IValue(true)});
    mean->meta.reset();
    size->meta = x->meta;
    if (linear_) return switched(mean);
    const std::vector<int64_t> kernel(weight_.sizes().begin() + 2, weight_.sizes().end());
    Value* pooled = call(axes() == 1 ? "aten::avg_pool1d" : "aten::avg_pool2d",
                         {mean, ints(kernel), layer_.arg("stride"), layer_.arg("padding")});
    pooled->meta.reset();
    return switched(pooled);
  }

  Value* switched(Value* scale) {
    return module("scale_" + layer_.name(), std::make_shared<ActivationScale>(state_), scale);
  }

  Value* scaled(Value* y) {
    if (options_.scale == BinaryScale::none) return y;
    if (options_.scale == BinaryScale::mean) return call("aten::mul.Tensor", {y, mean_of_weight()});
    Value* scale = nullptr;
    // Only images have pixels with factors of their own.
    const BinaryScale kind = axes() == 2 ? options_.scale : BinaryScale::output;
    for (const auto& [name, tensor] : start_scales(kind, weight_, result_sizes())) {
      Value* factor = parameter(name, tensor);
      scale = scale == nullptr ? factor : call("aten::mul.Tensor", {scale, factor});
      if (scale != factor) scale->meta.reset();
    }
    return call("aten::mul.Tensor", {y, scale});
  }

  Value* mean_of_weight() {
    Value* size = call("aten::abs", {layer_.arg("weight").value});
    Value* rows = call("aten::flatten.using_ints", {size, c10::IValue(int64_t{1}), c10::IValue(int64_t{-1})});
    Value* mean = call("aten::mean.dim", {rows, ints({1})});
    for (Value* value : {size, rows, mean}) value->meta.reset();
    return over_channels(mean);
  }

  /// One number an output channel, shaped to be combined with the result.
  Value* over_channels(Value* numbers) {
    if (linear_) return numbers;
    std::vector<int64_t> shape(static_cast<size_t>(axes()) + 1, 1);
    shape[0] = -1;
    Value* view = call("aten::view", {numbers, ints(shape)});
    view->meta.reset();
    return view;
  }

  /// [O] of a linear layer, [O, h, w] of an image.
  std::vector<int64_t> result_sizes() const {
    const int64_t channels = weight_.size(0);
    if (linear_) return {channels};
    std::vector<int64_t> sizes = {channels};
    const auto& meta = layer_.output()->meta;
    for (size_t d = 2; d < weight_.sizes().size(); ++d) {
      const bool known = meta && meta->sizes.size() == weight_.sizes().size() && meta->sizes[d].constant();
      if (!known && options_.scale != BinaryScale::output) {
        fail("quant.prepare_qat", "'", graph::label(layer_),
             "': expected a result of known sizes for a scale '", enum_name(options_.scale), "'");
      }
      sizes.push_back(known ? meta->sizes[d].offset : 1);
    }
    return sizes;
  }

  /// Beside the layer's weight.
  Value* parameter(const std::string& name, const at::Tensor& tensor) {
    const std::string weight = layer_.arg("weight").value->producer->target();
    const std::string wish = weight.substr(0, weight.rfind('.') + 1) + name;
    std::string unique = wish;
    for (int i = 2; graph_.find_attribute(unique) != nullptr; ++i) unique = wish + "_" + std::to_string(i);
    at::Tensor own = tensor.clone();
    own.set_requires_grad(true);
    graph_.set_attribute(unique, {graph::Attribute::Kind::parameter, own});
    return graph_.attribute(unique);
  }

  Graph& graph_;
  Node& layer_;
  const BinaryLayerOptions& options_;
  const std::shared_ptr<const QatState>& state_;
  bool linear_;
  at::Tensor weight_;
};

}  // namespace

void write_binary_form(Graph& graph, Node& layer, const BinaryLayerOptions& options,
                       const std::shared_ptr<const QatState>& state) {
  FormWriter(graph, layer, options, state).run();
}

}  // namespace ulp::quant
