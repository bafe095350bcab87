#include "ulp/runtime/engine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/isa.h"
#include "ulp/runtime/arena.h"
#include "ulp/runtime/block.h"
#include "ulp/runtime/op.h"
#include "ulp/runtime/storage.h"
#include "ulp/runtime/thread_pool.h"

namespace ulp::runtime {
namespace {

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
};

constexpr size_t kMaxInputs = 8;

/// Batches of at least this many items per worker are cut into slices, each computed from end to end by one
/// worker: no waiting between steps, and the intermediates of a slice stay in the worker's cache.
constexpr int64_t kItemsToSlice = 4;
constexpr int64_t kSmallestSlice = 4;  // weights are read once per slice
constexpr int64_t kLargestSlice = 256;

/// Part of the engine's memory that one run of the steps computes in: room for `capacity` items, then
/// scratch.
struct Region {
  std::byte* base = nullptr;
  int64_t capacity = 0;
};

/// The caller's buffers, from item `first` on, `count` items.
struct Items {
  std::span<const void* const> in;
  std::span<void* const> out;
  int64_t first = 0, count = 0;
};

size_t cache_budget() {
  const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (bytes > 0 ? static_cast<size_t>(bytes) : size_t{1} << 20) / 4 * 3;
}

size_t item_bytes(const TensorInfo& tensor) {
  size_t bytes = element_size(tensor.type);
  for (size_t d = 1; d < tensor.shape.size(); ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

std::string text_of(const TensorInfo& tensor) {
  return std::string(to_string(tensor.type)) + " " + shape_text(tensor.shape);
}

}  // namespace

struct Engine::State {
  std::vector<TensorInfo> tensors, inputs, outputs;
  std::vector<Step> steps;  ///< names and ops, for profiles
  std::vector<PreparedStep> prepared;
  std::vector<Place> places;               ///< one per tensor
  size_t arena_per_item = 0;               ///< offsets and this scale with the batch
  size_t largest_per_item = 0;             ///< of any tensor, bounds the batch
  int64_t largest_slice = kSmallestSlice;  ///< items whose intermediates fit a worker's cache
  bool sliceable = true;                   ///< items are independent of each other
  int64_t planned_batch = 0;               ///< the memory is enough for this batch and for smaller ones
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
    for (const TensorInfo& tensor : tensors) sliceable = sliceable && tensor.shape.size() > 1;
    const size_t budget = cache_budget();
    while (largest_slice < kLargestSlice && region_bytes(2 * largest_slice, 1) <= budget) largest_slice *= 2;
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
      if (step.inputs.size() > kMaxInputs) {
        fail("runtime.Engine", "expected at most ", kMaxInputs, " inputs in step '", step.name, "', got ",
             step.inputs.size());
      }
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

  size_t workspace_bytes(int64_t items, int workers) const {
    size_t bytes = 0;
    for (const PreparedStep& step : prepared) {
      bytes = std::max(bytes, step.runner->workspace_bytes(items, workers));
    }
    return bytes;
  }

  /// Bytes of a region for so many items whose steps are spread over `workers`.
  size_t region_bytes(int64_t items, int workers) const {
    return static_cast<size_t>(items) * arena_per_item + align_up(workspace_bytes(items, workers));
  }

  bool slices(int64_t batch) const { return sliceable && batch >= kItemsToSlice * parallel->workers(); }

  /// Items that a region must hold for this batch; grows with the batch.
  int64_t slice_capacity(int64_t batch) const {
    const int64_t workers = parallel->workers();
    return std::min(largest_slice, (batch + workers - 1) / workers);
  }

  /// Makes sure of the memory for run() with this batch or a smaller one.
  void plan_batch(int64_t batch) {
    if (batch <= planned_batch) return;
    const size_t limit = physical_memory();
    const size_t per_item = std::max<size_t>(std::max(arena_per_item, largest_per_item), 1);
    if (static_cast<size_t>(batch) > limit / per_item) {
      fail("runtime.Engine",
           "expected a batch whose intermediates fit the memory of this machine, got batch ", batch, " with ",
           per_item, " bytes per item");
    }
    const int workers = parallel->workers();
    const int64_t whole =
        slices(batch) ? kItemsToSlice * workers - 1 : batch;  // the largest batch run unsliced
    size_t needed = region_bytes(whole, workers);
    if (slices(batch)) {
      needed = std::max(needed, static_cast<size_t>(workers) * region_bytes(slice_capacity(batch), 1));
    }
    grow(needed, limit, batch);
    planned_batch = batch;
  }

  void grow(size_t needed, size_t limit, int64_t batch) {
    if (needed > limit) fail("runtime.Engine", "batch ", batch, " needs ", needed, " bytes of intermediates");
    if (needed > block.bytes()) planned_batch = 0;
    block.grow(needed);
  }

  /// The memory of a tensor in this run.
  std::byte* address(int32_t tensor, const Region& region, const Items& items) const {
    const Place& place = places[static_cast<size_t>(tensor)];
    const auto first = static_cast<size_t>(items.first);
    switch (place.owner) {
      case Storage::Owner::caller_input:
        // Never written: no op may take over a caller's input in place.
        return const_cast<std::byte*>(static_cast<const std::byte*>(items.in[place.index])) +
               first * item_bytes(inputs[place.index]);
      case Storage::Owner::caller_output:
        return static_cast<std::byte*>(items.out[place.index]) + first * item_bytes(outputs[place.index]);
      default:
        return region.base + place.offset * static_cast<size_t>(region.capacity);
    }
  }

  void run_step(const PreparedStep& step, const Region& region, const Items& items,
                const Parallel& on) const {
    if (step.nothing_to_do) return;
    std::array<const void*, kMaxInputs> pointers;
    for (size_t i = 0; i < step.inputs.size(); ++i) pointers[i] = address(step.inputs[i], region, items);
    std::byte* scratch = region.base + arena_per_item * static_cast<size_t>(region.capacity);
    step.runner->run({items.count, std::span(pointers.data(), step.inputs.size()),
                      address(step.output, region, items), scratch, on});
  }

  /// Slices of nearly equal size, a multiple of the workers in number, so that all end together.
  void run_slices(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    const int64_t workers = parallel->workers(), capacity = slice_capacity(batch);
    const int64_t rounds = (batch + capacity * workers - 1) / (capacity * workers);
    const int64_t count = rounds * workers;
    const size_t bytes = region_bytes(capacity, 1);
    parallel->run(count, [&](int64_t slice, int worker) {
      const int64_t first = batch * slice / count, last = batch * (slice + 1) / count;
      const Region region{block.data() + static_cast<size_t>(worker) * bytes, capacity};
      for (const PreparedStep& step : prepared)
        run_step(step, region, {in, out, first, last - first}, SerialParallel());
    });
  }

  void run_whole(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    for (const PreparedStep& step : prepared)
      run_step(step, {block.data(), batch}, {in, out, 0, batch}, *parallel);
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
  if (state_->slices(batch)) {
    state_->run_slices(batch, inputs, outputs);
  } else {
    state_->run_whole(batch, inputs, outputs);
  }
}

std::vector<StepProfile> Engine::profile(int64_t batch, std::span<const void* const> inputs,
                                         std::span<void* const> outputs) {
  using Clock = std::chrono::steady_clock;
  state_->check_call(batch, inputs, outputs);
  state_->grow(state_->region_bytes(batch, state_->parallel->workers()), physical_memory(), batch);
  std::vector<StepProfile> profile;
  for (size_t s = 0; s < state_->prepared.size(); ++s) {
    const PreparedStep& step = state_->prepared[s];
    const Clock::time_point start = Clock::now();
    state_->run_step(step, {state_->block.data(), batch}, {inputs, outputs, 0, batch}, *state_->parallel);
    const std::chrono::duration<double> took = Clock::now() - start;
    profile.push_back({state_->steps[s].name, to_string(state_->steps[s].op),
                       step.nothing_to_do ? "none" : step.runner->kernel(),
                       text_of(state_->tensors[static_cast<size_t>(step.output)]), took.count()});
  }
  return profile;
}

}  // namespace ulp::runtime
