#include "ulp/exchange/pt2/program.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

constexpr int64_t kSchema = 8;

std::string name_of(const Json& json) {
  return json.at("name").get<std::string>();
}

/// Integer('2', ...) and the like, or a number alone.
std::optional<int64_t> number_in_text(std::string_view text) {
  for (const std::string_view start : {std::string_view("Integer("), std::string_view("")}) {
    if (!text.starts_with(start)) continue;
    std::string_view digits = text.substr(start.size());
    if (!start.empty() && digits.ends_with(')')) digits.remove_suffix(1);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc() && end == digits.data() + digits.size()) return number;
  }
  return std::nullopt;
}

/// x of "Symbol('x', positive=True, integer=True)", or of a name alone.
std::string symbol_of(std::string_view text) {
  constexpr std::string_view kStart = "Symbol('";
  const auto plain = [](std::string_view name) {
    return !name.empty() &&
           std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; }) &&
           !std::isdigit(static_cast<unsigned char>(name[0]));
  };
  if (plain(text)) return std::string(text);
  if (!text.starts_with(kStart) || !text.ends_with(')')) return "";
  const std::string_view rest = text.substr(kStart.size());
  const std::string_view name = rest.substr(0, std::min(rest.find('\''), rest.size()));
  const bool one = rest.find('(') == std::string_view::npos;
  return one && plain(name) ? std::string(name) : "";
}

/// A symbol, or Mul(Integer(2), Symbol('x', ...)).
ProgramSize size_of_text(const std::string& text) {
  constexpr int64_t kMostFactor = int64_t{1} << 24;
  constexpr std::string_view kProduct = "Mul(";
  if (const std::string symbol = symbol_of(text); !symbol.empty()) return {1, symbol};
  if (text.starts_with(kProduct) && text.ends_with(')')) {
    const std::string_view inner =
        std::string_view(text).substr(kProduct.size(), text.size() - kProduct.size() - 1);
    const size_t comma = inner.find(", ");
    if (comma != std::string_view::npos) {
      const std::optional<int64_t> factor = number_in_text(inner.substr(0, comma));
      const std::string symbol = symbol_of(inner.substr(comma + 2));
      if (factor && *factor > 0 && *factor <= kMostFactor && !symbol.empty()) return {*factor, symbol};
    }
  }
  fail_file(kImportPt2Where, "expected sizes of inputs that are numbers, symbols or multiples of one, got '",
            text, "'");
}

ProgramSize size_of(const Json& json) {
  const ProgramArgument size = union_of(json, "a size");
  if (size.kind == "as_expr") return size_of_text(size.value.at("expr_str").get<std::string>());
  const auto number = whole_number(size.value);
  constexpr int64_t kMost = int64_t{1} << 48;
  if (number < 0 || number > kMost)
    fail_file(kImportPt2Where, "expected sizes that a tensor can have, got ", number);
  return {number, ""};
}

ProgramNode node_of(const Json& json) {
  ProgramNode node{.target = json.at("target").get<std::string>(), .name = {}, .inputs = {}, .outputs = {}};
  for (const Json& input : json.at("inputs"))
    node.inputs.emplace_back(name_of(input), union_of(input.at("arg"), "an argument"));
  for (const Json& output : json.at("outputs")) node.outputs.push_back(union_of(output, "a result"));
  if (const auto name = json.find("name"); name != json.end() && name->is_string())
    node.name = name->get<std::string>();
  return node;
}

ProgramInput input_of(const Json& argument, const Json& metas) {
  const ProgramArgument given = union_of(argument, "an input");
  if (given.kind != "as_tensor")
    fail_file(kImportPt2Where, "expected inputs that are tensors, got one that is ",
              given.kind.substr(0, 32));
  ProgramInput input{.name = name_of(given.value), .type = {}, .sizes = {}};
  const Json& meta = metas.at(input.name);
  input.type = scalar_type(meta.at("dtype"));
  for (const Json& size : meta.at("sizes")) input.sizes.push_back(size_of(size));
  return input;
}

void read_inputs(const Json& specs, const Json& metas, Program& program) {
  for (const Json& one : specs) {
    const ProgramArgument spec = union_of(one, "an input");
    const Json& value = spec.value;
    if (spec.kind == "user_input") {
      program.inputs.push_back(input_of(value.at("arg"), metas));
    } else if (spec.kind == "parameter") {
      program.tensors.push_back(
          {name_of(value.at("arg")), value.at("parameter_name").get<std::string>(), true, false});
    } else if (spec.kind == "buffer") {
      const bool constant = !value.at("persistent").get<bool>();
      program.tensors.push_back(
          {name_of(value.at("arg")), value.at("buffer_name").get<std::string>(), false, constant});
    } else if (spec.kind == "tensor_constant") {
      program.tensors.push_back(
          {name_of(value.at("arg")), value.at("tensor_constant_name").get<std::string>(), false, true});
    } else if (spec.kind != "constant_input") {  // which the nodes have as numbers
      fail_file(kImportPt2Where, "expected inputs that are tensors, got one that is ",
                spec.kind.substr(0, 32));
    }
  }
}

void read_outputs(const Json& specs, Program& program) {
  for (const Json& one : specs) {
    const ProgramArgument spec = union_of(one, "a result");
    const Json& value = spec.value;
    if (spec.kind == "user_output") {
      const ProgramArgument result = union_of(value.at("arg"), "a result");
      if (result.kind != "as_tensor")
        fail_file(kImportPt2Where, "expected results that are tensors, got one that is ",
                  result.kind.substr(0, 32));
      program.results.push_back(name_of(result.value));
    } else if (spec.kind == "buffer_mutation") {
      program.updates.push_back({name_of(value.at("arg")), value.at("buffer_name").get<std::string>()});
    } else {
      fail_file(kImportPt2Where, "expected a program of the forward pass, got one with a ",
                spec.kind.substr(0, 32));
    }
  }
  if (program.results.empty()) fail_file(kImportPt2Where, "expected a program with results, got none");
}

/// The keys of a dictionary of tensors, by the description of the result; empty for other results.
std::vector<std::string> dictionary_keys(const Json& calls, size_t results) {
  if (!calls.is_array() || calls.empty() || !calls[0].at("signature").is_object()) return {};
  const Json spec = parse_json(calls[0].at("signature").at("out_spec").get<std::string>());
  const Json& top = spec.at(1);
  if (!top.at("type").is_string() || top.at("type").get<std::string>() != "builtins.dict") return {};
  for (const Json& child : top.at("children_spec")) {
    if (!child.at("type").is_null()) return {};
  }
  const Json keys = parse_json(top.at("context").get<std::string>());
  std::vector<std::string> names;
  for (const Json& key : keys) {
    if (!key.is_string()) return {};
    names.push_back(key.get<std::string>());
  }
  return names.size() == results && std::set(names.begin(), names.end()).size() == results
             ? names
             : std::vector<std::string>();
}

void check_counts(const Program& program) {
  const std::pair<const char*, size_t> counts[] = {{"inputs", program.inputs.size()},
                                                   {"tensors", program.tensors.size()},
                                                   {"results", program.results.size()},
                                                   {"updates of buffers", program.updates.size()}};
  for (const auto& [what, count] : counts) {
    if (count > kMostNodes)
      fail_file(kImportPt2Where, "expected at most ", kMostNodes, ' ', what, ", got ", count);
  }
}

bool trains(const ProgramGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const ProgramNode& node) {
    return std::ranges::any_of(node.inputs, [](const auto& input) {
      const auto& [name, argument] = input;
      const bool mode = name == "training" || name == "train";
      if (mode && argument.kind == "as_bool") return argument.value.template get<bool>();
      return name == "dropout_p" && argument.kind == "as_float" && real_number(argument.value) > 0;
    });
  });
}

}  // namespace

ProgramArgument union_of(const Json& json, const char* what) {
  if (!json.is_object() || json.size() != 1)
    fail_file(kImportPt2Where, "expected ", what, " of one kind, got ", json.size(), " of them");
  return {json.begin().key(), json.begin().value()};
}

std::string ProgramNode::label() const {
  constexpr size_t kShown = 100;
  const std::string shown = name.empty() ? "a node" : "node '" + name.substr(0, kShown) + "'";
  return shown + " (" + target.substr(0, kShown) + ")";
}

ProgramGraph read_graph(const Json& json) {
  ProgramGraph graph;
  for (const Json& input : json.at("inputs")) graph.inputs.push_back(union_of(input, "an input"));
  for (const Json& output : json.at("outputs")) graph.outputs.push_back(union_of(output, "a result"));
  for (const Json& node : json.at("nodes")) graph.nodes.push_back(node_of(node));
  return graph;
}

Program read_program(std::string_view text) {
  const Json json = parse_json(text);
  const auto schema = whole_number(json.at("schema_version").at("major"));
  if (schema != kSchema)
    fail_file(kImportPt2Where, "expected a program in version ", kSchema,
              " of torch.export's schema, which PyTorch 2.13 writes, got ", schema);
  const Json& module = json.at("graph_module");
  const Json& graph = module.at("graph");
  if (const size_t nodes = graph.at("nodes").size(); nodes > kMostNodes)
    fail_file(kImportPt2Where, "expected at most ", kMostNodes,
              " nodes, since the time to capture them grows with their square, got ", nodes);
  Program program;
  program.graph = read_graph(graph);
  read_inputs(module.at("signature").at("input_specs"), graph.at("tensor_values"), program);
  read_outputs(module.at("signature").at("output_specs"), program);
  if (program.inputs.empty()) fail_file(kImportPt2Where, "expected a program with inputs, got none");
  check_counts(program);
  for (const auto& [symbol, range] : json.at("range_constraints").items()) {
    const Json &low = range.at("min_val"), &high = range.at("max_val");
    program.ranges[symbol] = {low.is_null() ? 0 : whole_number(low),
                              high.is_null() ? -1 : whole_number(high)};
  }
  program.result_names = dictionary_keys(module.at("module_call_graph"), program.results.size());
  program.trains = trains(program.graph);
  return program;
}

at::ScalarType scalar_type(const Json& number) {
  switch (whole_number(number)) {
    case 1:
      return at::kByte;
    case 2:
      return at::kChar;
    case 3:
      return at::kShort;
    case 4:
      return at::kInt;
    case 5:
      return at::kLong;
    case 6:
      return at::kHalf;
    case 7:
      return at::kFloat;
    case 8:
      return at::kDouble;
    case 9:
      return at::kComplexHalf;
    case 10:
      return at::kComplexFloat;
    case 11:
      return at::kComplexDouble;
    case 12:
      return at::kBool;
    case 13:
      return at::kBFloat16;
    default:
      fail_file(kImportPt2Where,
                "expected numbers of a type that this program knows, got torch.export's type ",
                whole_number(number));
  }
}

int64_t whole_number(const Json& number) {
  const bool whole = number.is_number_unsigned() ? std::in_range<int64_t>(number.get<uint64_t>())
                                                 : number.is_number_integer();
  if (!whole) fail_file(kImportPt2Where, "expected a whole number of 64 bits, got ", shown(number));
  return number.get<int64_t>();
}

int64_t plain_number(const Json& size) {
  const ProgramArgument given = union_of(size, "a size");
  if (given.kind != "as_int")
    fail_file(kImportPt2Where, "expected a size that is a number, got an expression");
  return whole_number(given.value);
}

double real_number(const Json& number) {
  if (!number.is_string()) return number.get<double>();
  const auto word = number.get<std::string>();
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  fail_file(kImportPt2Where, "expected a number, got '", word.substr(0, 32), "'");
}

}  // namespace ulp::exchange::pt2
