#include "ulp/lower/lower.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "ulp/graph/describe.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/lower/builder.h"
#include "ulp/lower/constants.h"
#include "ulp/lower/fuse.h"
#include "ulp/lower/height_one.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/shapes.h"
#include "ulp/lower/spell_out.h"
#include "ulp/lower/token_mean.h"

namespace ulp {
namespace lowering {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;

/// Nodes that give back their input when inferring are taken out, so that they do not stand between what
/// fuses.
void remove_identities(Graph& graph) {
  std::vector<Node*> found;
  for (const auto& node : graph.nodes()) {
    if (is_identity(*node)) found.push_back(node.get());
  }
  for (Node* node : found) {
    graph.replace_uses(node->output(), node->args[0].value);
    graph.erase(node);
  }
}

/// `1 - x` of the C++ frontend fills an empty tensor like x: what is filled is not read, so x itself will do.
void fill_without_copies(Graph& graph) {
  const auto like = [](const Value* value) {
    return value->producer->is("aten::empty_like") || value->producer->is("aten::ones_like") ||
           value->producer->is("aten::zeros_like");
  };
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::fill")) continue;
    while (like(node->args[0].value)) node->args[0] = node->args[0].value->producer->args[0];
  }
  graph.remove_dead();
}

/// Ids come as integers, everything else as f32.
std::optional<DataType> input_type(at::ScalarType dtype) {
  const std::optional<DataType> type = libtorch::data_type_of(dtype);
  return type == DataType::f32 || type == DataType::i32 || type == DataType::i64 ? type : std::nullopt;
}

/// Gathers the nodes that cannot be lowered while going on with the rest, to name all of them at once.
class Lowerer {
 public:
  Lowerer(Graph& graph, DataType float_type, const std::vector<graph::Chain>& chains)
      : graph_(graph), builder_(graph, float_type), groups_(graph, chains) {}

  runtime::Plan run() {
    for (const Value* input : graph_.inputs()) attempt([&] { add_input(input); });
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::module) refuse(*node, hint_for(*node));
      if (node->kind() != Node::Kind::call) continue;
      if (const Group* group = groups_.at(node.get())) lower_group(*group);
    }
    attempt([&] { add_outputs(graph_.output_node()->args.at(0)); });
    if (!problems_.empty()) fail_with_all();
    return std::move(builder_.plan());
  }

 private:
  template <typename F>
  void attempt(F&& work) {
    try {
      work();
    } catch (const Unsupported& found) {
      refuse(*found.node, found.reason);
    }
  }

  void refuse(const Node& node, const std::string& reason) {
    ++refusals_;
    // A view is refused by each of those that read it.
    const std::string text = graph::describe(node) + ": " + reason;
    if (std::ranges::find(problems_, text) == problems_.end()) problems_.push_back(text);
    poison(node);
  }

  void poison(const Node& node) {
    for (const auto& value : node.outputs()) poisoned_.insert(value.get());
  }

  bool reads_poison(const Node& node) const {
    return std::ranges::any_of(node.reads(), [&](const Value* value) { return poisoned_.contains(value); });
  }

  void lower_group(const Group& group) {
    const bool poisoned =
        reads_poison(*group.root) || poisoned_.contains(group.residual) ||
        std::ranges::any_of(group.inner, [&](const Node* node) { return reads_poison(*node); });
    const size_t before = refusals_;
    attempt([&] {
      const LowerFunction lowering = find_lowering(graph_, group);
      if (lowering == nullptr) unsupported(*group.root, hint_for(*group.root));
      if (!poisoned) lowering(builder_, group);
    });
    if (poisoned || refusals_ != before) poison(*group.last);
  }

  void add_input(const Value* input) {
    const Node& node = *input->producer;
    const std::vector<int64_t> shape = shape_of(node, *input);
    const std::optional<DataType> type = input_type(input->meta->dtype);
    if (!type) unsupported(node, "expected an input of f32, i32 or i64, got ", input->meta->dtype);
    const int32_t tensor = builder_.add_tensor(input->name, {*type}, shape);
    builder_.bind(input, tensor);
    builder_.plan().inputs.push_back(tensor);
  }

  void add_outputs(const Argument& result) {
    const Node& node = *graph_.output_node();
    if (result.kind == Argument::Kind::tuple || result.kind == Argument::Kind::list) {
      for (const Argument& item : result.items) add_outputs(item);
      return;
    }
    if (!result.is_value()) unsupported(node, "expected tensors as the model's results");
    if (poisoned_.contains(result.value)) return;
    runtime::Plan& plan = builder_.plan();
    // Codes leave as codes, integers as i64, everything else as f32.
    Form form = builder_.form_of(node, result.value);
    form.layout = Layout::plain;
    const bool counted = form.type != DataType::i32 && form.type != DataType::i64;  // inside, as f32
    const bool integers = counted && result.value->meta && result.value->meta->dtype == at::kLong;
    if (!result.value->producer->is("ulp::quantize")) form = {integers ? DataType::i64 : DataType::f32};
    int32_t tensor = builder_.as(node, result.value, form);
    const auto is_in = [&](const std::vector<int32_t>& list) { return std::ranges::count(list, tensor) > 0; };
    if (is_in(plan.inputs) || is_in(plan.outputs)) {
      const std::string name = result.value->name + ".copy";
      tensor = builder_.emit({.op = runtime::Op::convert, .name = name, .inputs = {tensor}}, name, form,
                             shape_of(node, *result.value));
    }
    plan.outputs.push_back(tensor);
  }

  [[noreturn]] void fail_with_all() const {
    constexpr size_t kShown = 8;
    std::ostringstream out;
    for (size_t i = 0; i < std::min(problems_.size(), kShown); ++i)
      out << (i > 0 ? "; " : "") << problems_[i];
    if (problems_.size() > kShown) out << "; and " << problems_.size() - kShown << " more";
    fail("lower.lower", "expected ops that the engine has, got ", problems_.size(),
         problems_.size() == 1 ? " node" : " nodes", " that cannot be lowered: ", out.str(),
         ". The engine has ", supported_ops());
  }

  Graph& graph_;
  Builder builder_;
  Groups groups_;
  std::vector<std::string> problems_;
  size_t refusals_ = 0;
  std::unordered_set<const Value*> poisoned_;
};

/// Brings the graph into the form that has a lowering, step by step. The passes run on prepared graphs, too:
/// what only training needed is gone now, and that lets canonicalize match more than before.
void prepare_graph(Graph& graph, std::vector<graph::PassReport>& reports) {
  for (const auto pass :
       {graph::canonicalize, graph::strip_training, graph::fold_batch_norm, fuse_token_mean}) {
    reports.push_back(pass(graph));
  }
  complete_shapes(graph);
  for (const auto pass : {graph::batch_norm_as_conv, graph::transposed_as_conv}) {
    reports.push_back(pass(graph));
  }
  make_sequences_images(graph);
  fill_without_copies(graph);
  fold_constants(graph);
  spell_out(graph);
  graph.remove_dead(true);
  complete_shapes(graph);
  remove_identities(graph);
}

void report_chains(const graph::Fusion& fusion, graph::PassReport& report) {
  for (const graph::Chain& chain : fusion.chains) {
    if (chain.last() != chain.op) report.changes.push_back(chain.describe() + " made one step");
  }
  for (const graph::NearMiss& miss : fusion.near_misses) report.near_misses.push_back(miss.describe());
}

runtime::Plan lower_graph(Graph& graph, const LowerOptions& options, graph::PassReport* report) {
  graph::PassReport unread;
  graph::PassReport& lines = report ? *report : unread;
  lines = {.pass = "lower", .changes = {}, .near_misses = {}};
  prepare_graph(graph, lines.parts);
  const graph::Fusion fusion = graph::find_chains(graph, engine_policy());
  report_chains(fusion, lines);
  const bool bf16 = options.precision == LowerOptions::Precision::bf16;
  runtime::Plan plan = Lowerer(graph, bf16 ? DataType::bf16 : DataType::f32, fusion.chains).run();
  plan.metadata = options.metadata;
  plan.metadata["precision"] = bf16 ? "bf16" : "f32";
  plan.verify();
  return plan;
}

}  // namespace
}  // namespace lowering

runtime::Plan lower(graph::GraphModule& model, const LowerOptions& options, graph::PassReport* report) {
  const std::shared_ptr<graph::Graph> copy = model.graph().clone();
  return lowering::lower_graph(*copy, options, report);
}

runtime::Plan lower(const std::shared_ptr<graph::GraphModule>& model, const std::vector<at::Tensor>& examples,
                    const LowerOptions& options, graph::PassReport* report) {
  if (model == nullptr) fail("lower.lower", "expected a model, got null");
  const std::shared_ptr<graph::Graph> copy = model->graph().clone();
  lowering::set_input_shapes(*copy, examples);
  return lowering::lower_graph(*copy, options, report);
}

}  // namespace ulp
