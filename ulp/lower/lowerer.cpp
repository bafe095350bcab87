#include "ulp/lower/lowerer.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/lower/boundary.h"
#include "ulp/lower/builder.h"
#include "ulp/lower/fuse.h"
#include "ulp/lower/ops.h"

namespace ulp::lowering {
namespace {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;

/// Steps compute in f32: a float64 would lose half of its digits unseen.
void expect_no_float64(const Group& group) {
  const auto check = [](const Node& node) {
    for (const auto& made : node.outputs()) {
      if (made->meta && made->meta->dtype == at::kDouble)
        unsupported(node,
                    "expected f32, got float64 arithmetic: the engine has f32 and bf16; .to(torch::kFloat) ",
                    "before it keeps it in the engine");
    }
  };
  check(*group.root);
  for (const Node* node : group.inner) check(*node);
}

/// Sums of products and averages are not wrapped around, cut off or rounded as LibTorch's of integers are.
void expect_float_sums(const Node& node) {
  const std::optional<graph::TensorMeta>& made = node.output()->meta;
  if (!made || !at::isIntegralType(made->dtype, /*includeBool=*/false)) return;
  if (c10::elementSize(made->dtype) <= 2 && node.is("aten::cumsum"))
    unsupported(node, "expected floats, got ", made->dtype, ", whose sums wrap around in LibTorch");
  if (is_any(node, {"aten::linear", "aten::matmul", "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm",
                    "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::conv_transpose1d",
                    "aten::conv_transpose2d", "aten::conv_transpose3d"}))
    unsupported(node, "expected floats, got ", made->dtype, ", whose sums of products pass what f32 holds");
  if (is_any(node, {"aten::upsample_linear1d", "aten::upsample_bilinear2d", "aten::upsample_trilinear3d",
                    "aten::upsample_bicubic2d", "aten::avg_pool1d", "aten::avg_pool2d", "aten::avg_pool3d",
                    "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::adaptive_avg_pool3d"}))
    unsupported(node, "expected floats, got ", made->dtype, ", to which LibTorch rounds");
  if (node.is("aten::prod")) unsupported(node, "expected floats: products of integers pass what f32 holds");
}

/// Codes are whole numbers for the graph, and stand for numbers in a plan: only what keeps or picks them means
/// the same in both. Bytes of a caller stand for themselves.
bool takes_codes(const Node& node) {
  return is_any(node, {"ulp::dequantize", "ulp::average_codes", "aten::max_pool2d"}) || is_move(node);
}

void expect_no_codes(const Builder& builder, const Node& node) {
  if (takes_codes(node)) return;
  for (const Value* read : node.reads()) {
    const bool bytes =
        read->meta && c10::elementSize(read->meta->dtype) == 1 && read->meta->dtype != at::kBool;
    if (!bytes || !builder.bound(read)) continue;
    const Form form = builder.form_of(node, read);
    const bool itself = read->meta->dtype == at::kByte && form.scale == 1.0F && form.zero_point == 0;
    if (form.type == DataType::u8 && !itself)
      unsupported(node, "expected numbers, got the codes of '", read->name, "'");
  }
}

/// Gathers the nodes that cannot be lowered while going on with the rest, to name all of them at once.
class Lowerer {
 public:
  Lowerer(Graph& graph, DataType float_type, const std::vector<graph::Chain>& chains)
      : graph_(graph), builder_(graph, float_type), groups_(graph, chains) {}

  Lowered run() {
    for (const Value* input : graph_.inputs()) attempt([&] { add_input(builder_, input); });
    for (const auto& node : graph_.nodes()) {
      if (node->kind() == Node::Kind::module) refuse(*node, hint_for(*node));
      if (node->kind() != Node::Kind::call) continue;
      if (const Group* group = groups_.at(node.get())) lower_group(*group);
    }
    add_outputs(graph_.output_node()->args.at(0));
    return {std::move(builder_.plan()), std::move(refusals_)};
  }

 private:
  template <typename F>
  void attempt(F&& work, const Node* maker = nullptr) {
    try {
      work();
    } catch (const Unsupported& found) {
      refuse(*found.node, found.reason, maker);
    }
  }

  void refuse(const Node& node, const std::string& reason, const Node* maker = nullptr) {
    refusals_.push_back({&node, reason, maker});
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
    const size_t before = refusals_.size();
    builder_.work_on(*group.root);
    attempt([&] {
      expect_no_float64(group);
      const LowerFunction lowering = find_lowering(graph_, group);
      if (lowering == nullptr) unsupported(*group.root, hint_for(*group.root));
      for (const Node* node : group.inner) expect_no_codes(builder_, *node);
      expect_float_sums(*group.root);
      expect_no_codes(builder_, *group.root);
      if (!poisoned) lowering(builder_, group);
    });
    if (poisoned || refusals_.size() != before) poison(*group.last);
  }

  void add_outputs(const Argument& result) {
    if (result.kind == Argument::Kind::tuple || result.kind == Argument::Kind::list) {
      for (const Argument& item : result.items) add_outputs(item);
    } else if (result.kind == Argument::Kind::literal && (result.literal.isString() || result.is_none())) {
      return;  // the name of a result, or nothing in its place
    } else if (!result.is_value()) {
      refuse(*graph_.output_node(), "expected tensors as the model's results");
    } else if (!poisoned_.contains(result.value)) {
      attempt([&] { add_output(builder_, *graph_.output_node(), result.value); }, result.value->producer);
    }
  }

  Graph& graph_;
  Builder builder_;
  Groups groups_;
  std::vector<Refusal> refusals_;
  std::unordered_set<const Value*> poisoned_;
};

void report_chains(const graph::Fusion& fusion, graph::PassReport& report) {
  for (const graph::Chain& chain : fusion.chains) {
    if (chain.last() != chain.op) report.changes.push_back(chain.describe() + " made one step");
  }
  for (const graph::NearMiss& miss : fusion.near_misses) report.near_misses.push_back(miss.describe());
}

/// Refusals for one reason of nodes of one op.
struct RefusalKind {
  const Node* first;
  std::string reason;
  std::unordered_set<const Node*> nodes;
};

std::vector<RefusalKind> kinds_of(const std::vector<Refusal>& refusals) {
  std::vector<RefusalKind> kinds;
  for (const Refusal& refusal : refusals) {
    auto kind = std::ranges::find_if(kinds, [&](const RefusalKind& one) {
      return one.first->target() == refusal.node->target() && one.reason == refusal.reason;
    });
    if (kind == kinds.end()) kind = kinds.insert(kind, {refusal.node, refusal.reason, {}});
    kind->nodes.insert(refusal.node);  // a view is refused by each of those that read it
  }
  return kinds;
}

}  // namespace

Lowered lower_prepared(Graph& graph, const LowerOptions& options, graph::PassReport& report) {
  const graph::Fusion fusion = graph::find_chains(graph, engine_policy());
  report_chains(fusion, report);
  const bool bf16 = options.precision == LowerOptions::Precision::bf16;
  Lowered lowered = Lowerer(graph, bf16 ? DataType::bf16 : DataType::f32, fusion.chains).run();
  if (!lowered.refusals.empty()) return lowered;
  lowered.plan.batch_range = graph.batch_range;
  lowered.plan.metadata = options.metadata;
  lowered.plan.metadata["precision"] = bf16 ? "bf16" : "f32";
  lowered.plan.verify();
  return lowered;
}

void fail_with(const std::vector<Refusal>& refusals) {
  std::ostringstream out;
  size_t nodes = 0;
  ErrorInfo info{.code = ErrorCode::unsupported_op};
  for (const RefusalKind& kind : kinds_of(refusals)) {
    info.places.push_back(graph::error_place(*kind.first));
    out << (nodes > 0 ? "; " : "") << graph::describe(*kind.first);
    if (kind.nodes.size() > 1) out << " and " << kind.nodes.size() - 1 << " more";
    out << ": " << kind.reason;
    nodes += kind.nodes.size();
  }
  fail(std::move(info), "lower.lower", "expected ops that the engine has, got ", nodes,
       nodes == 1 ? " node" : " nodes", " that cannot be lowered: ", out.str(),
       ". lower_partitioned() runs such nodes in LibTorch");
}

}  // namespace ulp::lowering
