#include "ulp/graph/graph_module.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/graph/capture/program.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/executor.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::graph {

namespace {

/// Makes the nested modules that dotted names need.
class Registry {
 public:
  explicit Registry(torch::nn::Module& root) : root_(root) {}

  /// The module that owns `name`, whose last component is left in it.
  torch::nn::Module& owner(std::string& name) {
    size_t dot = name.rfind('.');
    if (dot == std::string::npos) return root_;
    std::string path = name.substr(0, dot);
    name = name.substr(dot + 1);
    return find(path);
  }

  void add(const std::string& path, const std::shared_ptr<torch::nn::Module>& module) {
    std::string name = path;
    owner(name).register_module(name, module);
    made_[path] = module.get();
  }

 private:
  torch::nn::Module& find(const std::string& path) {
    auto found = made_.find(path);
    if (found != made_.end()) return *found->second;
    auto fresh = std::make_shared<torch::nn::Module>("Module");
    add(path, fresh);
    return *fresh;
  }

  torch::nn::Module& root_;
  std::map<std::string, torch::nn::Module*> made_;
};

void flatten(const c10::IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) flatten(item, out);
  } else if (value.isList()) {
    for (const c10::IValue& item : c10::IValue(value).toListRef()) flatten(item, out);
  }
}

/// Tensors of the graph that are no floating-point numbers (counters, masks), each with its data: LibTorch's
/// to() makes floats of them, which PyTorch's does not.
std::vector<std::pair<at::Tensor, at::Tensor>> integer_tensors(const Graph& graph) {
  std::vector<std::pair<at::Tensor, at::Tensor>> found;
  for (const auto& [name, attribute] : graph.attributes()) {
    const at::Tensor& tensor = attribute.tensor;
    if (attribute.kind != Attribute::Kind::constant && !tensor.is_floating_point() && !tensor.is_complex())
      found.emplace_back(tensor, tensor.variable_data());
  }
  return found;
}

/// The type of 16 bits that the parameters have, if they all have one.
std::optional<torch::Dtype> narrow_type(const Graph& graph) {
  std::optional<torch::Dtype> found;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.kind != Attribute::Kind::parameter || !attribute.tensor.is_floating_point()) continue;
    const torch::Dtype type = attribute.tensor.scalar_type();
    if (c10::elementSize(type) != 2 || (found && *found != type)) return std::nullopt;
    found = type;
  }
  return found;
}

/// 'a', 'b'
std::string listing(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

GraphModule::GraphModule(std::shared_ptr<Graph> graph, std::vector<std::string> notes)
    : torch::nn::Module("GraphModule"), graph_(std::move(graph)), notes_(std::move(notes)) {
  recompile();
}

GraphModule::~GraphModule() = default;

void GraphModule::recompile() {
  graph_->verify();
  auto program = std::make_shared<const Program>(*graph_);
  if (executor_) executor_->prepare(graph_, program);
  register_tensors();
  program_ = std::move(program);
}

void GraphModule::register_tensors() {
  bool training = is_training();
  // The base class cannot forget a buffer; assigning a fresh one to it forgets everything.
  static_cast<torch::nn::Module&>(*this) = torch::nn::Module("GraphModule");
  Registry registry(*this);
  for (const auto& [key, attribute] : graph_->attributes()) {
    if (attribute.kind == Attribute::Kind::constant) continue;
    std::string name = key;
    torch::nn::Module& owner = registry.owner(name);
    if (attribute.kind == Attribute::Kind::parameter) {
      owner.register_parameter(name, attribute.tensor, attribute.tensor.requires_grad());
    } else {
      owner.register_buffer(name, attribute.tensor);
    }
  }
  for (const auto& [path, module] : graph_->modules()) registry.add(path, module);
  train(training);
}

void GraphModule::check_inputs(const std::vector<at::Tensor>& inputs) const {
  program_->check_inputs(inputs);
}

c10::IValue GraphModule::run(const std::vector<at::Tensor>& inputs) {
  return executor_ ? executor_->run(inputs, is_training()) : program_->run(inputs, is_training());
}

void GraphModule::run_with(std::shared_ptr<Executor> executor) {
  if (executor) executor->prepare(graph_, program_);
  executor_ = std::move(executor);
}

at::Tensor GraphModule::forward(const std::vector<at::Tensor>& inputs) {
  c10::IValue result = run(inputs);
  if (!result.isTensor()) {
    fail("graph.forward", "expected a model whose result is one tensor, got ", result.tagKind(),
         "; use run() or forward_all()");
  }
  return std::move(result).toTensor();
}

std::vector<at::Tensor> GraphModule::arrange(const c10::IValue& inputs) const {
  std::vector<at::Tensor> given = packed_tensors(inputs), result;
  if (!has_names(inputs)) return given;
  const std::vector<std::string> names = input_names(inputs);
  std::vector<std::string> wanted;
  for (const Value* input : graph_->inputs()) wanted.push_back(input->producer->target());
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) result.push_back(given[found - names.begin()]);
  }
  if (result.size() != wanted.size() || names.size() != wanted.size())
    fail("graph.call", "expected the inputs ", listing(wanted), ", got ", listing(names));
  return result;
}

std::vector<at::Tensor> GraphModule::forward_all(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> result;
  flatten(run(inputs), result);
  return result;
}

void GraphModule::widen_types(torch::Dtype to) {
  const std::optional<torch::Dtype> narrow = narrow_type(*graph_);
  if (!narrow || c10::elementSize(to) <= c10::elementSize(*narrow)) return;
  const torch::Dtype from = *narrow;
  const auto widen = [&](c10::IValue& literal, const c10::Argument& wanted) {
    if (is_dtype(wanted) && literal.isInt() && literal.toInt() == static_cast<int64_t>(from))
      literal = static_cast<int64_t>(to);
  };
  for (const auto& node : graph_->nodes()) {
    for (size_t i = 0; node->kind() == Node::Kind::call && i < node->args.size(); ++i)
      widen(node->args[i].literal, node->schema().arguments()[i]);
    for (const auto& output : node->outputs()) {
      if (output->meta && output->meta->dtype == from) output->meta->dtype = to;
    }
  }
}

void GraphModule::move_constants(std::optional<torch::Device> device, std::optional<torch::Dtype> dtype) {
  for (const auto& [name, attribute] : graph_->attributes()) {
    if (attribute.kind != Attribute::Kind::constant) continue;
    at::Tensor tensor = attribute.tensor;
    at::TensorOptions options = tensor.options();
    if (device) options = options.device(*device);
    if (dtype && tensor.is_floating_point()) options = options.dtype(*dtype);
    tensor.set_data(tensor.to(options));
  }
  for (const auto& node : graph_->nodes()) {
    for (Argument& arg : node->args) {
      if (device && arg.kind == Argument::Kind::literal && arg.literal.isDevice()) arg.literal = *device;
    }
  }
  recompile();
}

void GraphModule::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  widen_types(dtype);
  const auto integers = integer_tensors(*graph_);
  torch::nn::Module::to(device, dtype, non_blocking);
  for (const auto& [tensor, before] : integers) tensor.set_data(before.to(device, non_blocking));
  move_constants(device, dtype);
}

void GraphModule::to(torch::Dtype dtype, bool non_blocking) {
  widen_types(dtype);
  const auto integers = integer_tensors(*graph_);
  torch::nn::Module::to(dtype, non_blocking);
  for (const auto& [tensor, before] : integers) tensor.set_data(before);
  move_constants(std::nullopt, dtype);
}

void GraphModule::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  move_constants(device, std::nullopt);
}

}  // namespace ulp::graph
