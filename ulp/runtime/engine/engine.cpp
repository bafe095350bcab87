#include "ulp/runtime/engine/engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/engine/program.h"
#include "ulp/runtime/engine/thread_pool.h"
#include "ulp/runtime/ops/block.h"

namespace ulp::runtime {
namespace {

size_t read_physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size)
                               : std::numeric_limits<size_t>::max();
}

/// Bytes. Asked once: the system opens files for the answer.
size_t physical_memory() {
  static const size_t bytes = read_physical_memory();
  return bytes;
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

/// Batches of at least this many items per worker are cut into slices, each computed from end to end by one
/// worker: no waiting between steps, and the intermediates of a slice stay in the worker's cache.
constexpr int64_t kItemsToSlice = 4;
constexpr int64_t kSmallestSlice = 4;  // weights are read once per slice
constexpr int64_t kLargestSlice = 256;

size_t cache_budget() {
  const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (bytes > 0 ? static_cast<size_t>(bytes) : size_t{1} << 20) / 4 * 3;
}

/// Items whose intermediates fit a worker's cache.
int64_t largest_slice(const Program& program) {
  const size_t budget = cache_budget();
  int64_t items = kSmallestSlice;
  while (items < kLargestSlice && program.region_bytes(2 * items, 1) <= budget) items *= 2;
  return items;
}

template <typename Buffers>
void check_buffers(const char* what, const Buffers& buffers, const std::vector<TensorInfo>& expected) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i] != nullptr) continue;
    fail("runtime.Engine.run", "expected a buffer for ", what, " ", i, " '", expected[i].name, "' (",
         type_and_shape(expected[i]), "), got null");
  }
}

}  // namespace

struct Engine::State {
  kernels::Isa isa;
  size_t memory_limit;
  Program program;
  int64_t largest_slice;
  int64_t planned_batch = 0;  ///< the memory is enough for this batch and for smaller ones
  Block block;
  size_t constant_bytes = 0;
  std::unique_ptr<ThreadPool> pool;
  const Parallel* parallel = nullptr;
  std::atomic_flag busy = ATOMIC_FLAG_INIT;

  State(const VerifiedPlan& plan, const EngineOptions& options)
      : isa(choose_isa(options.isa)),
        memory_limit(options.max_arena_bytes > 0 ? std::min(options.max_arena_bytes, physical_memory())
                                                 : physical_memory()),
        program(plan, isa, options.max_constant_bytes),
        largest_slice(runtime::largest_slice(program)),
        parallel(options.parallel) {
    for (const auto& [name, constant] : plan->constants) constant_bytes += constant.bytes.size();
    if (parallel != nullptr) return;
    pool = std::make_unique<ThreadPool>(options.threads);
    parallel = pool.get();
  }

  bool slices(int64_t batch) const {
    return program.items_are_independent() && batch >= kItemsToSlice * parallel->workers();
  }

  /// Items that a region must hold for this batch; grows with the batch.
  int64_t slice_capacity(int64_t batch) const {
    const int64_t workers = parallel->workers();
    return std::min(largest_slice, (batch + workers - 1) / workers);
  }

  /// Throws for a batch that no memory holds; products of smaller ones do not overflow.
  void check_batch(int64_t batch) const {
    const size_t per_item = program.bytes_per_item();
    if (static_cast<size_t>(batch) <= physical_memory() / per_item) return;
    fail("runtime.Engine", "expected a batch whose intermediates fit the memory of this machine, got batch ",
         batch, " with ", per_item, " bytes per item");
  }

  /// Makes sure of the memory for run() with this batch, which was checked, or a smaller one.
  void plan_batch(int64_t batch) {
    if (batch <= planned_batch) return;
    const int workers = parallel->workers();
    const int64_t whole =
        slices(batch) ? kItemsToSlice * workers - 1 : batch;  // the largest batch run unsliced
    size_t needed = program.region_bytes(whole, workers);
    if (slices(batch)) {
      needed =
          std::max(needed, static_cast<size_t>(workers) * program.region_bytes(slice_capacity(batch), 1));
    }
    grow(needed, batch);
    planned_batch = batch;
  }

  void grow(size_t needed, int64_t batch) {
    if (needed > memory_limit) {
      fail("runtime.Engine", "expected intermediates of at most ", memory_limit, " bytes, got ", needed,
           " for batch ", batch);
    }
    if (needed > block.bytes()) planned_batch = 0;
    block.grow(needed);
  }

  /// Slices of nearly equal size, a multiple of the workers in number, so that all end together.
  void run_slices(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    const int64_t workers = parallel->workers(), capacity = slice_capacity(batch);
    const int64_t rounds = (batch + capacity * workers - 1) / (capacity * workers);
    const int64_t count = rounds * workers;
    const size_t bytes = program.region_bytes(capacity, 1);
    parallel->run(count, [&](int64_t slice, int worker) {
      const int64_t first = batch * slice / count, last = batch * (slice + 1) / count;
      const Region region{block.data() + static_cast<size_t>(worker) * bytes, capacity};
      program.run(region, {in, out, first, last - first}, SerialParallel());
    });
  }

  void check_call(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    if (batch < 1) fail("runtime.Engine.run", "expected a batch of at least 1, got ", batch);
    const std::vector<TensorInfo>&inputs = program.inputs(), &outputs = program.outputs();
    if (in.size() != inputs.size() || out.size() != outputs.size()) {
      fail("runtime.Engine.run", "expected ", inputs.size(), " inputs and ", outputs.size(), " outputs, got ",
           in.size(), " and ", out.size());
    }
    check_buffers("input", in, inputs);
    check_buffers("output", out, outputs);
    check_batch(batch);
    program.check_ids({in, out, 0, batch});
  }
};

namespace {

/// The engine while one call works with it.
class Use {
 public:
  Use(std::atomic_flag& busy, const char* where) : busy_(busy) {
    if (busy_.test_and_set(std::memory_order_acquire)) {
      fail(where,
           "expected one call at a time, got one while another thread runs this engine; give each "
           "thread an engine of its own");
    }
  }
  ~Use() { busy_.clear(std::memory_order_release); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic_flag& busy_;
};

}  // namespace

Engine::Engine(const std::filesystem::path& path, const EngineOptions& options)
    : state_(std::make_unique<State>(VerifiedPlan::load(path), options)) {}
Engine::Engine(const Plan& plan, const EngineOptions& options)
    : state_(std::make_unique<State>(VerifiedPlan::check(plan), options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Engine::State& Engine::state() const {
  if (!state_) fail("runtime.Engine", "expected an engine, got one that was moved from");
  return *state_;
}

const std::vector<TensorInfo>& Engine::inputs() const {
  return state().program.inputs();
}
const std::vector<TensorInfo>& Engine::outputs() const {
  return state().program.outputs();
}
size_t Engine::arena_bytes() const {
  const Use use(state().busy, "runtime.Engine.arena_bytes");
  return state().block.bytes();
}
size_t Engine::constant_bytes() const {
  return state().constant_bytes;
}
int Engine::threads() const {
  return state().parallel->workers();
}
std::string Engine::isa() const {
  return kernels::to_string(state().isa);
}

void Engine::reserve(int64_t batch) {
  if (batch < 1) fail("runtime.Engine.reserve", "expected a batch of at least 1, got ", batch);
  const Use use(state().busy, "runtime.Engine.reserve");
  state().check_batch(batch);
  state().plan_batch(batch);
}

void Engine::run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs) {
  State& own = state();
  const Use use(own.busy, "runtime.Engine.run");
  own.check_call(batch, inputs, outputs);
  own.plan_batch(batch);
  if (own.slices(batch)) {
    own.run_slices(batch, inputs, outputs);
  } else {
    own.program.run({own.block.data(), batch}, {inputs, outputs, 0, batch}, *own.parallel);
  }
}

std::vector<StepProfile> Engine::profile(int64_t batch, std::span<const void* const> inputs,
                                         std::span<void* const> outputs) {
  using Clock = std::chrono::steady_clock;
  State& own = state();
  const Use use(own.busy, "runtime.Engine.profile");
  own.check_call(batch, inputs, outputs);
  const Program& program = own.program;
  own.grow(program.region_bytes(batch, own.parallel->workers()), batch);
  std::vector<StepProfile> profile;
  for (size_t step = 0; step < program.steps(); ++step) {
    profile.push_back(program.describe(step));
    const Clock::time_point start = Clock::now();
    program.run_step(step, {own.block.data(), batch}, {inputs, outputs, 0, batch}, *own.parallel);
    profile.back().seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return profile;
}

}  // namespace ulp::runtime
