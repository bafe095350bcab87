#include "ulp/lower/incremental_decoding.h"

#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::lowering {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::Plan;

constexpr const char* kContinuedWhere = "lower.lower";

/// The rows of a table for every sample: a graph begins at position 0.
at::Tensor from_position(const at::Tensor& table, const at::Tensor& sample, int64_t dim) {
  const at::Tensor rows = rows_by_position(table, dim);
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes.insert(sizes.begin(), sample.size(0));
  return rows.unsqueeze(0).expand(sizes);
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("from_position(Tensor table, Tensor sample, int dim) -> Tensor");
}
TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("from_position", from_position);
}

size_t index_of(const Graph& graph, const std::string& dimension) {
  const auto at = std::ranges::find(graph.free, dimension, &graph::DynamicDimension::name);
  if (at == graph.free.end())
    fail(kContinuedWhere, "expected a free dimension of the graph as LowerOptions::continued, got '",
         dimension, "'; CaptureOptions::free makes one");
  return static_cast<size_t>(at - graph.free.begin());
}

/// The dimension of a table that has the size and nothing else that follows it; -1 where there is none or are
/// several.
int64_t position_dim(const Value& value, const graph::SizeExpr& size) {
  int64_t found = -1;
  for (size_t d = 0; value.meta && d < value.meta->sizes.size(); ++d) {
    const graph::SizeExpr& own = value.meta->sizes[d];
    if (found < 0 && own.constant() && own.offset != 1) return -1;  // the position comes first
    if (own.constant()) continue;
    if (!(own == size) || found >= 0) return -1;
    found = static_cast<int64_t>(d);
  }
  return found;
}

/// Values that come from inputs.
std::unordered_set<const Value*> sample_values(const Graph& graph) {
  std::unordered_set<const Value*> found;
  for (const auto& node : graph.nodes()) {
    const bool input = node->kind() == Node::Kind::input;
    const bool reads = std::ranges::any_of(node->reads(), [&](const Value* v) { return found.contains(v); });
    if (!input && !reads) continue;
    for (const auto& value : node->outputs()) found.insert(value.get());
  }
  return found;
}

/// Polynomials of the plan by path.
const Polynomial* following(const Plan& plan, const std::string& path) {
  const auto at = std::ranges::find(plan.following.numbers, path, &runtime::SymbolicNumber::path);
  return at == plan.following.numbers.end() ? nullptr : &at->value;
}

bool follows(const Polynomial& polynomial, size_t size) {
  return std::ranges::any_of(polynomial.terms, [&](const Polynomial::Term& term) {
    return term.powers.size() > size && term.powers[size] > 0;
  });
}

/// Whether a tensor's dimension follows the size.
bool follows(const Plan& plan, int32_t tensor, size_t dim, size_t size) {
  const Polynomial* polynomial =
      following(plan, "/tensors/" + std::to_string(tensor) + "/shape/" + std::to_string(dim));
  return polynomial != nullptr && follows(*polynomial, size);
}

size_t index_of(const Plan& plan, const std::string& dimension) {
  const auto at = std::ranges::find(plan.following.free, dimension, &DynamicDimension::name);
  return static_cast<size_t>(at - plan.following.free.begin());
}

/// Whether the rows of a tensor's items (TensorInfo::times) follow the size.
bool rows_follow(const Plan& plan, int32_t tensor, size_t size) {
  const Polynomial* polynomial = following(plan, "/tensors/" + std::to_string(tensor) + "/times");
  return polynomial != nullptr && follows(*polynomial, size);
}

/// The plan for the batch of this check, whatever the model takes.
Plan of_any_batch(Plan plan) {
  plan.batch_range = {};
  return plan;
}

/// One context that runs parts of an input, and what came out.
class PositionRunner {
 public:
  PositionRunner(const Plan& plan, const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& dims)
      : engine_(of_any_batch(plan), {.threads = 1}), name_(plan.continued), inputs_(inputs), dims_(dims) {
    const size_t size = index_of(plan, name_);
    for (const int32_t output : plan.outputs) rows_follow_.push_back(rows_follow(plan, output, size));
  }

  /// The results for these positions.
  std::vector<at::Tensor> run(int64_t first, int64_t count) {
    engine_.set_sizes({{name_, count}});
    std::vector<at::Tensor> given, results;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      given.push_back(dims_[i] < 0 ? inputs_[i] : inputs_[i].narrow(dims_[i], first, count).contiguous());
      in.push_back(given.back().const_data_ptr());
    }
    for (const runtime::TensorInfo& info : engine_.outputs()) {
      results.push_back(torch::empty(sizes_at(info, kBatch), type_of(info.type)));
      out.push_back(results.back().mutable_data_ptr());
    }
    engine_.run(kBatch, in, out);
    for (size_t i = 0; i < results.size(); ++i)
      results[i] = by_position(results[i].to(at::kDouble), i, count);
    return results;
  }

  /// Rows of the batch with the positions as a dimension of their own, before or behind the batch.
  at::Tensor by_position(const at::Tensor& result, size_t output, int64_t count) const {
    const runtime::TensorInfo& info = engine_.outputs()[output];
    if (!rows_follow_[output]) return result;
    if (info.times != count)
      fail(kContinuedWhere, "expected one row of '", info.name, "' for each position along '", name_,
           "', got ", info.times, " for ", count);
    return result.unflatten(
        static_cast<int64_t>(batch_dimension(info).value()),
        info.outer > 1 ? std::vector<int64_t>{count, kBatch} : std::vector<int64_t>{kBatch, count});
  }

  static constexpr int64_t kBatch = 2;
  static at::ScalarType type_of(runtime::DataType type) {
    switch (type) {
      case runtime::DataType::i64:
        return at::kLong;
      case runtime::DataType::i32:
        return at::kInt;
      case runtime::DataType::u8:
        return at::kByte;
      case runtime::DataType::bf16:
        return at::kBFloat16;
      default:
        return at::kFloat;
    }
  }

 private:
  runtime::Engine engine_;
  std::string name_;
  const std::vector<at::Tensor>& inputs_;
  const std::vector<int64_t>& dims_;
  std::vector<bool> rows_follow_;  ///< one an output
};

/// The last position of a result, which may hold all of them along one dimension or none.
at::Tensor last_of(const at::Tensor& result, int64_t dim) {
  return dim < 0 ? result : result.select(dim, result.size(dim) - 1);
}

/// The dimension of a tensor of the plan that follows the size; -1 for none.
int64_t following_dim(const Plan& plan, int32_t tensor, size_t size) {
  const runtime::TensorInfo& info = plan.tensors[static_cast<size_t>(tensor)];
  for (size_t d = 0; d < info.shape.size(); ++d) {
    if (follows(plan, tensor, d, size)) return static_cast<int64_t>(d);
  }
  return -1;
}

/// A call's value with these sizes.
Value* call(Graph& graph, const char* op, std::vector<graph::Argument> args,
            std::vector<graph::SizeExpr> sizes, at::ScalarType dtype, Node* before) {
  Node* node = graph.call(op, std::move(args), before);
  node->scope = before->scope;
  node->output()->meta = graph::TensorMeta{.dtype = dtype, .sizes = std::move(sizes), .channels_last = false};
  return node->output();
}

/// Lets a node read a table by position: as a value of the samples, with as many dimensions as the node's
/// others.
void read_rows(Graph& graph, Node& user, Value* table, int64_t dim) {
  size_t rank = 0;
  for (const Value* value : user.reads()) rank = std::max(rank, value->meta ? value->meta->sizes.size() : 0);
  std::vector<graph::SizeExpr> sizes(table->meta->sizes.begin() + dim, table->meta->sizes.end());
  sizes.insert(sizes.begin(), {1, 1, 0});
  const at::ScalarType dtype = table->meta->dtype;
  Value* sample = graph.inputs().front();
  Value* rows = call(graph, "ulp::from_position", {table, sample, c10::IValue(dim)}, sizes, dtype, &user);
  while (sizes.size() < rank) {
    sizes.insert(sizes.begin() + 1, {0, 1, 1});
    rows = call(graph, "aten::unsqueeze", {rows, c10::IValue(int64_t{1})}, sizes, dtype, &user);
  }
  for (graph::Argument& argument : user.args) {
    if (argument.value == table) argument.value = rows;
    for (graph::Argument& item : argument.items) {
      if (item.value == table) item.value = rows;
    }
  }
}

/// Several positions, then the fewest that a run may have, twice where they fit; nothing where no two runs
/// do.
std::vector<int64_t> parts_of(int64_t least, int64_t step, int64_t most) {
  const int64_t head = std::max(least, std::min(4 * step, most - 2 * least));
  if (head + 2 * least <= most) return {head, least, least};
  return 2 * least <= most ? std::vector<int64_t>{least, least} : std::vector<int64_t>();
}

/// True for a value of this rank whose dimensions before the last `kept` are 1.
bool is_one_row(const Value& value, size_t kept) {
  const auto& meta = value.meta;
  return meta && meta->sizes.size() >= kept &&
         std::all_of(meta->sizes.begin(), meta->sizes.end() - static_cast<std::ptrdiff_t>(kept),
                     [](const graph::SizeExpr& size) {
                       return size == graph::SizeExpr{0, 1, 1};
                     });
}

/// True for a call that gives the same for a row as for as many as there are samples: sums and products with
/// what has its sizes.
bool spreads_rows(const Node& node, const Value* rows) {
  const bool known =
      node.is("aten::add") || node.is("aten::sub") || node.is("aten::mul") || node.is("aten::div");
  if (!known || node.args.size() < 2 || !node.args[0].is_value() || !node.args[1].is_value()) return false;
  const Value* other = node.args[node.args[0].value == rows ? 1 : 0].value;
  return other != rows && other->meta && rows->meta && other->meta->sizes == rows->meta->sizes;
}

/// Positions that were repeated for every sample before their embeddings were looked up are looked up once.
void look_up_once(Graph& graph, const std::unordered_set<const Value*>& samples) {
  for (const auto& node : graph.nodes()) {
    if (!node->is("aten::embedding") || !node->args[1].is_value()) continue;
    const Value* ids = node->args[1].value;
    const Node& spread = *ids->producer;
    const bool repeats =
        spread.is("aten::expand") || spread.is("aten::expand_as") || spread.is("aten::repeat");
    if (!repeats || !ids->meta || ids->meta->sizes.size() != 2) continue;
    Value* row = spread.args[0].value;
    const bool whole = is_one_row(*row, 1) && row->meta->sizes.back() == ids->meta->sizes.back();
    if (!whole || samples.contains(row) || row->meta->sizes.size() > 2) continue;
    Value* made = node->output();
    const std::vector<Node*> readers = graph.users(made);
    if (!std::ranges::all_of(readers, [&](const Node* user) { return spreads_rows(*user, made); })) continue;
    std::vector<graph::SizeExpr> sizes = row->meta->sizes;
    sizes.push_back(made->meta->sizes.back());
    node->args[1] = row;
    made->meta->sizes = std::move(sizes);
  }
}

/// ", which step 'scores' reads"
std::string reader_text(const Plan& plan, const std::string& constant) {
  for (const runtime::Step& step : plan.steps) {
    for (const auto& [role, name] : step.constants) {
      if (name != constant) continue;
      if (step.op != runtime::Op::constant) return ", which step '" + step.name + "' reads";
      for (const runtime::Step& user : plan.steps) {
        if (std::ranges::count(user.inputs, step.output) > 0) return ", which step '" + user.name + "' reads";
      }
    }
  }
  return {};
}

}  // namespace

at::Tensor rows_by_position(const at::Tensor& table, int64_t dim) {
  return table.reshape(table.sizes().slice(static_cast<size_t>(dim)));
}

void mark_positions(Graph& graph, const std::string& dimension) {
  const size_t index = index_of(graph, dimension);
  if (graph.batch_dims.empty() || graph.batch_dims[0] != 0)
    fail(kContinuedWhere,
         "expected the batch as dimension 0 of the first input with LowerOptions::continued");
  std::vector<int32_t> powers(index + 2, 0);
  powers.back() = 1;
  const graph::SizeExpr size{.rest = {{{1, 1, powers}}}};
  look_up_once(graph, sample_values(graph));
  const std::unordered_set<const Value*> samples = sample_values(graph);
  std::unordered_set<Value*> tables;
  for (const auto& node : graph.nodes()) {
    const bool meets =
        std::ranges::any_of(node->reads(), [&](const Value* v) { return samples.contains(v); });
    for (Value* value : node->reads()) {
      if (meets && !samples.contains(value) && position_dim(*value, size) >= 0) tables.insert(value);
    }
  }
  for (Value* table : tables) {
    for (Node* user : graph.users(table)) {
      const std::vector<Value*> reads = user->reads();
      if (std::ranges::any_of(reads, [&](const Value* v) { return samples.contains(v); }))
        read_rows(graph, *user, table, position_dim(*table, size));
    }
  }
}

void keep_keys(Plan& plan, const std::string& dimension) {
  const size_t size = index_of(plan, dimension);
  const int64_t largest = plan.following.free[size].max;
  for (runtime::Step& step : plan.steps) {
    if (step.op == runtime::Op::constant && step.get<runtime::ConstantAttributes>().rows > 0) {
      plan.following.corners.erase(step.constants.at("value"));
      continue;
    }
    if (step.op != runtime::Op::attention || !follows(plan, step.inputs[1], 1, size)) continue;
    auto& own = step.get<runtime::AttentionAttributes>();
    if (!own.causal || step.inputs.size() > 3 || !follows(plan, step.inputs[0], 1, size)) {
      fail(kContinuedWhere, "expected causal attention along '", dimension, "' without a mask, got step '",
           step.name, "', which looks at later positions, or at masked ones");
    }
    const std::string place = "/steps/" + std::to_string(&step - plan.steps.data());
    if (following(plan, place + "/window") != nullptr)
      fail(kContinuedWhere, "expected a window of one size along '", dimension, "', got step '", step.name,
           "', whose window follows it");
    own.kept = largest;
  }
  for (const auto& [name, sizes] : plan.following.corners) {
    for (const Polynomial& polynomial : sizes) {
      if (follows(polynomial, size))
        fail(kContinuedWhere, "expected what follows '", dimension,
             "' to be a table by position, got a constant of more", reader_text(plan, name),
             ": attention continues with what comes later hidden and with sliding windows, not with other "
             "masks or "
             "numbers for each pair of positions");
    }
  }
  plan.continued = dimension;
}

void check_continued(const Plan& plan) {
  const size_t size = index_of(plan, plan.continued);
  const int64_t most = plan.following.free[size].max, step = plan.following.free[size].multiple;
  const int64_t least = (plan.following.free[size].min + step - 1) / step * step;
  const std::vector<int64_t> parts = parts_of(least, step, most);
  if (parts.empty()) return;  // no two runs fit
  std::vector<at::Tensor> inputs;
  std::vector<int64_t> dims;
  const int64_t all = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (const int32_t input : plan.inputs) {
    const runtime::TensorInfo& info = plan.tensors[static_cast<size_t>(input)];
    std::vector<int64_t> shape = sizes_at(info, PositionRunner::kBatch);
    dims.push_back(following_dim(plan, input, size));
    if (dims.back() >= 0) shape[static_cast<size_t>(dims.back())] = all;
    const at::ScalarType type = PositionRunner::type_of(info.type);
    // Ids 0 and 1, which every table of two rows has.
    inputs.push_back(type == at::kFloat ? torch::randn(shape) : torch::randint(0, 2, shape, type));
  }
  PositionRunner whole(plan, inputs, dims), cut(plan, inputs, dims);
  const std::vector<at::Tensor> expected = whole.run(0, all);
  std::vector<at::Tensor> got;
  int64_t first = 0;
  for (const int64_t part : parts) {
    got = cut.run(first, part);
    first += part;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const runtime::TensorInfo& info = plan.tensors[static_cast<size_t>(plan.outputs[i])];
    int64_t dim = following_dim(plan, plan.outputs[i], size);
    if (rows_follow(plan, plan.outputs[i], size))
      dim = static_cast<int64_t>(batch_dimension(info).value()) + (info.outer > 1 ? 0 : 1);
    const at::Tensor a = last_of(expected[i], dim), b = last_of(got[i], dim);
    const double largest = a.abs().max().item<double>(), apart = (a - b).abs().max().item<double>();
    const bool rounded = plan.metadata.contains("precision") && plan.metadata.at("precision") == "bf16";
    if (!(apart <= largest * (rounded ? 0.1 : 1e-2)))
      fail(kContinuedWhere, "expected a network that only looks back along '", plan.continued,
           "', got results that differ by ", apart, " of ", largest, " between ", all,
           " positions at once and one after the other");
  }
}

}  // namespace ulp::lowering
