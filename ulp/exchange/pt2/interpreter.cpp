#include "ulp/exchange/pt2/interpreter.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/listed_tensors.h"
#include "ulp/exchange/pt2/memory_limit.h"
#include "ulp/exchange/pt2/numbers.h"
#include "ulp/exchange/pt2/straight_numbers.h"
#include "ulp/exchange/pt2/where.h"
#include "ulp/graph/capture/data_sizes.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/graph/trusted_arguments.h"
#include "ulp/io/graph_operators.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;

constexpr const char* kSetGradients = "torch.ops.higher_order.wrap_with_set_grad_enabled";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Runs `work`, whose failures become those of the node.
template <typename Work>
void guarded(const ProgramNode& node, const Work& work) {
  const auto refuse = [&](std::string_view why, ErrorInfo info = {}) {
    info.places = {{.op = node.target, .node = node.name}};
    fail_file(std::move(info), kImportPt2Where, node.label(), ": ", why);
  };
  try {
    work();
  } catch (const Error& error) {
    if (error.where() == kImportPt2Where && !error.places().empty()) throw;  // of a graph inside
    refuse(error.reason(), error.info());
  } catch (const c10::Error& error) {
    refuse(first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    refuse(first_line(error.what()));
  }
}

/// Name and overload of "torch.ops.aten.conv2d.default".
struct Target {
  std::string name, overload;
  std::string text() const { return overload.empty() ? name : name + "." + overload; }
};
Target target_of(const ProgramNode& node) {
  constexpr std::string_view kStart = "torch.ops.aten.";
  const std::string_view all = node.target;
  const size_t dot = all.rfind('.');
  if (!all.starts_with(kStart) || dot < kStart.size())
    fail_file({.code = ErrorCode::unsupported_op}, kImportPt2Where,
              "expected operators of aten, and functions of numbers");
  const std::string_view overload = all.substr(dot + 1);
  return {"aten::" + std::string(all.substr(kStart.size(), dot - kStart.size())),
          overload == "default" ? "" : std::string(overload)};
}

const ProgramArgument* find(const ProgramNode& node, const std::string& name) {
  for (const auto& [given, argument] : node.inputs) {
    if (given == name) return &argument;
  }
  return nullptr;
}

std::optional<c10::OperatorHandle> operator_of(const Target& target) {
  return c10::Dispatcher::singleton().findSchema({target.name, target.overload});
}

bool is_literal_number(const ProgramArgument& argument) {
  return argument.kind == "as_int" || argument.kind == "as_float" || argument.kind == "as_bool" ||
         argument.kind == "as_sym_int" || argument.kind == "as_sym_float";
}

/// Memory that nobody has written holds zeros: as the program writes it before it reads it, any numbers will do.
Target with_numbers(Target target, const ProgramNode& node) {
  const char* zeros = graph::zeros_in_place_of(target.text());
  const bool has_format = target.name == "aten::empty" && find(node, "memory_format") != nullptr;
  if (zeros == nullptr || has_format) return target;
  return {zeros, ""};
}

/// The operator. Python writes x + 1 as add.Tensor; C++ calls add.Scalar, with the same bits.
c10::OperatorHandle find_operator(const ProgramNode& node) {
  Target target = with_numbers(target_of(node), node);
  io::check_operator(target.text());
  std::optional<c10::OperatorHandle> found = operator_of(target);
  if (!found)
    fail_file({.code = ErrorCode::unsupported_op}, kImportPt2Where,
              "expected an operator that this LibTorch has");
  const ProgramArgument* other = find(node, "other");
  const size_t place = target.overload.find("Tensor");
  if (other == nullptr || !is_literal_number(*other) || place == std::string::npos) return *found;
  target.overload.replace(place, std::string("Tensor").size(), "Scalar");
  const std::optional<c10::OperatorHandle> of_numbers = operator_of(target);
  return of_numbers ? *of_numbers : *found;
}

/// The size of a dimension and the like, beside the capture: nothing where the node is none of them.
IValue measured(const ProgramNode& node, const Values& values) {
  const auto is = [&](const char* target) { return node.target == target; };
  const bool dimension = is("torch.ops.aten.sym_size.int") || is("torch.ops.aten.sym_stride.int");
  if (!dimension && !is("torch.ops.aten.sym_numel.default")) return {};
  const ProgramArgument* self = find(node, "self");
  const IValue x = self != nullptr && self->kind == "as_tensor"
                       ? value_of(values, self->value.at("name").get<std::string>())
                       : IValue();
  if (!x.isTensor()) fail_file(kImportPt2Where, "expected a tensor");
  if (!dimension) return x.toTensor().numel();
  const ProgramArgument* dim = find(node, "dim");
  const IValue number = dim == nullptr ? IValue() : number_of(*dim, values);
  const int64_t rank = x.toTensor().dim();
  if (!number.isInt() || number.toInt() < -rank || number.toInt() >= rank)
    fail_file(kImportPt2Where, "expected a dimension of ", rank);
  return is("torch.ops.aten.sym_size.int") ? x.toTensor().size(number.toInt())
                                           : x.toTensor().stride(number.toInt());
}

/// Names of the tensors that a node gets, or gives.
void add_tensor_names(const ProgramArgument& argument, std::vector<std::string>& names) {
  const auto add = [&](const Json& named) { names.push_back(named.at("name").get<std::string>()); };
  if (argument.kind == "as_tensor") return add(argument.value);
  if (argument.kind == "as_tensors") {
    for (const Json& one : argument.value) add(one);
  } else if (argument.kind == "as_optional_tensors") {
    for (const Json& one : argument.value) {
      if (const auto tensor = one.find("as_tensor"); tensor != one.end()) add(*tensor);
    }
  }
}

std::vector<std::string> given_tensors(const ProgramNode& node) {
  std::vector<std::string> names;
  for (const auto& [name, argument] : node.inputs) add_tensor_names(argument, names);
  return names;
}

/// Operators that read sizes of their tensors alone.
bool reads_sizes_alone(const std::string& target) {
  const std::string_view op = std::string_view(target).substr(0, target.rfind('.'));
  return op.ends_with("_like") || op.starts_with("torch.ops.aten.new_");
}

bool counts_batches(const std::string& name) {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

}  // namespace

Interpreter::Interpreter(const Program& program,
                         const std::vector<std::pair<std::string, graph::Attribute>>& tensors, bool training,
                         int64_t most_bytes)
    : program_(program), tensors_(tensors), training_(training), most_bytes_(most_bytes) {}

std::vector<at::Tensor> Interpreter::forward(const std::vector<at::Tensor>& inputs) {
  const MemoryLimit limit(most_bytes_);
  Values values;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ProgramTensor& tensor = program_.tensors[i];
    values[tensor.value] = tensors_[i].second.tensor;
    const auto updates = [&](const ProgramUpdate& one) { return one.name == tensor.name; };
    if (tensor.parameter || std::ranges::any_of(program_.updates, updates)) data_.insert(tensor.value);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[program_.inputs.at(i).name] = inputs[i];
    data_.insert(program_.inputs[i].name);
  }
  run(program_.graph, values, 0);
  if (calls_ == nullptr) update(values);
  std::vector<at::Tensor> results;
  for (const std::string& name : program_.results) {
    const IValue& value = value_of(values, name);
    if (!value.isTensor()) fail_file(kImportPt2Where, "expected the result '", name, "' to be a tensor");
    results.push_back(value.toTensor());
  }
  return results;
}

void Interpreter::run(const ProgramGraph& graph, Values& values, int depth) {
  std::set<std::string> outer =
      std::exchange(needed_, calls_ == nullptr ? std::set<std::string>() : needed_numbers(graph));
  for (const ProgramNode& node : graph.nodes) {
    if (++nodes_ > kMostNodes) fail_file(kImportPt2Where, "expected at most ", kMostNodes, " nodes");
    guarded(node, [&] { evaluate(node, values, depth); });
  }
  needed_ = std::move(outer);
}

void Interpreter::evaluate(const ProgramNode& node, Values& values, int depth) {
  if (is_check(node.target)) return;
  if (node.target == kSetGradients) return call_without_gradients(node, values, depth);
  if (is_number_function(node.target)) {
    std::vector<IValue> numbers;
    for (const auto& [name, argument] : node.inputs) numbers.push_back(number_of(argument, values));
    const IValue result = number_function(node.target, numbers);
    if (calls_ != nullptr && makes_needed(node))
      calls_->push_back({node.label(), node.target, numbers, result});
    return keep(node, {result}, values);
  }
  if (const IValue size = measured(node, values); !size.isNone()) return keep(node, {size}, values);
  call(node, values);
}

bool Interpreter::makes_needed(const ProgramNode& node) const {
  return std::ranges::any_of(node.outputs, [&](const ProgramArgument& output) {
    const auto name = output.value.find("as_name");
    return output.value.is_object() && name != output.value.end() &&
           needed_.contains(name->get<std::string>());
  });
}

/// A part of a model under torch.no_grad(), or torch.enable_grad(): a graph of its own, with the values that
/// it reads.
void Interpreter::call_without_gradients(const ProgramNode& node, Values& values, int depth) {
  constexpr int kDeepest = 8;
  if (depth >= kDeepest) fail_file(kImportPt2Where, "expected graphs at most ", kDeepest, " deep");
  if (node.inputs.size() < 2 || node.inputs[1].second.kind != "as_graph")
    fail_file(kImportPt2Where, "expected a mode and a graph");
  const IValue enabled = number_of(node.inputs[0].second, values);
  if (!enabled.isBool()) fail_file(kImportPt2Where, "expected true or false");
  const ProgramGraph graph = read_graph(node.inputs[1].second.value.at("graph"));
  if (graph.inputs.size() + 2 != node.inputs.size())
    fail_file(kImportPt2Where, "expected an input for each value of the graph");
  const auto name_of = [](const ProgramArgument& argument) {
    const bool tensor = argument.kind == "as_tensor";
    return argument.value.at(tensor ? "name" : "as_name").get<std::string>();
  };
  Values inner;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ProgramArgument& given = node.inputs[i + 2].second;
    inner[name_of(graph.inputs[i])] =
        given.kind == "as_tensor" ? value_of(values, name_of(given)) : number_of(given, values);
    if (given.kind == "as_tensor" && data_.contains(name_of(given))) data_.insert(name_of(graph.inputs[i]));
  }
  {
    const at::AutoGradMode mode(enabled.toBool() && at::GradMode::is_enabled());
    run(graph, inner, depth + 1);
  }
  std::vector<IValue> results;
  for (const ProgramArgument& output : graph.outputs) results.push_back(value_of(inner, name_of(output)));
  keep(node, results, values);
  follow(node, /*is_random=*/true);  // as it may be inside
}

IValue Interpreter::argument(const ProgramNode& node, const c10::Argument& wanted,
                             const Values& values) const {
  const ProgramArgument* given = find(node, wanted.name());
  if (given == nullptr) {
    if (!wanted.default_value()) fail_file(kImportPt2Where, "expected the argument '", wanted.name(), "'");
    return *wanted.default_value();
  }
  const IValue value = argument_of(*given, wanted, values);
  const bool mode = (wanted.name() == "training" || wanted.name() == "train") && value.isBool();
  // Of a program in train mode, what did not train stays so: it was frozen.
  if (mode && (value.toBool() || !program_.trains)) return training_;
  const bool drops = wanted.name() == "dropout_p" && value.isDouble() && value.toDouble() > 0;
  return drops && !training_ ? IValue(0.0) : value;
}

/// Refuses what says sizes, and numbers, by the numbers of tensors that are others in the next run.
void Interpreter::check_sizes(const c10::FunctionSchema& schema, const std::vector<IValue>& arguments,
                              const ProgramNode& node, const Values& values) const {
  const std::string& op = schema.name();
  const bool number = op == "aten::item" || op == "aten::_local_scalar_dense" || op == "aten::is_nonzero";
  const std::vector<at::Tensor> sizing = number ? std::vector<at::Tensor>{arguments.at(0).toTensor()}
                                                : graph::tensors_that_say_sizes(schema, arguments);
  for (const std::string& name : given_tensors(node)) {
    const IValue& given = value_of(values, name);
    const auto is_given = [&](const at::Tensor& one) { return one.is_same(given.toTensor()); };
    if (!data_.contains(name) || std::ranges::none_of(sizing, is_given)) continue;
    if (number)
      fail_file(kImportPt2Where, "expected sizes and arguments that follow the sizes of the inputs, got a ",
                "number of the tensor '", name, "', which follows the data");
    fail_file(kImportPt2Where, "expected results whose sizes follow the sizes of the inputs, got sizes that ",
              "follow the data, the numbers of '", name, "'; ", graph::advice_for_sizes(schema),
              ", and export the program again");
  }
}

/// What is made of data is data.
void Interpreter::follow(const ProgramNode& node, bool is_random) {
  const std::vector<std::string> given = given_tensors(node);
  const auto follows = [&](const std::string& name) { return data_.contains(name); };
  if (!is_random && (reads_sizes_alone(node.target) || std::ranges::none_of(given, follows))) return;
  std::vector<std::string> made;
  for (const ProgramArgument& output : node.outputs) add_tensor_names(output, made);
  data_.insert(made.begin(), made.end());
}

void Interpreter::show_written(const c10::FunctionSchema& schema,
                               const std::vector<IValue>& arguments) const {
  if (!before_write_) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    if (arguments[i].isTensor()) before_write_(arguments[i].toTensor());
    if (!arguments[i].isTensorList()) continue;
    for (const at::Tensor& one : arguments[i].toTensorVector()) before_write_(one);
  }
}

void Interpreter::call(const ProgramNode& node, Values& values) {
  const c10::OperatorHandle handle = find_operator(node);
  const c10::FunctionSchema& schema = handle.schema();
  for (const auto& [name, argument] : node.inputs) {
    const auto named = [&name = name](const c10::Argument& one) { return one.name() == name; };
    if (std::ranges::none_of(schema.arguments(), named))
      fail_file(kImportPt2Where, "expected arguments of the operator, got '", name.substr(0, 100), "'");
  }
  torch::jit::Stack stack;
  for (const c10::Argument& wanted : schema.arguments()) stack.push_back(argument(node, wanted, values));
  if (!training_ && schema.is_mutable() && !node.inputs.empty() &&
      node.inputs[0].second.kind == "as_tensor") {
    const auto changed = node.inputs[0].second.value.at("name").get<std::string>();
    for (const ProgramTensor& one : program_.tensors) {
      if (one.value == changed && counts_batches(one.name)) return keep(node, {stack[0]}, values);
    }
  }
  check_sizes(schema, stack, node, values);
  if (const std::string expected = graph::distrusted_argument(schema, stack); !expected.empty())
    fail_file(kImportPt2Where, "expected ", expected);
  const int64_t listed = std::max<int64_t>(listed_tensors(schema, stack), 0);
  if (listed > static_cast<int64_t>(kMostNodes) - listed_)
    fail_file(kImportPt2Where, "expected at most ", kMostNodes, " tensors in the lists of one run, got ",
              listed, " more");
  listed_ += listed;
  const bool random = graph::is_random(schema);
  show_written(schema, stack);
  handle.callBoxed(stack);
  keep(node, stack, values);
  follow(node, random);
}

void Interpreter::set(const std::string& name, const IValue& value, Values& values) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.dim() > kMostDims)
      fail_file(kImportPt2Where, "expected values of at most ", kMostDims, " dimensions, got ", tensor.dim());
    bytes_ += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
    if (!(bytes_ <= static_cast<double>(most_bytes_)))
      fail_file(kImportPt2Where, "expected values of ", most_bytes_,
                " bytes in one run at most, got more with one of ", tensor.sizes());
  }
  values[name] = value;
}

void Interpreter::keep(const ProgramNode& node, const std::vector<IValue>& results, Values& values) {
  const auto name_of = [](const Json& named) { return named.at("name").get<std::string>(); };
  if (node.outputs.size() > results.size())
    fail_file(kImportPt2Where, "expected ", results.size(), " results, got names of ", node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ProgramArgument& output = node.outputs[i];
    if (output.kind == "as_tensor") {
      if (!results[i].isTensor()) fail_file(kImportPt2Where, "expected result ", i, " to be a tensor");
      set(name_of(output.value), results[i], values);
    } else if (output.kind == "as_tensors") {
      if (!results[i].isTensorList() || results[i].toTensorVector().size() != output.value.size())
        fail_file(kImportPt2Where, "expected result ", i, " to be a list of ", output.value.size(),
                  " tensors");
      const std::vector<at::Tensor> tensors = results[i].toTensorVector();
      for (size_t k = 0; k < tensors.size(); ++k) set(name_of(output.value[k]), tensors[k], values);
    } else if (output.kind == "as_sym_int" || output.kind == "as_sym_float" || output.kind == "as_sym_bool") {
      if (output.value.contains("as_name"))
        set(output.value.at("as_name").get<std::string>(), results[i], values);
    } else if (output.kind != "as_none") {
      fail_file(kImportPt2Where, "expected results that are tensors and numbers, got one that is ",
                output.kind.substr(0, 32));
    }
  }
}

void Interpreter::update(const Values& values) {
  for (const auto& [value, name] : program_.updates) {
    const auto named = [&name = name](const auto& one) { return one.first == name; };
    const auto found = std::ranges::find_if(tensors_, named);
    if (found == tensors_.end()) fail_file(kImportPt2Where, "expected a buffer '", name.substr(0, 100), "'");
    if (counts_batches(name) && !training_) continue;
    const IValue& given = value_of(values, value);
    at::Tensor buffer = found->second.tensor;
    if (!given.isTensor() || given.toTensor().sizes() != buffer.sizes())
      fail_file(kImportPt2Where, "expected a tensor of the sizes of '", name, "' for it");
    const at::NoGradGuard no_grad;
    buffer.copy_(given.toTensor());
  }
}

}  // namespace ulp::exchange::pt2
