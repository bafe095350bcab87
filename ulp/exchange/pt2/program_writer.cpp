#include "ulp/exchange/pt2/program_writer.h"

#include <ATen/core/function_schema.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/exchange/calls.h"
#include "ulp/exchange/pt2/arguments_out.h"
#include "ulp/exchange/pt2/result_tree.h"
#include "ulp/exchange/pt2/tensor_names.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

using graph::Argument;
using graph::Attribute;
using graph::Graph;
using graph::Node;
using graph::SizeExpr;
using graph::TensorMeta;
using graph::Value;

/// The version of the schema that PyTorch 2.13 writes, and of aten's operators.
constexpr int64_t kSchemaMajor = 8, kSchemaMinor = 20, kAtenVersion = 10;

/// Words that cannot name a variable in the Python code that torch.fx generates, or that mean something else there.
bool is_reserved(const std::string& name) {
  static const std::set<std::string> kWords = {
      "False", "None",  "True",     "and",   "as",       "assert", "async", "await",  "break",
      "class", "def",   "continue", "del",   "device",   "elif",   "else",  "except", "finally",
      "for",   "from",  "global",   "if",    "import",   "in",     "inf",   "is",     "lambda",
      "math",  "nan",   "nonlocal", "not",   "operator", "or",     "pass",  "raise",  "return",
      "self",  "torch", "try",      "while", "with",     "yield"};
  return kWords.contains(name);
}

/// A name of Python: other characters become "_".
std::string identifier(std::string_view wish) {
  std::string name;
  for (const char c : wish) {
    const auto code = static_cast<unsigned char>(c);
    name += code < 0x80 && std::isalnum(code) ? c : '_';
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "_");
  return is_reserved(name) ? name + "_" : name;
}

/// "torch.ops.aten.add.Tensor".
std::string target_text(const Node& node) {
  const std::string name = node.schema().name(), overload = node.schema().overload_name();
  const size_t colons = name.find("::");
  if (name.substr(0, colons) != "aten") refuse(node, "it is no operator of PyTorch's own");
  return "torch.ops.aten." + name.substr(colons + 2) + "." + (overload.empty() ? "default" : overload);
}

/// Whether a literal argument is the schema's default.
bool is_default(const c10::Argument& wanted, const Argument& given) {
  if (given.kind != Argument::Kind::literal || !wanted.default_value()) return false;
  const c10::IValue& usual = *wanted.default_value();
  if (given.literal.isNone() || usual.isNone()) return given.literal.isNone() && usual.isNone();
  return given.literal.tagKind() == usual.tagKind() && !usual.isTensor() && given.literal == usual;
}

std::vector<size_t> contiguous_order(size_t dims) {
  std::vector<size_t> order(dims);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

}  // namespace

ProgramWriter::ProgramWriter(const Graph& graph) : graph_(graph), symbols_(graph) {}

std::string ProgramWriter::unique_name(std::string_view wish) {
  const std::string plain = identifier(wish);
  std::string name = plain;
  for (int i = 1; !taken_.insert(name).second; ++i) name = plain + "_" + std::to_string(i);
  return name;
}

Json ProgramWriter::meta_of(const TensorMeta& meta, bool channels_last) const {
  Json sizes = Json::array();
  for (const SizeExpr& size : meta.sizes) sizes.push_back(symbols_.number(size));
  const std::vector<size_t> order =
      channels_last ? std::vector<size_t>{0, 2, 3, 1} : contiguous_order(meta.sizes.size());
  return tensor_meta(type_number(meta.dtype), std::move(sizes), symbols_.strides(meta.sizes, order));
}

void ProgramWriter::add_placeholder(const std::string& name, Json meta, Json spec) {
  inputs_.push_back({{"as_tensor", {{"name", name}}}});
  tensors_[name] = std::move(meta);
  input_specs_.push_back(std::move(spec));
}

namespace {

/// Conjugates and negatives that are computed when they are read are stored as what they are.
Attribute as_stored(Attribute attribute) {
  at::Tensor& tensor = attribute.tensor;
  if (tensor.defined() && (tensor.is_conj() || tensor.is_neg())) {
    const bool trained = tensor.requires_grad();
    tensor = tensor.detach().resolve_conj().resolve_neg().set_requires_grad(trained);
  }
  return attribute;
}

}  // namespace

/// Parameters come first, then buffers, then constants, as PyTorch has them.
void ProgramWriter::add_tensors(TensorFolder& weights, TensorFolder& constants) {
  struct Form {
    Attribute::Kind kind;
    const char *start, *spec, *target;
  };
  const Form forms[] = {{Attribute::Kind::parameter, "p_", "parameter", "parameter_name"},
                        {Attribute::Kind::buffer, "b_", "buffer", "buffer_name"},
                        {Attribute::Kind::constant, "c_", "tensor_constant", "tensor_constant_name"}};
  const auto folder_of = [&](const Attribute& attribute) -> TensorFolder& {
    return attribute.kind == Attribute::Kind::constant ? constants : weights;
  };
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<std::string> given;
  for (const auto& [name, attribute] : graph_.attributes()) {
    attributes.emplace_back(name, as_stored(attribute));
    given.push_back(name);
  }
  const std::map<std::string, std::string> written = attribute_names(given);
  for (const auto& [name, attribute] : attributes) folder_of(attribute).add(written.at(name), attribute);
  for (const auto& [kind, start, spec, target] : forms) {
    for (const auto& [name, attribute] : attributes) {
      if (attribute.kind != kind) continue;
      const std::string value = unique_name(start + name);
      attribute_names_[name] = value;
      Json described = {{"arg", {{"name", value}}}, {target, written.at(name)}};
      if (kind == Attribute::Kind::buffer) described["persistent"] = true;
      add_placeholder(value, folder_of(attribute).meta(attribute.tensor), {{spec, described}});
    }
  }
}

void ProgramWriter::add_inputs() {
  for (const Value* input : graph_.inputs()) {
    if (!input->meta) fail(kExportPt2Where, "expected input '", input->name, "' to have known sizes");
    if (type_number(input->meta->dtype) == 0)
      fail(kExportPt2Where, "expected input '", input->name, "' to be of a type that ulp writes, got ",
           c10::toString(input->meta->dtype));
    const std::string name = unique_name(input->name);
    names_[input] = name;
    input_names_.push_back(name);
    add_placeholder(name, meta_of(*input->meta, /*channels_last=*/false),
                    {{"user_input", {{"arg", {{"as_tensor", {{"name", name}}}}}}}});
  }
}

std::vector<SampleInput> ProgramWriter::samples() const {
  std::vector<SampleInput> samples;
  for (const Value* input : graph_.inputs()) {
    SampleInput sample{.type = input->meta->dtype, .sizes = {}};
    for (const SizeExpr& size : input->meta->sizes) sample.sizes.push_back(symbols_.sample(size));
    samples.push_back(std::move(sample));
  }
  return samples;
}

/// Refuses sizes that are no expressions of the inputs' sizes.
void ProgramWriter::check_sizes(const Node& node, const Value& value) const {
  if (!value.meta) refuse(node, "the sizes of '", value.name, "' are not known");
  if (type_number(value.meta->dtype) == 0)
    refuse(node, "'", value.name, "' is of type ", c10::toString(value.meta->dtype),
           ", which ulp does not write");
  for (const SizeExpr& size : value.meta->sizes) {
    for (const Polynomial::Term& term : size.rest.terms) {
      for (size_t i = 1; i < term.powers.size(); ++i) {
        if (term.powers[i] > 0 && graph_.free.at(i - 1).places.empty())
          refuse(node, "a size of '", value.name, "' follows those of the inputs by no polynomial");
      }
    }
  }
}

std::string ProgramWriter::add_value(const Node& node, const Value& value) {
  check_sizes(node, value);
  const std::string& name = names_.at(&value);
  tensors_[name] = meta_of(*value.meta, value.meta->channels_last && value.meta->sizes.size() == 4);
  return name;
}

ProgramWriter::Number ProgramWriter::add_number(const std::string& target, const std::string& wish,
                                                Json inputs, const std::string& text, int64_t sample) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  const Number number{unique_name(wish), text, sample};
  nodes_.push_back({{"target", target},
                    {"inputs", std::move(inputs)},
                    {"outputs", Json::array({{{"as_sym_int", {{"as_name", number.name}}}}})},
                    {"metadata", Json::object()},
                    {"is_hop_single_tensor_return", nullptr},
                    {"name", number.name}});
  sizes_[number.name] = symbols_.expression(text, sample);
  return numbers_[text] = number;
}

/// The batch, or a free dimension, as an input has it; nothing where none has it.
std::optional<ProgramWriter::Number> ProgramWriter::size(size_t which) {
  size_t input = 0;
  int64_t dim = -1;
  if (which == 0) {
    while (input < graph_.batch_dims.size() && graph_.batch_dims[input] < 0) ++input;
    if (input < graph_.batch_dims.size()) dim = graph_.batch_dims[input];
  } else if (const graph::DynamicDimension& free = graph_.free.at(which - 1); !free.places.empty()) {
    input = free.places[0].input;
    dim = free.places[0].dim;
  }
  if (dim < 0) return std::nullopt;
  const SizeExpr& expression = graph_.inputs().at(input)->meta->sizes.at(static_cast<size_t>(dim));
  Json inputs = Json::array(
      {{{"name", "self"}, {"arg", {{"as_tensor", {{"name", input_names_.at(input)}}}}}, {"kind", 1}},
       {{"name", "dim"}, {"arg", {{"as_int", dim}}}, {"kind", 1}}});
  return add_number("torch.ops.aten.sym_size.int", "sym_size", std::move(inputs), symbols_.text(expression),
                    symbols_.sample(expression));
}

/// Symbols whose multiples alone are sizes of inputs: the reader learns their samples from nodes of their
/// own.
void ProgramWriter::add_symbols() {
  for (size_t i = 0; i < graph_.free.size(); ++i) {
    const int64_t multiple = graph_.free[i].multiple;
    if (multiple == 1 || graph_.free[i].places.empty()) continue;
    SizeExpr symbol;
    symbol.rest.terms = {{1, multiple, std::vector<int32_t>(i + 2, 0)}};
    symbol.rest.terms[0].powers.back() = 1;
    Json inputs = Json::array(
        {{{"name", "a"}, {"arg", {{"as_sym_int", {{"as_name", size(i + 1)->name}}}}}, {"kind", 1}},
         {{"name", "b"}, {"arg", {{"as_int", multiple}}}, {"kind", 1}}});
    add_number("_operator.floordiv", "floordiv", std::move(inputs), symbols_.text(symbol),
               symbols_.sample(symbol));
  }
}

/// b without a name is a constant.
ProgramWriter::Number ProgramWriter::computed(const char* function, const Number& a, const Number& b) {
  const std::string_view name = function;
  const auto given = [](const char* place, const Number& number) -> Json {
    Json value = number.name.empty() ? Json{{"as_int", number.sample}}
                                     : Json{{"as_sym_int", {{"as_name", number.name}}}};
    return {{"name", place}, {"arg", std::move(value)}, {"kind", 1}};
  };
  const char* applied = name == "mul" ? "Mul(" : name == "add" ? "Add(" : "FloorDiv(";
  const int64_t sample = name == "mul"   ? a.sample * b.sample
                         : name == "add" ? a.sample + b.sample
                                         : a.sample / b.sample;
  return add_number("_operator." + std::string(name), std::string(name),
                    Json::array({given("a", a), given("b", b)}), applied + a.text + ", " + b.text + ")",
                    sample);
}

std::string ProgramWriter::number(const Node& node, const SizeExpr& size) {
  const auto plain = [](int64_t number) -> Number {
    return {"", "Integer(" + std::to_string(number) + ")", number};
  };
  int64_t divisor = size.numerator == 0 ? 1 : size.denominator;
  for (const Polynomial::Term& term : size.rest.terms) divisor = std::lcm(divisor, term.denominator);
  std::vector<Number> terms;
  const auto add_term = [&](int64_t factor, const std::vector<int32_t>& powers) {
    std::vector<Number> factors;
    for (size_t i = 0; i < powers.size(); ++i) {
      for (int32_t power = 0; power < powers[i]; ++power) {
        const std::optional<Number> one = this->size(i);
        if (!one) refuse(node, "a size follows those of the inputs by no polynomial");
        factors.push_back(*one);
      }
    }
    Number term = factors.empty() ? plain(factor) : factors[0];
    for (size_t i = 1; i < factors.size(); ++i) term = computed("mul", term, factors[i]);
    terms.push_back(factor == 1 || factors.empty() ? term : computed("mul", term, plain(factor)));
  };
  if (size.numerator != 0) add_term(size.numerator * (divisor / size.denominator), {1});
  for (const Polynomial::Term& term : size.rest.terms)
    add_term(term.numerator * (divisor / term.denominator), term.powers);
  Number sum = terms.at(0);
  for (size_t i = 1; i < terms.size(); ++i) sum = computed("add", sum, terms[i]);
  if (size.offset != 0) sum = computed("add", sum, plain(size.offset * divisor));
  return (divisor == 1 ? sum : computed("floordiv", sum, plain(divisor))).name;
}

Json ProgramWriter::list(const Node& node, const std::vector<Argument>& items, const c10::Type& element) {
  const bool tensors = element.kind() == c10::TypeKind::TensorType;
  if (tensors || is_optional_tensor(element)) {
    Json named = Json::array();
    for (const Argument& item : items) {
      if (!item.is_value() && !(item.is_none() && !tensors)) refuse(node, "a list holds no tensor");
      const Json name = item.is_value() ? Json{{"name", names_.at(item.value)}} : Json(true);
      named.push_back(tensors ? name : Json{{item.is_value() ? "as_tensor" : "as_none", name}});
    }
    return {{tensors ? "as_tensors" : "as_optional_tensors", named}};
  }
  const bool whole = std::ranges::all_of(items, [](const Argument& item) {
    return (item.kind == Argument::Kind::literal && item.literal.isInt()) ||
           item.kind == Argument::Kind::batch;
  });
  if (!whole) refuse(node, "a list holds something else than tensors and sizes");
  Json sizes = Json::array();
  for (const Argument& item : items) {
    if (item.kind == Argument::Kind::literal || item.batch.constant()) {
      sizes.push_back(
          {{"as_int", item.kind == Argument::Kind::literal ? item.literal.toInt() : item.batch.offset}});
    } else {
      sizes.push_back({{"as_name", number(node, item.batch)}});
    }
  }
  return {{"as_sym_ints", sizes}};
}

Json ProgramWriter::argument(const Node& node, const Argument& argument, const c10::Type& type) {
  if (type.kind() == c10::TypeKind::OptionalType && !argument.is_none())
    return this->argument(node, argument, *type.containedType(0));
  switch (argument.kind) {
    case Argument::Kind::value:
      return {{"as_tensor", {{"name", names_.at(argument.value)}}}};
    case Argument::Kind::batch:
      if (argument.batch.constant()) return literal_json(node, c10::IValue(argument.batch.offset), type);
      if (type.kind() == c10::TypeKind::FloatType) refuse(node, "a real number follows a size");
      return {{"as_sym_int", {{"as_name", number(node, argument.batch)}}}};
    case Argument::Kind::list:
      if (type.kind() != c10::TypeKind::ListType) refuse(node, "a list stands for a ", type.str());
      return list(node, argument.items, *type.containedType(0));
    case Argument::Kind::literal:
      return literal_json(node, argument.literal, type);
    default:
      refuse(node, "an argument follows the mode");
  }
}

/// As many positional arguments as are needed up to the last that is not its default, and others by their names.
Json ProgramWriter::inputs_of(const Node& node) {
  const std::vector<c10::Argument>& wanted = node.schema().arguments();
  size_t positional = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].kwarg_only() && !is_default(wanted[i], node.args[i])) positional = i + 1;
  }
  Json inputs = Json::array();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool named = wanted[i].kwarg_only();
    if (named ? is_default(wanted[i], node.args[i]) : i >= positional) continue;
    inputs.push_back({{"name", wanted[i].name()},
                      {"arg", argument(node, node.args[i], *wanted[i].real_type())},
                      {"kind", named ? 2 : 1}});
  }
  return inputs;
}

void ProgramWriter::add_call(const Node& node) {
  if (node.autocast && node.autocast->enabled) refuse(node, "it runs under an autocast of the model's own");
  if (node.schema().is_mutable()) refuse(node, "it writes into a tensor");
  const std::string target = target_text(node);
  Json inputs = inputs_of(node);  // whose numbers become nodes before this one
  const auto& returns = node.schema().returns();
  const bool listed = returns.size() == 1 && returns[0].type()->kind() == c10::TypeKind::ListType;
  Json outputs = Json::array();
  for (const auto& output : node.outputs()) {
    const Json name = {{"name", add_value(node, *output)}};
    outputs.push_back(listed ? name : Json{{"as_tensor", name}});
  }
  const bool single = !listed && outputs.size() == 1;
  // torch.fx renames a node called like a Python builtin (max), and two nodes would then share a name; no builtin ends so.
  const std::string name = single ? names_.at(node.output()) : unique_name(node.name() + "_results");
  if (listed) outputs = Json::array({Json{{"as_tensors", outputs}}});
  nodes_.push_back({{"target", target},
                    {"inputs", std::move(inputs)},
                    {"outputs", std::move(outputs)},
                    {"metadata", Json::object()},
                    {"is_hop_single_tensor_return", nullptr},
                    {"name", name}});
}

void ProgramWriter::add_result(const Value& value) {
  const Json named = {{"as_tensor", {{"name", names_.at(&value)}}}};
  outputs_.push_back(named);
  output_specs_.push_back({{"user_output", {{"arg", named}}}});
}

Json ProgramWriter::write(TensorFolder& weights, TensorFolder& constants) {
  add_tensors(weights, constants);
  add_inputs();
  add_symbols();
  for (const auto& node : graph_.nodes()) {
    if (node->kind() == Node::Kind::attribute) {
      names_[node->output()] = attribute_names_.at(node->target());
    } else if (node->kind() != Node::Kind::input) {
      for (const auto& output : node->outputs()) names_[output.get()] = unique_name(output->name);
    }
  }
  const auto call = [&](const Node& node) {
    add_call(node);
    return true;
  };
  convert_graph(graph_, {.where = kExportPt2Where,
                         .form = ".pt2 form",
                         .op_names = [] { return std::vector<std::string_view>(); },
                         .call = call,
                         .result = [&](const Value& value, const std::string&) { add_result(value); }});
  Json graph = {{"inputs", inputs_},
                {"outputs", outputs_},
                {"nodes", std::move(nodes_)},
                {"tensor_values", std::move(tensors_)},
                {"sym_int_values", sizes_},
                {"sym_bool_values", Json::object()},
                {"sym_float_values", Json::object()},
                {"custom_obj_values", Json::object()},
                {"is_single_tensor_return", false}};
  Json called = {{"inputs", Json::array()},
                 {"outputs", Json::array()},
                 {"in_spec", inputs_tree(input_names_.size())},
                 {"out_spec", result_tree(graph_.output_node()->args.at(0))},
                 {"forward_arg_names", input_names_}};
  Json module = {{"graph", std::move(graph)},
                 {"signature", {{"input_specs", input_specs_}, {"output_specs", output_specs_}}},
                 {"module_call_graph", Json::array({Json{{"fqn", ""}, {"signature", std::move(called)}}})},
                 {"metadata", Json::object()},
                 {"treespec_namedtuple_fields", Json::object()}};
  return {{"graph_module", std::move(module)},
          {"opset_version", {{"aten", kAtenVersion}}},
          {"range_constraints", symbols_.ranges()},
          {"schema_version", {{"major", kSchemaMajor}, {"minor", kSchemaMinor}}},
          {"verifiers", Json::array({"TRAINING"})},
          {"torch_version", TORCH_VERSION},
          {"guards_code", symbols_.guards(input_names_)}};
}

}  // namespace ulp::exchange::pt2
