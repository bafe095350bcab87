#include "ulp/lower/fuse_binary.h"

#include <torch/types.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/graph/describe.h"
#include "ulp/lower/binary_affine.h"
#include "ulp/lower/binary_graph.h"
#include "ulp/lower/binary_layer.h"
#include "ulp/lower/constants.h"
#include "ulp/lower/match.h"
#include "ulp/lower/shapes.h"
#include "ulp/lower/sign_thresholds.h"
#include "ulp/lower/writer.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

bool has_signs(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) { return node->is("ulp::binarize"); });
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph) {}

  graph::PassReport run() {
    find_layers();
    for (const BinaryLayer& layer : layers_) split_readers(layer);
    for (const BinaryLayer& layer : layers_) rewrite(layer);
    graph_.remove_dead();
    fold_thresholds();
    spell_out_signs();
    graph_.remove_dead();
    return std::move(report_);
  }

 private:
  void find_layers() {
    for (const auto& node : graph_.nodes()) {
      if (node->kind() != Node::Kind::call || !looks_binary(graph_, *node)) continue;
      BinaryLayer layer;
      std::string why;
      try {
        why = read_binary_layer(graph_, *node, layer);
      } catch (const Unsupported& found) {
        why = found.reason;
      }
      if (why.empty()) {
        layers_.push_back(layer);
        inputs_.insert(layer.pad != nullptr ? layer.pad : layer.node);
      } else {
        report_.near_misses.push_back(graph::label(*node) + " runs as a float layer of signs: " + why);
      }
    }
  }

  /// True for an op that reads signs as bits.
  bool reads_bits(const Node& user) const {
    return inputs_.contains(&user) || is_binary_layer(user) || is_binary_signs(user);
  }

  /// Signs that others read as numbers are made twice: once as bits, once as numbers.
  void split_readers(const BinaryLayer& layer) {
    Value* signs = layer.binarize->output();
    std::vector<Node*> others;
    for (Node* user : graph_.users(signs)) {
      if (!reads_bits(*user)) others.push_back(user);
    }
    if (layer.pad != nullptr) {
      for (Node* user : graph_.users(layer.pad->output())) {
        const bool binary =
            std::ranges::any_of(layers_, [&](const BinaryLayer& one) { return one.node == user; });
        if (!binary && inputs_.erase(layer.pad) > 0) others.push_back(layer.pad);
      }
    }
    if (others.empty()) return;
    Node* copy = graph_.call("ulp::binarize", layer.binarize->args, layer.binarize);
    copy->scope = layer.binarize->scope;
    copy->output()->meta = signs->meta;
    for (Node* other : others) {
      for (Argument& arg : other->args) replace_argument(arg, signs, copy->output());
    }
  }

  static void replace_argument(Argument& arg, Value* from, Value* to) {
    if (arg.is_value() && arg.value == from) arg.value = to;
    for (Argument& item : arg.items) replace_argument(item, from, to);
  }

  void rewrite(const BinaryLayer& layer) {
    Value* sums = layer.node->output();
    std::string why;
    const ChannelChain chain = chain_from(graph_, sums, layer.channel_dim(), why);
    if (!chain.nodes.empty() && all_read_bits(chain.binarize()->output())) {
      const SignThresholds found = sum_thresholds(graph_, chain, layer.length(), layer.is_whole(), why);
      if (found.threshold.defined()) return write_signs(layer, chain, found);
      report_.near_misses.push_back(graph::label(*layer.node) + " gives numbers in place of signs: " + why);
    }
    write_numbers(layer);
  }

  bool all_read_bits(const Value* signs) const {
    return std::ranges::all_of(graph_.users(signs), [&](const Node* user) { return reads_bits(*user); });
  }

  /// The layer's own arguments, those between signs and geometry given.
  Value* write(const BinaryLayer& layer, const char* suffix, std::vector<Argument> middle) {
    std::vector<Argument> args = {layer.binarize->output(), layer.node->arg("weight")};
    args.insert(args.end(), middle.begin(), middle.end());
    if (!layer.is_linear()) {
      for (const std::vector<int64_t>& pair : {layer.stride, layer.padding, layer.dilation})
        args.emplace_back(ints(pair));
      args.emplace_back(c10::IValue(layer.padding_one));
    }
    const std::string target =
        std::string(layer.is_linear() ? "ulp::binary_linear" : "ulp::binary_conv2d") + suffix;
    Node* made = graph_.call(target, std::move(args), layer.node, layer.node->name());
    made->scope = layer.node->scope;
    return made->output();
  }

  void write_signs(const BinaryLayer& layer, const ChannelChain& chain, const SignThresholds& found) {
    const Writer writer(graph_, *layer.node);
    Value* signs =
        write(layer, "_signs",
              {writer.constant(".threshold", found.threshold), writer.constant(".flip", found.flip)});
    replace(chain.binarize()->output(), signs);
    report_.changes.push_back(graph::label(*layer.node) + " gives signs by thresholds of its sums");
  }

  void write_numbers(const BinaryLayer& layer) {
    const BinaryAffine affine = fold_affine(graph_, layer.node->output(), layer.channel_dim());
    const Writer writer(graph_, *layer.node);
    const Argument bias =
        affine.bias.defined() ? writer.constant(".bias", affine.bias) : Argument(c10::IValue());
    Value* result = write(layer, "", {writer.constant(".scale", affine.scale), bias});
    replace(affine.result, result);
    report_.changes.push_back(graph::label(*layer.node) + " runs on signs" +
                              (affine.folded > 0 ? ", with what follows in scale and bias" : ""));
  }

  /// Whoever reads `old` reads `made`; where the signs of a chain are the input of other layers, they are found there.
  void replace(Value* old, Value* made) {
    made->meta = old->meta;
    graph_.replace_uses(old, made);
    for (BinaryLayer& other : layers_) {
      if (other.binarize == old->producer) other.binarize = made->producer;
    }
  }

  /// Chains of channels in front of signs that stayed.
  void fold_thresholds() {
    std::vector<Node*> signs;
    for (const auto& node : graph_.nodes()) {
      if (node->is("ulp::binarize") && all_read_bits(node->output())) signs.push_back(node.get());
    }
    for (Node* node : signs) {
      const ChannelChain chain = ordered_chain_to(graph_, node);
      if (chain.nodes.size() < 2) continue;
      const SignThresholds found = number_thresholds(graph_, chain);
      if (!found.threshold.defined()) {
        report_.near_misses.push_back(graph::label(*node) +
                                      " keeps the ops in front of it: no threshold gives its signs");
        continue;
      }
      const Writer writer(graph_, *node);
      auto* start = const_cast<Value*>(chain.start);
      const Argument made =
          writer("ulp::threshold_signs", {start, writer.constant(".threshold", found.threshold),
                                          writer.constant(".flip", found.flip), literal(chain.dim)});
      made.value->meta = node->output()->meta;
      graph_.replace_uses(node->output(), made.value);
      report_.changes.push_back(graph::label(*chain.nodes.front()) +
                                " and what follows became thresholds of signs");
    }
  }

  /// Signs that are read as numbers: x >= 0 ? 1 : -1.
  void spell_out_signs() {
    std::vector<Node*> signs;
    for (const auto& node : graph_.nodes()) {
      if (node->is("ulp::binarize") && !all_read_bits(node->output())) signs.push_back(node.get());
    }
    for (Node* node : signs) {
      const Writer writer(graph_, *node);
      const Argument positive = writer("aten::ge.Scalar", {node->args[0], c10::IValue(0.0)});
      positive.value->meta = node->output()->meta;
      if (positive.value->meta) positive.value->meta->dtype = at::kBool;
      const Argument made = writer("aten::where.Scalar", {positive, c10::IValue(1.0), c10::IValue(-1.0)});
      made.value->meta = node->output()->meta;
      writer.replace(made);
      graph_.erase(node);
    }
  }

  Graph& graph_;
  std::vector<BinaryLayer> layers_;
  std::unordered_set<const Node*> inputs_;  // ops that read signs as bits
  graph::PassReport report_{"fuse_binary", {}, {}};
};

}  // namespace

graph::PassReport fuse_binary(Graph& graph) {
  const at::NoGradGuard no_grad;
  if (!has_signs(graph)) return {"fuse_binary", {}, {}};
  unpack_weights(graph);
  fold_constants(graph);
  graph.remove_dead();
  complete_shapes(graph);
  return Fuser(graph).run();
}

}  // namespace ulp::lowering
