#include "ulp/runtime/engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>

#include "ulp/base/error.h"
#include "ulp/kernels/isa.h"
#include "ulp/runtime/arena.h"
#include "ulp/runtime/op.h"
#include "ulp/runtime/storage.h"
#include "ulp/runtime/thread_pool.h"

namespace ulp::runtime {
namespace {

/// Aligned memory that only grows. Large blocks ask for huge pages: an arena is touched end to end on every
/// run.
class Block {
 public:
  Block() = default;
  ~Block() { std::free(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

  void grow(size_t bytes) {
    if (bytes <= bytes_) return;
    constexpr size_t kHuge = size_t{2} << 20;
    const size_t alignment = bytes >= kHuge ? kHuge : kArenaAlignment;
    std::free(data_);
    data_ = nullptr;
    bytes_ = 0;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr) fail("runtime.Engine", "could not allocate ", bytes, " bytes for intermediates");
    if (alignment == kHuge) ::madvise(data_, rounded, MADV_HUGEPAGE);
    bytes_ = rounded;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

size_t physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size)
                               : std::numeric_limits<size_t>::max();
}

kernels::Isa choose_isa(const std::string& name) {
  if (name.empty()) return kernels::selected_isa();
  const kernels::Isa isa = kernels::isa_from_string(name);
  const std::vector<kernels::Isa> all = kernels::available_isas();
  if (std::ranges::find(all, isa) == all.end()) {
    fail("runtime.Engine", "expected an instruction set of this machine, got '", name, "'");
  }
  return isa;
}

/// Where a tensor is: in a caller's buffer or at an offset of the arena that grows with the batch.
struct Place {
  Storage::Owner owner = Storage::Owner::arena;
  size_t index = 0;
  size_t offset = 0;
};

struct PreparedStep {
  std::unique_ptr<Runner> runner;
  std::vector<int32_t> inputs;
  int32_t output = -1;
  bool nothing_to_do = false;  ///< an alias whose output is its input's memory
  std::vector<const void*> pointers;
};

std::string text_of(const TensorInfo& tensor) {
  return std::string(to_string(tensor.type)) + " " + shape_text(tensor.shape);
}

}  // namespace

struct Engine::State {
  std::vector<TensorInfo> tensors, inputs, outputs;
  std::vector<Step> steps;  ///< names and ops, for profiles
  std::vector<PreparedStep> prepared;
  std::vector<Place> places;    ///< one per tensor
  size_t arena_per_item = 0;    ///< offsets and this scale with the batch
  size_t largest_per_item = 0;  ///< of any tensor, bounds the batch
  size_t workspace = 0;         ///< bytes for planned_batch
  int64_t planned_batch = 0;
  Block block;
  size_t constant_bytes = 0;
  kernels::Isa isa = kernels::Isa::portable;
  std::unique_ptr<ThreadPool> pool;
  const Parallel* parallel = nullptr;

  State(const Plan& plan, const EngineOptions& options) {
    plan.verify();
    tensors = plan.tensors;
    steps = plan.steps;
    for (const int32_t t : plan.inputs) inputs.push_back(tensors[static_cast<size_t>(t)]);
    for (const int32_t t : plan.outputs) outputs.push_back(tensors[static_cast<size_t>(t)]);
    for (const auto& [name, constant] : plan.constants) constant_bytes += constant.bytes.size();
    isa = choose_isa(options.isa);
    if (options.parallel == nullptr) pool = std::make_unique<ThreadPool>(options.threads);
    parallel = options.parallel == nullptr ? pool.get() : options.parallel;
    place_tensors(plan);
    prepare_steps(plan);
  }

  void place_tensors(const Plan& plan) {
    const StoragePlan storage = assign_storage(plan);
    std::vector<ArenaBuffer> buffers;
    for (const Storage& s : storage.storages) {
      // Callers' buffers take no room; keeping their place keeps the indices equal.
      buffers.push_back({s.owner == Storage::Owner::arena ? s.bytes : 0, s.first, s.last});
      largest_per_item = std::max(largest_per_item, s.bytes);
    }
    const ArenaLayout layout = plan_arena(buffers);
    arena_per_item = layout.total;
    places.resize(tensors.size());
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (storage.of_tensor[t] < 0) continue;
      const auto id = static_cast<size_t>(storage.of_tensor[t]);
      places[t] = {storage.storages[id].owner, storage.storages[id].index, layout.offsets[id]};
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      const Step& step = steps[s];
      PreparedStep ready;
      ready.inputs = step.inputs;
      ready.output = step.output;
      ready.pointers.resize(step.inputs.size());
      ready.nothing_to_do = op_def(step.op).sharing(StepView(plan, step, s)) == Sharing::alias &&
                            storage.of_tensor[static_cast<size_t>(step.inputs[0])] ==
                                storage.of_tensor[static_cast<size_t>(step.output)];
      prepared.push_back(std::move(ready));
    }
  }

  void prepare_steps(const Plan& plan) {
    for (size_t s = 0; s < prepared.size(); ++s) {
      const StepView view(plan, plan.steps[s], s);
      prepared[s].runner = op_def(plan.steps[s].op).prepare(view, isa);
    }
  }

  void plan_batch(int64_t batch) {
    if (batch == planned_batch) return;
    const size_t limit = physical_memory();
    const size_t per_item = std::max<size_t>(std::max(arena_per_item, largest_per_item), 1);
    if (static_cast<size_t>(batch) > limit / per_item) {
      fail("runtime.Engine",
           "expected a batch whose intermediates fit the memory of this machine, got batch ", batch, " with ",
           per_item, " bytes per item");
    }
    size_t needed = 0;
    for (const PreparedStep& step : prepared) {
      needed = std::max(needed, step.runner->workspace_bytes(batch, parallel->workers()));
    }
    if (needed > limit)
      fail("runtime.Engine", "the kernels need ", needed, " bytes of scratch for batch ", batch);
    planned_batch = 0;
    block.grow(static_cast<size_t>(batch) * arena_per_item + align_up(needed));
    workspace = needed;
    planned_batch = batch;
  }

  /// The memory of a tensor in this run.
  std::byte* address(int32_t tensor, std::span<const void* const> in, std::span<void* const> out) const {
    const Place& place = places[static_cast<size_t>(tensor)];
    switch (place.owner) {
      case Storage::Owner::caller_input:
        // Never written: no op may take over a caller's input in place.
        return const_cast<std::byte*>(static_cast<const std::byte*>(in[place.index]));
      case Storage::Owner::caller_output:
        return static_cast<std::byte*>(out[place.index]);
      default:
        return block.data() + place.offset * static_cast<size_t>(planned_batch);
    }
  }

  void run_step(PreparedStep& step, std::span<const void* const> in, std::span<void* const> out) const {
    if (step.nothing_to_do) return;
    for (size_t i = 0; i < step.inputs.size(); ++i) step.pointers[i] = address(step.inputs[i], in, out);
    std::byte* scratch = block.data() + arena_per_item * static_cast<size_t>(planned_batch);
    step.runner->run({planned_batch, step.pointers, address(step.output, in, out), scratch, *parallel});
  }

  void check_call(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    if (batch < 1) fail("runtime.Engine.run", "expected a batch of at least 1, got ", batch);
    if (in.size() != inputs.size() || out.size() != outputs.size()) {
      fail("runtime.Engine.run", "expected ", inputs.size(), " inputs and ", outputs.size(), " outputs, got ",
           in.size(), " and ", out.size());
    }
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] == nullptr) {
        fail("runtime.Engine.run", "expected a buffer for input ", i, " '", inputs[i].name, "' (",
             text_of(inputs[i]), "), got null");
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] == nullptr) {
        fail("runtime.Engine.run", "expected a buffer for output ", i, " '", outputs[i].name, "' (",
             text_of(outputs[i]), "), got null");
      }
    }
  }
};

Engine::Engine(const std::filesystem::path& path, const EngineOptions& options)
    : Engine(Plan::load(path), options) {}
Engine::Engine(const Plan& plan, const EngineOptions& options)
    : state_(std::make_unique<State>(plan, options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const std::vector<TensorInfo>& Engine::inputs() const {
  return state_->inputs;
}
const std::vector<TensorInfo>& Engine::outputs() const {
  return state_->outputs;
}
size_t Engine::arena_bytes() const {
  return state_->block.bytes();
}
size_t Engine::constant_bytes() const {
  return state_->constant_bytes;
}
int Engine::threads() const {
  return state_->parallel->workers();
}
std::string Engine::isa() const {
  return kernels::to_string(state_->isa);
}

void Engine::reserve(int64_t batch) {
  if (batch < 1) fail("runtime.Engine.reserve", "expected a batch of at least 1, got ", batch);
  state_->plan_batch(batch);
}

void Engine::run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs) {
  state_->check_call(batch, inputs, outputs);
  state_->plan_batch(batch);
  for (PreparedStep& step : state_->prepared) state_->run_step(step, inputs, outputs);
}

std::vector<StepProfile> Engine::profile(int64_t batch, std::span<const void* const> inputs,
                                         std::span<void* const> outputs) {
  using Clock = std::chrono::steady_clock;
  state_->check_call(batch, inputs, outputs);
  state_->plan_batch(batch);
  std::vector<StepProfile> profile;
  for (size_t s = 0; s < state_->prepared.size(); ++s) {
    PreparedStep& step = state_->prepared[s];
    const Clock::time_point start = Clock::now();
    state_->run_step(step, inputs, outputs);
    const std::chrono::duration<double> took = Clock::now() - start;
    profile.push_back({state_->steps[s].name, to_string(state_->steps[s].op),
                       step.nothing_to_do ? "none" : step.runner->kernel(),
                       text_of(state_->tensors[static_cast<size_t>(step.output)]), took.count()});
  }
  return profile;
}

}  // namespace ulp::runtime
