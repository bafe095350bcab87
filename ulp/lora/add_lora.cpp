#include "ulp/lora/add_lora.h"

#include <ATen/core/function_schema.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/base/nearest_names.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/passes/products_as_linear.h"
#include "ulp/libtorch/tensor_module.h"
#include "ulp/lora/add_adapters.h"
#include "ulp/lora/frozen_linear.h"
#include "ulp/lora/linear_layers.h"

namespace ulp::lora {

namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::Value;

constexpr const char* kAddLoraWhere = "lora.add_lora";
constexpr const char* kAllLinear = "all-linear";

/// What codes and modules of others hide from adapters and from freezing.
void expect_plain_model(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    const std::string_view op = node->op();
    if (op == "ulp::dequantize_weight" || op == "ulp::quantize" || op == kFrozenLinearOp ||
        op.starts_with("ulp::linear_dynamic"))
      fail(kAddLoraWhere, "expected a float model without adapters, got ", graph::label(*node),
           "; LoraOptions::base makes the codes");
  }
  for (const auto& [path, module] : graph.modules()) {
    if (!module->parameters().empty())
      fail(kAddLoraWhere, "expected a model that capture sees whole, got the module '", path,
           "' with parameters of its own");
  }
}

/// The call that follows in the order of execution; null at the end.
Node* node_after(const Graph& graph, const Node* node) {
  const auto& nodes = graph.nodes();
  auto at = std::ranges::find_if(nodes, [&](const auto& one) { return one.get() == node; });
  return at == nodes.end() || ++at == nodes.end() ? nullptr : at->get();
}

/// Batch norms read their statistics, and nothing is left that writes a tensor of the model.
void freeze_statistics(Graph& graph) {
  std::vector<Node*> updates;
  for (const auto& node : graph.nodes()) {
    if (node->is("aten::batch_norm") && !node->arg("running_mean").is_none())
      node->arg("training") = Argument(c10::IValue(false));
    if (node->train_only) updates.push_back(node.get());
  }
  for (auto node = updates.rbegin(); node != updates.rend(); ++node) {
    const auto& outputs = (*node)->outputs();
    if (std::ranges::all_of(outputs, [&](const auto& one) { return graph.users(one.get()).empty(); }))
      graph.erase(*node);
  }
  for (const auto& node : graph.nodes()) {
    if (node->kind() != Node::Kind::call) continue;
    const bool tracks = node->is("aten::instance_norm") && !node->arg("running_mean").is_none();
    bool writes = tracks;
    for (size_t i = 0; i < node->args.size(); ++i) {
      const auto* alias = node->schema().arguments()[i].alias_info();
      const Argument& arg = node->args[i];
      writes |= alias != nullptr && alias->isWrite() && arg.is_value() &&
                arg.value->producer->kind() == Node::Kind::attribute;
    }
    if (writes)
      fail(kAddLoraWhere,
           "expected a model that writes none of its own tensors but statistics of batch norms, got ",
           graph::label(*node));
  }
}

/// Puts adapters and frozen weights into the copy of a graph.
class Adding {
 public:
  Adding(Graph& graph, const LoraOptions& options, const GivenAdapters* given, LoraBaseModel& base,
         graph::PassReport& report)
      : graph_(graph),
        options_(options),
        given_(given),
        base_(base),
        report_(report),
        layers_(linear_layers(graph)) {
    if (layers_.empty()) fail(kAddLoraWhere, "expected a model with linear layers, got none");
    for (const LinearLayer& layer : layers_) base_.linear_paths.push_back(layer.path);
  }

  std::vector<LoraLayer> run() {
    check_targets();
    for (const LinearLayer& layer : layers_) check_float32(layer);
    std::vector<LoraLayer> made;
    std::vector<const LinearLayer*> targets;
    for (const LinearLayer& layer : layers_) {
      if (targeted(layer)) targets.push_back(&layer);
    }
    if (targets.empty())
      fail(ErrorCode::bad_option, kAddLoraWhere,
           "expected all-linear to mean linear layers beside the last one, whose weights nothing else reads, "
           "got none; "
           "target_modules may name the last one, '",
           layers_.back().path, "'");
    for (const LinearLayer* layer : targets) made.push_back(add_adapter(*layer));
    if (options_.base != LoraBase::fp32) {
      for (const LinearLayer& layer : layers_) keep_small(layer);
      keep_embeddings_narrow();
    }
    freeze_attributes();
    return made;
  }

 private:
  bool is_last(const LinearLayer& layer) const { return &layer == &layers_.back(); }

  bool targeted(const LinearLayer& layer) const {
    if (given_ != nullptr) return given_->contains(layer.path);
    if (options_.target_modules.front() == kAllLinear)
      return !is_last(layer) && layer.other_reader == nullptr;
    return is_target(options_.target_modules, layer.path);
  }

  void check_targets() const {
    if (given_ != nullptr || options_.target_modules.front() == kAllLinear) return;
    std::vector<std::string_view> known;
    for (const LinearLayer& layer : layers_) known.push_back(layer.path);
    for (const std::string& name : options_.target_modules) {
      const auto is_meant = [&](const LinearLayer& layer) { return is_target({name}, layer.path); };
      if (std::ranges::none_of(layers_, is_meant))
        fail(ErrorCode::bad_option, kAddLoraWhere,
             "expected target_modules to name linear layers of the model, got '", name, "'; the nearest are ",
             nearest_names(name, known));
    }
  }

  void check_float32(const LinearLayer& layer) const {
    const at::Tensor weight = graph_.find_attribute(layer.weight)->tensor;
    if (weight.scalar_type() != at::kFloat)
      fail(kAddLoraWhere, "expected weights in float32, got ", weight.scalar_type(), " in '", layer.weight,
           "'");
  }

  void check_layer(const LinearLayer& layer) const {
    const int64_t smaller = std::min(layer.in, layer.out);
    if (options_.rank > smaller)
      fail(ErrorCode::bad_option, kAddLoraWhere, "expected a rank of at most ", smaller,
           ", the smaller side of '", layer.path, "' (", layer.out, " x ", layer.in, "), got ",
           options_.rank);
    if (layer.other_reader != nullptr)
      fail(kAddLoraWhere, "expected target layers with weights of their own, got '", layer.path,
           "', whose weight '", layer.weight, "' ", graph::label(*layer.other_reader), " reads, too");
    for (const Node* node : layer.nodes) {
      if (node->no_grad)
        fail(kAddLoraWhere, "expected target layers that gradients reach, got '", layer.path,
             "', which the model runs without gradients");
    }
  }

  /// A and B: copies of those that are given, else a drawn A and zeros.
  AdapterPair new_pair(const LinearLayer& layer) const {
    const at::NoGradGuard no_grad;
    const at::TensorOptions like = graph_.find_attribute(layer.weight)->tensor.options().dtype(at::kFloat);
    AdapterPair pair{torch::empty({options_.rank, layer.in}, like),
                     torch::zeros({layer.out, options_.rank}, like)};
    if (given_ == nullptr) {
      torch::nn::init::kaiming_uniform_(pair.a, std::sqrt(5.0));
    } else {
      pair.a.copy_(given_->at(layer.path).a);
      pair.b.copy_(given_->at(layer.path).b);
    }
    pair.a.set_requires_grad(true);
    pair.b.set_requires_grad(true);
    return pair;
  }

  void check_given(const LinearLayer& layer) const {
    const AdapterPair& pair = given_->at(layer.path);
    const std::vector<int64_t> a = {options_.rank, layer.in}, b = {layer.out, options_.rank};
    if (pair.a.sizes() == at::IntArrayRef(a) && pair.b.sizes() == at::IntArrayRef(b)) return;
    fail(ErrorCode::bad_shape, "lora.load_adapter", "expected A ", at::IntArrayRef(a), " and B ",
         at::IntArrayRef(b), " for the model's layer '", layer.path, "', got ", pair.a.sizes(), " and ",
         pair.b.sizes(), ": the adapter is of another base");
  }

  LoraLayer add_adapter(const LinearLayer& layer) {
    if (given_ != nullptr) check_given(layer);
    check_layer(layer);
    const LoraLayer made{.path = layer.path,
                         .weight = layer.weight,
                         .a = layer.path + ".lora_A.weight",
                         .b = layer.path + ".lora_B.weight",
                         .transposed = layer.transposed};
    for (const std::string& name : {made.a, made.b}) {
      if (graph_.find_attribute(name) != nullptr)
        fail(kAddLoraWhere, "expected a model without adapters, got a tensor '", name, "'");
    }
    const AdapterPair pair = new_pair(layer);
    graph_.set_attribute(made.a, {Attribute::Kind::parameter, pair.a});
    graph_.set_attribute(made.b, {Attribute::Kind::parameter, pair.b});
    adapters_.insert({made.a, made.b});
    for (Node* node : layer.nodes) add_sum(node, made);
    report_.changes.push_back(layer.path + " has an adapter of rank " + std::to_string(options_.rank));
    return made;
  }

  /// y becomes y + scaling B A dropout(x).
  void add_sum(Node* node, const LoraLayer& layer) {
    Node* next = node_after(graph_, node);
    const auto call = [&](const char* op, std::vector<Argument> args) {
      Node* made = graph_.call(op, std::move(args), next);
      made->scope = node->scope;
      made->train_only = node->train_only;
      made->eval_only = node->eval_only;
      made->autocast = node->autocast;
      made->output()->meta = node->output()->meta;
      return made;
    };
    const auto with_last_size = [](Node* made, int64_t size) {
      auto& meta = made->output()->meta;
      if (meta && !meta->sizes.empty()) meta->sizes.back() = {0, 1, size};
    };
    Argument x = node->args[0];
    if (options_.dropout > 0) {
      Node* dropped = call("aten::dropout", {x, c10::IValue(options_.dropout), Argument::training_flag()});
      if (x.is_value()) dropped->output()->meta = x.value->meta;
      x = dropped->output();
    }
    Node* low = call("aten::linear", {x, graph_.attribute(layer.a)});
    with_last_size(low, options_.rank);
    Node* high = call("aten::linear", {low->output(), graph_.attribute(layer.b)});
    Node* scaled = call("aten::mul.Scalar", {high->output(), c10::IValue(options_.scaling())});
    Node* sum = call("aten::add.Tensor", {node->output(), scaled->output()});
    graph_.replace_uses(node->output(), sum->output(), sum);
  }

  /// In which format the weight of a linear layer is kept; fp32 where it cannot be in another one.
  LoraBase format_of(const LinearLayer& layer) const {
    const auto skips = [&](const std::string& pattern) { return matches_path(pattern, layer.path); };
    if (layer.other_reader != nullptr)
      return layer.other_reader->is("aten::embedding") ? LoraBase::bf16 : LoraBase::fp32;
    if (is_last(layer) || std::ranges::any_of(options_.skip_modules, skips)) return LoraBase::bf16;
    return options_.base;
  }

  Value* constant(const std::string& name, const at::Tensor& tensor) {
    graph_.set_attribute(name, {Attribute::Kind::constant, tensor});
    return graph_.attribute(name);
  }

  void keep_small(const LinearLayer& layer) {
    const LoraBase format = format_of(layer);
    report_.changes.push_back(layer.path + " keeps its weight in " + enum_name(format));
    if (format == LoraBase::fp32) return;
    const at::NoGradGuard no_grad;
    at::Tensor values = graph_.find_attribute(layer.weight)->tensor.detach();
    if (layer.transposed) values = values.t();
    FrozenWeight frozen = freeze_weight(layer.weight, values, format, options_);
    std::vector<Argument> parts;
    static constexpr std::array kNames = {"", ".absmax", ".scale_absmax", ".offset"};
    for (size_t i = 0; i < frozen.parts.size(); ++i) {
      const std::string part = format == LoraBase::nf4 || i == 0 ? kNames[i] : ".scale";
      parts.emplace_back(constant(layer.weight + '.' + enum_name(format) + part, frozen.parts[i]));
    }
    for (Node* node : layer.nodes)
      graph_.retarget(node, kFrozenLinearOp,
                      {node->args[0], Argument::list(parts), node->arg("bias"),
                       c10::IValue(enum_name(format)), c10::IValue(layer.out), c10::IValue(layer.in)});
    take_away(layer.weight, std::move(frozen), layer.transposed);
  }

  /// The base keeps the weight in this form alone.
  void take_away(const std::string& name, FrozenWeight frozen, bool transposed) {
    const Attribute& own = *base_.graph->find_attribute(name);
    base_.graph->set_attribute(
        name, {own.kind, at::empty(own.tensor.sizes(), own.tensor.options().device(at::kMeta))});
    base_.transposed[name] = transposed;
    base_.frozen.insert_or_assign(name, std::move(frozen));
  }

  /// Tables that embeddings alone read, and those that the output layer reads, too.
  void keep_embeddings_narrow() {
    std::vector<Node*> embeddings;
    for (const auto& node : graph_.nodes()) {
      if (node->is("aten::embedding")) embeddings.push_back(node.get());
    }
    for (Node* node : embeddings) {
      Value* table = node->arg("weight").value;
      const at::Tensor values = graph_.attribute_tensor(table);
      if (!values.defined() || values.dim() != 2) continue;
      const std::string name = table->producer->target();
      if (values.scalar_type() == at::kFloat) keep_table_narrow(name, table, values);
      if (graph_.attribute_tensor(table).scalar_type() != at::kBFloat16) continue;
      Node* wide =
          graph_.call("aten::to.dtype", {node->output(), c10::IValue(at::kFloat)}, node_after(graph_, node));
      wide->scope = node->scope;
      wide->output()->meta = node->output()->meta;
      if (node->output()->meta) node->output()->meta->dtype = at::kBFloat16;
      graph_.replace_uses(node->output(), wide->output(), wide);
    }
  }

  void keep_table_narrow(const std::string& name, const Value* table, const at::Tensor& values) {
    const auto found = base_.frozen.find(name);  // of a tied output layer
    const auto users = graph_.users(table);
    if (!std::ranges::all_of(users, [](const Node* user) { return user->is("aten::embedding"); })) return;
    FrozenWeight frozen =
        found != base_.frozen.end() ? found->second : freeze_weight(name, values, LoraBase::bf16, options_);
    if (frozen.format != LoraBase::bf16) return;
    graph_.set_attribute(name, {Attribute::Kind::constant, frozen.parts[0]});
    report_.changes.push_back(name + " is kept in bf16");
    if (found == base_.frozen.end()) take_away(name, std::move(frozen), /*transposed=*/false);
  }

  void freeze_attributes() {
    graph_.remove_dead(/*attributes=*/true);
    std::vector<std::pair<std::string, Attribute>> attributes = graph_.attributes();
    for (const auto& [name, attribute] : attributes) {
      if (!adapters_.contains(name))
        graph_.set_attribute(name, {Attribute::Kind::constant, attribute.tensor.detach()});
    }
  }

  Graph& graph_;
  const LoraOptions& options_;
  const GivenAdapters* given_;
  LoraBaseModel& base_;
  graph::PassReport& report_;
  std::vector<LinearLayer> layers_;
  std::set<std::string> adapters_;  ///< names of A and B
};

std::shared_ptr<Graph> with_linear_layers(const graph::GraphModule& captured) {
  std::shared_ptr<Graph> graph = captured.graph().clone();
  graph::canonicalize(*graph);
  graph::products_as_linear(*graph);
  return graph;
}

}  // namespace

std::shared_ptr<LoraModel> add_adapters(const std::shared_ptr<graph::GraphModule>& captured,
                                        const LoraOptions& options, const GivenAdapters* given,
                                        graph::PassReport* report) {
  options.validate();
  if (!captured) fail(kAddLoraWhere, "expected a captured model, got null");
  expect_plain_model(captured->graph());
  LoraBaseModel base{.graph = captured->graph().clone()};
  const std::shared_ptr<Graph> graph = with_linear_layers(*captured);
  freeze_statistics(*graph);
  graph::PassReport result{"add_lora", {}, {}};
  std::vector<LoraLayer> layers = Adding(*graph, options, given, base, result).run();
  auto model =
      std::make_shared<LoraModel>(graph, options, std::move(layers), std::move(base), captured->notes());
  model->train(captured->is_training());
  if (report != nullptr) *report = std::move(result);
  return model;
}

std::vector<std::string> linear_paths(const graph::GraphModule& captured) {
  std::vector<std::string> paths;
  for (const LinearLayer& layer : linear_layers(*with_linear_layers(captured))) paths.push_back(layer.path);
  return paths;
}

std::shared_ptr<LoraModel> add_lora(const std::shared_ptr<graph::GraphModule>& captured,
                                    const LoraOptions& options, graph::PassReport* report) {
  return add_adapters(captured, options, nullptr, report);
}

}  // namespace ulp::lora
