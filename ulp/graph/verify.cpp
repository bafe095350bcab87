#include <ATen/core/function_schema.h>

#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

namespace {

/// Checks one node after another, remembering what has been defined.
class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    const Node* last = nullptr;
    for (const auto& node : graph_.nodes()) {
      check_order(*node, last);
      for (const Argument& arg : node->args) check_argument(*node, arg, node->kind() == Node::Kind::output);
      check_kind(*node);
      check_outputs(*node);
      last = node.get();
    }
    if (!graph_.output_node()) fail("graph.verify", "expected an output node at the end, got none");
    if (graph_.batch_dims.size() != graph_.inputs().size()) {
      fail("graph.verify", "expected a batch dimension for each of ", graph_.inputs().size(), " inputs, got ",
           graph_.batch_dims.size());
    }
  }

 private:
  static int rank(Node::Kind kind) {
    if (kind == Node::Kind::input) return 0;
    if (kind == Node::Kind::attribute) return 1;
    return kind == Node::Kind::output ? 3 : 2;
  }

  void check_order(const Node& node, const Node* last) {
    if (last && (rank(node.kind()) < rank(last->kind()) || last->kind() == Node::Kind::output)) {
      fail("graph.verify", "expected inputs, attributes, calls and one output in this order, got ",
           describe(node), " after ", describe(*last));
    }
  }

  void check_argument(const Node& node, const Argument& arg, bool is_output) {
    if (arg.is_value() && !defined_.count(arg.value)) {
      fail("graph.verify", "expected ", describe(node), " to read values defined before it, got ",
           arg.value ? "'" + arg.value->name + "'" : "a null value");
    }
    if (arg.kind == Argument::Kind::tuple && !is_output) {
      fail("graph.verify", "expected tuples in the output node only, got one at ", describe(node));
    }
    if (arg.kind == Argument::Kind::batch && arg.batch.denominator <= 0) {
      fail("graph.verify", "expected a positive denominator, got ", arg.batch.denominator, " at ",
           describe(node));
    }
    const bool of_value = arg.items.size() == 1 && arg.items[0].is_value() && arg.literal.isInt();
    if (arg.kind == Argument::Kind::dtype && !of_value)
      fail("graph.verify", "expected the type of one value, got another argument at ", describe(node));
    for (const Argument& item : arg.items) check_argument(node, item, is_output);
  }

  void check_kind(const Node& node) {
    switch (node.kind()) {
      case Node::Kind::input:
        return;
      case Node::Kind::attribute:
        if (!graph_.find_attribute(node.target()))
          fail("graph.verify", "expected an attribute named '", node.target(), "', got none");
        return;
      case Node::Kind::call:
        return check_call(node);
      case Node::Kind::module: {
        auto found = graph_.modules().find(node.target());
        if (found == graph_.modules().end() || !found->second)
          fail("graph.verify", "expected ", describe(node), " to name a module of the graph, got none");
        if (node.args.size() != 1 || !node.args[0].is_value())
          fail("graph.verify", "expected one tensor as argument of ", describe(node));
        return;
      }
      case Node::Kind::output:
        if (node.args.size() != 1)
          fail("graph.verify", "expected one argument of the output, got ", node.args.size());
    }
  }

  void check_call(const Node& node) {
    const c10::FunctionSchema& schema = node.schema();
    if (node.args.size() != schema.arguments().size()) {
      fail("graph.verify", "expected ", schema.arguments().size(), " arguments of ", describe(node), ", got ",
           node.args.size());
    }
    for (size_t i = 0; i < node.args.size(); ++i) check_type(node, schema.arguments()[i], node.args[i]);
    size_t lists = 0;
    for (const c10::Argument& result : schema.returns()) lists += is_tensor_list(*result.type());
    size_t results = schema.returns().size(), outputs = node.outputs().size();
    if (lists > 1 || (lists == 0 && outputs != results) || outputs + lists < results) {
      fail("graph.verify", "expected ", results, " outputs of ", describe(node), ", got ", outputs);
    }
  }

  /// Values where the schema wants tensors, and nothing but tensors there.
  void check_type(const Node& node, const c10::Argument& wanted, const Argument& arg) {
    c10::TypePtr type = wanted.type();
    bool optional = type->kind() == c10::TypeKind::OptionalType;
    if (optional) type = type->containedType(0);
    if (arg.is_none() && optional) return;
    bool tensor = type->kind() == c10::TypeKind::TensorType;
    bool undefined = arg.kind == Argument::Kind::literal && arg.literal.isTensor();
    if (tensor != (arg.is_value() || undefined)) {
      fail("graph.verify", "expected ", tensor ? "a tensor" : "no tensor", " as '", wanted.name(), "' of ",
           describe(node));
    }
  }

  void check_outputs(const Node& node) {
    if (node.kind() != Node::Kind::output && node.outputs().empty() && node.kind() != Node::Kind::call)
      fail("graph.verify", "expected an output of ", describe(node), ", got none");
    for (const auto& value : node.outputs()) {
      if (value->producer != &node)
        fail("graph.verify", "expected ", describe(node), " as the producer of '", value->name, "'");
      if (!names_.insert(value->name).second)
        fail("graph.verify", "expected unique names, got '", value->name, "' twice");
      defined_.insert(value.get());
    }
  }

  const Graph& graph_;
  std::unordered_set<const Value*> defined_;
  std::unordered_set<std::string_view> names_;
};

}  // namespace

void Graph::verify() const {
  Verifier(*this).run();
}

}  // namespace ulp::graph
