// The readable listing of a graph and its drawing for Graphviz.
#include <ATen/core/function_schema.h>

#include <charconv>
#include <ostream>
#include <sstream>

#include "ulp/graph/graph.h"

namespace ulp::graph {

namespace {

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "u8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

/// The names of the sizes that expressions hold.
using SizeNames = std::vector<std::string>;

SizeNames size_names(const Graph& graph) {
  SizeNames names{"N"};
  for (const DynamicDimension& free : graph.free) names.push_back(free.name);
  return names;
}

/// 2N+1, 3 and, where it is not whole for every N, N/2; with a free dimension 64*time*N + 1.
void print(std::ostream& out, const SizeExpr& expr, const SizeNames& names) {
  if (expr.constant()) {
    out << expr.offset;
    return;
  }
  if (!expr.rest.terms.empty()) {
    Polynomial whole = expr.rest;
    if (expr.offset != 0) whole.terms.insert(whole.terms.begin(), {expr.offset, 1, {}});
    if (expr.numerator != 0) whole.terms.push_back({expr.numerator, expr.denominator, {1}});
    out << to_text(whole, names);
    return;
  }
  if (expr.numerator == -1) out << '-';
  if (expr.numerator != 1 && expr.numerator != -1) out << expr.numerator;
  out << 'N';
  if (expr.denominator != 1) out << '/' << expr.denominator;
  if (expr.offset > 0) out << '+';
  if (expr.offset != 0) out << expr.offset;
}

void print(std::ostream& out, const TensorMeta& meta, const SizeNames& names) {
  out << dtype_name(meta.dtype) << '[';
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (i) out << ", ";
    print(out, meta.sizes[i], names);
  }
  out << ']' << (meta.channels_last ? " nhwc" : "");
}

/// The shortest digits that read back as the same number.
void print(std::ostream& out, double number) {
  char digits[32];
  out << std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr - digits);
}

void print(std::ostream& out, const c10::IValue& literal) {
  if (literal.isTensor()) {
    out << "undefined";
  } else if (literal.isDouble()) {
    print(out, literal.toDouble());
  } else if (literal.isBool()) {
    out << (literal.toBool() ? "true" : "false");
  } else {
    out << literal;
  }
}

void print(std::ostream& out, const Argument& arg, const SizeNames& names) {
  auto items = [&](const char* open, const char* close) {
    out << open;
    for (size_t i = 0; i < arg.items.size(); ++i) {
      if (i) out << ", ";
      print(out, arg.items[i], names);
    }
    out << close;
  };
  switch (arg.kind) {
    case Argument::Kind::literal:
      return print(out, arg.literal);
    case Argument::Kind::value:
      out << '%' << (arg.value ? arg.value->name : "null");
      return;
    case Argument::Kind::batch:
      return print(out, arg.batch, names);
    case Argument::Kind::training:
      out << (arg.inverted ? "!training" : "training");
      return;
    case Argument::Kind::by_mode:
      out << "training ? ";
      print(out, arg.items[1], names);
      out << " : ";
      return print(out, arg.items[0], names);
    case Argument::Kind::dtype:
      out << "dtype";
      return items("(", ")");
    case Argument::Kind::list:
      return items("[", "]");
    case Argument::Kind::tuple:
      return items("(", ")");
  }
}

bool is_default(const Argument& arg, const c10::Argument& wanted) {
  if (arg.kind != Argument::Kind::literal || !wanted.default_value()) return false;
  const c10::IValue& preset = *wanted.default_value();
  if (arg.literal.isNone() || preset.isNone()) return arg.literal.isNone() && preset.isNone();
  return arg.literal.type()->kind() == preset.type()->kind() && arg.literal == preset;
}

/// The arguments: tensors by position, the rest by name where it is not the default.
void print_call(std::ostream& out, const Node& node, const SizeNames& names) {
  out << node.target() << '(';
  const auto& wanted = node.schema().arguments();
  bool first = true, positional = true;
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (is_default(node.args[i], wanted[i])) {
      positional = false;
      continue;
    }
    if (!first) out << ", ";
    first = false;
    positional = positional && (node.args[i].is_value() || node.args[i].kind == Argument::Kind::list);
    if (!positional) out << wanted[i].name() << '=';
    print(out, node.args[i], names);
  }
  out << ')';
}

void print_operation(std::ostream& out, const Node& node, const Graph& graph, const SizeNames& names) {
  switch (node.kind()) {
    case Node::Kind::input:
      out << "input";
      break;
    case Node::Kind::attribute: {
      static const char* const kNames[] = {"parameter", "buffer", "constant"};
      const Attribute* found = graph.find_attribute(node.target());
      out << (found ? kNames[static_cast<int>(found->kind)] : "missing attribute");
      break;
    }
    case Node::Kind::call:
      print_call(out, node, names);
      break;
    case Node::Kind::module:
      out << "module " << node.target() << '(';
      for (const Argument& arg : node.args) print(out, arg, names);
      out << ')';
      break;
    case Node::Kind::output:
      out << "return ";
      if (!node.args.empty()) print(out, node.args[0], names);
  }
}

/// Remarks behind the call: where it came from and how it differs from a plain call.
std::string remarks(const Node& node) {
  std::string text = node.scope;
  auto add = [&](bool on, const char* word) {
    if (on) text += std::string(text.empty() ? "" : ", ") + word;
  };
  add(node.train_only, "train only");
  add(node.in_place, "in place");
  add(node.no_grad, "no grad");
  add(node.eval_only, "eval only");
  if (node.autocast) {
    const bool on = node.autocast->enabled;
    add(true, on ? ("autocast " + std::string(c10::toString(node.autocast->dtype))).c_str() : "no autocast");
  }
  return text;
}

void print_node(std::ostream& out, const Node& node, const Graph& graph, const SizeNames& names) {
  for (size_t i = 0; i < node.outputs().size(); ++i) {
    const Value& value = *node.output(i);
    out << (i ? ", %" : "%") << value.name;
    if (value.meta) {
      out << " : ";
      print(out, *value.meta, names);
    }
  }
  if (!node.outputs().empty()) out << " = ";
  print_operation(out, node, graph, names);
  std::string text = remarks(node);
  if (!text.empty()) out << "  # " << text;
  out << '\n';
}

std::string in_quotes(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Graph& graph) {
  const SizeNames names = size_names(graph);
  for (const auto& node : graph.nodes()) print_node(out, *node, graph, names);
  return out;
}

std::string to_dot(const Graph& graph) {
  const SizeNames names = size_names(graph);
  std::ostringstream out;
  out << "digraph {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::attribute) continue;  // they would bury the shape of the network
    std::string label = node->name();
    if (node->kind() == Node::Kind::call || node->kind() == Node::Kind::module)
      label += "\n" + node->target();
    if (!node->scope.empty()) label += "\n" + node->scope;
    std::string text = in_quotes(label);
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\n");
    bool round = node->kind() == Node::Kind::input || node->kind() == Node::Kind::output;
    out << "  " << in_quotes(node->name()) << " [label=" << text << (round ? ", style=rounded" : "")
        << "];\n";
    for (const Value* value : node->reads()) {
      if (value->producer->kind() == Node::Kind::attribute) continue;
      out << "  " << in_quotes(value->producer->name()) << " -> " << in_quotes(node->name());
      if (value->meta) {
        std::ostringstream meta;
        print(meta, *value->meta, names);
        out << " [label=" << in_quotes(meta.str()) << ']';
      }
      out << ";\n";
    }
  }
  out << "}\n";
  return out.str();
}

}  // namespace ulp::graph
