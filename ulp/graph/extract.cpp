#include "ulp/graph/extract.h"

#include <algorithm>
#include <functional>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"

namespace ulp::graph {
namespace {

/// The dimension that is the batch; -1 where there is none.
int64_t batch_dim(const TensorMeta& meta) {
  const SizeExpr kBatch{1, 1, 0};
  const auto at = std::ranges::find(meta.sizes, kBatch);
  return at == meta.sizes.end() ? -1 : at - meta.sizes.begin();
}

/// True where all sizes but this one are numbers.
bool known_but(const TensorMeta& meta, int64_t dim) {
  for (int64_t d = 0; d < static_cast<int64_t>(meta.sizes.size()); ++d) {
    if (d != dim && !meta.sizes[static_cast<size_t>(d)].constant()) return false;
  }
  return true;
}

class Extractor {
 public:
  explicit Extractor(const Graph& graph) : from_(graph) {
    made_.graph = std::make_shared<Graph>();
    made_.graph->batch_range = graph.batch_range;
  }

  void add_input(const Value* value) {
    const int64_t dim = value->meta ? batch_dim(*value->meta) : -1;
    Value* input = graph().add_input(value->name, dim);
    if (value->meta && known_but(*value->meta, dim)) input->meta = value->meta;
    made_.origins[input->producer] = value->producer;
    twins_[value] = input;
  }

  void add(const Node& node) {
    std::vector<Argument> args = node.args;
    for (Argument& argument : args) map(argument, node);
    Node* twin = node.kind() == Node::Kind::module
                     ? add_module(node, args)
                     : graph().call(node.target(), std::move(args), nullptr, node.name());
    if (twin->outputs().size() != node.outputs().size())
      graph().set_output_count(twin, node.outputs().size());
    twin->scope = node.scope;
    twin->train_only = node.train_only;
    twin->eval_only = node.eval_only;
    twin->in_place = node.in_place;
    twin->no_grad = node.no_grad;
    twin->autocast = node.autocast;
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      twin->output(i)->meta = node.output(i)->meta;
      twins_[node.output(i)] = twin->output(i);
    }
    made_.origins[twin] = &node;
  }

  Extract finish(const std::vector<const Value*>& results) {
    std::vector<Argument> items;
    for (const Value* value : results) items.emplace_back(twin(value, *value->producer));
    graph().set_output(Argument::list(std::move(items)));
    return std::move(made_);
  }

 private:
  Graph& graph() { return *made_.graph; }

  Node* add_module(const Node& node, const std::vector<Argument>& args) {
    graph().modules()[node.target()] = from_.modules().at(node.target());
    return graph().call_module(node.target(), args.at(0).value, nullptr, node.name());
  }

  void map(Argument& argument, const Node& reader) {
    if (argument.is_value()) argument.value = twin(argument.value, reader);
    for (Argument& item : argument.items) map(item, reader);
  }

  Value* twin(const Value* value, const Node& reader) {
    if (const auto found = twins_.find(value); found != twins_.end()) return found->second;
    const Node& producer = *value->producer;
    if (producer.kind() != Node::Kind::attribute) {
      fail("graph.extract", "expected '", value->name, "', which ", describe(reader),
           " reads, among the inputs");
    }
    graph().set_attribute(producer.target(), *from_.find_attribute(producer.target()));
    return twins_[value] = graph().attribute(producer.target());
  }

  const Graph& from_;
  Extract made_;
  std::unordered_map<const Value*, Value*> twins_;
};

}  // namespace

Extract extract(const Graph& graph, const std::vector<const Node*>& nodes,
                const std::vector<const Value*>& inputs, const std::vector<const Value*>& results) {
  Extractor extractor(graph);
  for (const Value* input : inputs) extractor.add_input(input);
  for (const Node* node : nodes) extractor.add(*node);
  return extractor.finish(results);
}

}  // namespace ulp::graph
