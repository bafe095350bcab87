#include "ulp/lower/partitioned_model.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/extract.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/torch_parallel.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/example_sizes.h"
#include "ulp/lower/partition_lowering.h"
#include "ulp/lower/prepare_graph.h"

namespace ulp {
namespace lowering {
namespace {

/// Engines split their work as LibTorch does.
runtime::EngineOptions with_threads(const runtime::EngineOptions& options) {
  static const libtorch::TorchParallel torch_threads;
  runtime::EngineOptions own = options;
  if (own.parallel == nullptr && own.threads == 0) own.parallel = &torch_threads;
  return own;
}

/// A value of the graph at run time: which slot, and its dtype where an engine makes it.
struct Result {
  size_t slot;
  std::optional<at::ScalarType> dtype;
};

/// What an engine has made in the type that the graph has. Signed codes are held as unsigned ones, moved by
/// 128.
at::Tensor in_type(const at::Tensor& made, at::ScalarType dtype) {
  if (made.scalar_type() == at::kByte && dtype == at::kChar)
    return at::sub(made.to(at::kShort), 128).to(at::kChar);
  return made.to(dtype);
}

/// One piece, ready to run: an engine, or a module of LibTorch's.
struct RunnablePiece {
  PartitionInfo info;
  std::unique_ptr<runtime::Engine> engine;
  std::shared_ptr<graph::GraphModule> module;
  std::vector<size_t> inputs;
  std::vector<Result> results;
  std::vector<size_t> last_reads;  ///< slots that no later piece reads

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given) const {
    return engine ? run_engine_all(*engine, given) : module->forward_all(given);
  }
};

/// Gives the modes back that a model's submodules have now: LibTorch's pieces share them.
class KeptModes {
 public:
  explicit KeptModes(torch::nn::Module& model) {
    for (const auto& module : model.modules()) modes_.emplace_back(module.get(), module->is_training());
  }
  ~KeptModes() {
    for (const auto& [module, training] : modes_)
      module->train(training);  // children come after their parents
  }
  KeptModes(const KeptModes&) = delete;
  KeptModes& operator=(const KeptModes&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

}  // namespace
}  // namespace lowering

struct PartitionedModel::State {
  std::shared_ptr<graph::GraphModule> whole;  ///< the prepared graph, which the pieces are of
  std::vector<lowering::RunnablePiece> pieces;
  std::unordered_map<const graph::Value*, size_t> slots;
  std::vector<at::Tensor> fixed;  ///< by slot: what is known before a run
  std::vector<size_t> inputs, results;

  size_t slot(const graph::Value* value) {
    const auto [at, fresh] = slots.try_emplace(value, slots.size());
    if (fresh) fixed.push_back(whole->graph().attribute_tensor(value));
    return at->second;
  }

  void add(const lowering::PartitionLowering& cutter, size_t index, const runtime::EngineOptions& options) {
    const lowering::Cut& cut = cutter.cuts()[index];
    lowering::RunnablePiece& piece = pieces.emplace_back();
    piece.info.engine = !cut.foreign;
    piece.info.nodes = static_cast<int64_t>(cut.nodes.size());
    std::vector<const graph::Value*> reads = cut.inputs;
    if (cut.foreign) add_batch(reads);
    for (const graph::Value* value : reads) piece.inputs.push_back(slot(value));
    for (const graph::Value* value : cut.results) {
      piece.results.push_back({slot(value), value->meta ? std::optional(value->meta->dtype) : std::nullopt});
    }
    for (const graph::Value* value : cut.inputs) piece.info.inputs.push_back(value->name);
    for (const graph::Value* value : cut.results) piece.info.results.push_back(value->name);
    if (cut.foreign) {
      for (const graph::Node* node : cut.nodes) {
        const auto why = cutter.foreign().find(node);
        if (why != cutter.foreign().end()) piece.info.why.push_back(describe(*node) + ": " + why->second);
      }
      const std::shared_ptr<graph::Graph> part =
          graph::extract(whole->graph(), cut.nodes, reads, cut.results).graph;
      loosen_views(*part);
      piece.module = std::make_shared<graph::GraphModule>(part);
      piece.module->eval();
    } else {
      piece.engine = std::make_unique<runtime::Engine>(cutter.plan(index), options);
    }
  }

  /// Engines have no strides, so the calls that made a tensor contiguous are gone: a view of it may have to
  /// be a copy.
  static void loosen_views(graph::Graph& part) {
    for (const auto& node : part.nodes()) {
      if (node->is("aten::view") && !node->is("aten::view.dtype"))
        part.retarget(node.get(), "aten::reshape", node->args);
    }
  }

  /// Sizes that follow the batch need an input that has it.
  void add_batch(std::vector<const graph::Value*>& reads) const {
    const graph::Graph& graph = whole->graph();
    const std::vector<graph::Value*> all = std::as_const(graph).inputs();
    for (size_t i = 0; i < all.size(); ++i) {
      if (graph.batch_dims[i] < 0) continue;
      if (std::ranges::find(reads, all[i]) == reads.end()) reads.push_back(all[i]);
      return;
    }
  }

  /// To be called when all pieces are there: each value goes after the last piece that reads it.
  void free_early() {
    std::vector<bool> kept(slots.size(), false);
    for (const size_t slot : results) kept[slot] = true;
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
      for (const size_t slot : piece->inputs) {
        if (!kept[slot]) piece->last_reads.push_back(slot);
        kept[slot] = true;
      }
    }
  }

  /// The inputs of a run, of the captured dtypes, in their slots beside what is fixed.
  std::vector<at::Tensor> first_values(const std::vector<at::Tensor>& given) const {
    whole->check_inputs(given);
    const graph::Graph& graph = whole->graph();
    const std::vector<graph::Value*> expected = graph.inputs();
    std::vector<at::Tensor> values = fixed;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int64_t dim = graph.batch_dims[i];
      if (dim >= 0 && given[i].size(dim) == 0) {
        fail("lower.PartitionedModel.run", "expected a batch of at least 1 in '", expected[i]->name,
             "', got 0");
      }
      values[inputs[i]] = expected[i]->meta ? given[i].to(expected[i]->meta->dtype) : given[i];
    }
    return values;
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& given,
                              std::vector<PartitionInfo>* profile) const {
    using Clock = std::chrono::steady_clock;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> values = first_values(given);
    for (const lowering::RunnablePiece& piece : pieces) {
      const Clock::time_point start = Clock::now();
      std::vector<at::Tensor> reads;
      for (const size_t slot : piece.inputs) reads.push_back(values[slot]);
      std::vector<at::Tensor> made = piece.run(reads);
      for (size_t i = 0; i < made.size(); ++i) {
        const lowering::Result& result = piece.results[i];
        values[result.slot] =
            result.dtype && piece.engine ? lowering::in_type(made[i], *result.dtype) : made[i];
      }
      for (const size_t slot : piece.last_reads) values[slot].reset();
      if (profile == nullptr) continue;
      PartitionInfo& info = profile->emplace_back(piece.info);
      info.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      for (const std::vector<at::Tensor>* tensors : {&reads, &made}) {
        for (const at::Tensor& tensor : *tensors) info.bytes += static_cast<int64_t>(tensor.nbytes());
      }
    }
    std::vector<at::Tensor> out;
    for (const size_t slot : results) out.push_back(values[slot]);
    return out;
  }
};

PartitionedModel::State& PartitionedModel::state() const {
  if (!state_) fail("lower.PartitionedModel", "expected a model, got one that was moved from");
  return *state_;
}

PartitionedModel::PartitionedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
PartitionedModel::~PartitionedModel() = default;
PartitionedModel::PartitionedModel(PartitionedModel&&) noexcept = default;
PartitionedModel& PartitionedModel::operator=(PartitionedModel&&) noexcept = default;

std::vector<at::Tensor> PartitionedModel::run(const std::vector<at::Tensor>& inputs) {
  return state().run(inputs, nullptr);
}

std::vector<PartitionInfo> PartitionedModel::profile(const std::vector<at::Tensor>& inputs) {
  std::vector<PartitionInfo> profile;
  state().run(inputs, &profile);
  return profile;
}

std::vector<PartitionInfo> PartitionedModel::partitions() const {
  std::vector<PartitionInfo> all;
  for (const lowering::RunnablePiece& piece : state().pieces) all.push_back(piece.info);
  return all;
}

PartitionedModel lower_partitioned(graph::GraphModule& model, const LowerOptions& options,
                                   const runtime::EngineOptions& engine) {
  if (const auto& free = std::as_const(model).graph().free; !free.empty())
    fail("lower.lower_partitioned",
         "expected a graph without free dimensions, which pieces do not have, got '", free[0].name,
         "': lower() takes it where the engine has all of its ops, and the graph runs in LibTorch");
  const lowering::KeptModes kept(model);
  const std::shared_ptr<graph::Graph> graph = model.graph().clone();
  std::vector<graph::PassReport> unread;
  lowering::KnownWindows windows;
  lowering::prepare_graph(*graph, unread, windows);
  const lowering::PartitionLowering cutter(*graph, options);
  auto state = std::make_unique<PartitionedModel::State>();
  state->whole = std::make_shared<graph::GraphModule>(graph);
  for (const graph::Value* value : graph->inputs()) state->inputs.push_back(state->slot(value));
  for (size_t i = 0; i < cutter.cuts().size(); ++i) state->add(cutter, i, lowering::with_threads(engine));
  for (const graph::Value* value : lowering::result_values(*graph))
    state->results.push_back(state->slot(value));
  state->free_early();
  return PartitionedModel(std::move(state));
}

PartitionedModel lower_partitioned(const std::shared_ptr<graph::GraphModule>& model,
                                   const std::vector<at::Tensor>& examples, const LowerOptions& options,
                                   const runtime::EngineOptions& engine) {
  constexpr const char* kWhere = "lower.lower_partitioned";
  if (model == nullptr) fail(kWhere, "expected a model, got null");
  if (std::as_const(*model).graph().free.empty()) return lower_partitioned(*model, options, engine);
  const lowering::KeptModes kept(*model);
  const std::shared_ptr<graph::Graph> copy = model->graph().clone();
  std::vector<int64_t> sizes;
  if (examples.empty()) {
    for (const graph::DynamicDimension& free : copy->free)
      sizes.push_back(free.max / free.multiple * free.multiple);
  } else {
    sizes = lowering::example_sizes(*copy, examples, kWhere);
  }
  copy->fix_free(sizes);
  return lower_partitioned(*std::make_shared<graph::GraphModule>(copy), options, engine);
}

}  // namespace ulp
