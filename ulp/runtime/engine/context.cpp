#include "ulp/runtime/engine/context.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "ulp/base/error.h"
#include "ulp/runtime/engine/model.h"
#include "ulp/runtime/engine/one_call.h"
#include "ulp/runtime/engine/thread_pool.h"
#include "ulp/runtime/engine/worker_choice.h"
#include "ulp/runtime/ops/block.h"

namespace ulp::runtime {
namespace {

/// Batches of at least this many items per worker are cut into slices, each computed from end to end by one
/// worker: no waiting between steps, and the intermediates of a slice stay in the worker's cache.
constexpr int64_t kItemsToSlice = 4;

template <typename Buffers>
void check_buffers(const char* what, const Buffers& buffers, const std::vector<TensorInfo>& expected) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i] != nullptr) continue;
    fail("runtime.Engine.run", "expected a buffer for ", what, " ", i, " '", expected[i].name, "' (",
         type_and_shape(expected[i]), "), got null");
  }
}

std::vector<int64_t> largest_sizes(const std::vector<DynamicDimension>& free) {
  std::vector<int64_t> sizes;
  for (const DynamicDimension& dimension : free) sizes.push_back(dimension.max);
  return sizes;
}

/// The context while one call works with it.
OneCall only_call(std::atomic_flag& busy, const char* where) {
  return OneCall(busy, [&] {
    fail(where,
         "expected one call at a time, got one while another thread runs this context; give each "
         "thread a Context of the engine");
  });
}

/// Where the dimension of that name is.
size_t free_index(const std::vector<DynamicDimension>& free, const std::string& name) {
  const auto at = std::ranges::find(free, name, &DynamicDimension::name);
  if (at != free.end()) return static_cast<size_t>(at - free.begin());
  std::string known;
  for (const DynamicDimension& dimension : free)
    known += (known.empty() ? "'" : ", '") + dimension.name + "'";
  fail(ErrorCode::bad_option, "runtime.Engine.set_sizes", "expected a free dimension of the engine, ",
       known.empty() ? "which has none" : "which has " + known, ", got '", name, "'");
}

/// Used by all threads of the process.
double processor_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

struct Context::State {
  std::shared_ptr<const Model> model;
  std::vector<int64_t> sizes;  ///< of the free dimensions
  std::shared_ptr<const SizedProgram> sized;
  size_t arena_limit;
  Block kept;                 ///< between runs
  size_t kept_item = 0;       ///< bytes of each item in it
  int64_t kept_batch = 0;     ///< of the runs that are in it
  int64_t position = 0;       ///< rows that they took
  int64_t planned_batch = 0;  ///< the memory is enough for this batch and for smaller ones
  Block block;
  std::unique_ptr<ThreadPool> pool;
  const Parallel* parallel = nullptr;
  WorkerChoice choice{1};
  int64_t chosen_batch = 0;  ///< of the runs that `choice` has seen
  std::atomic_flag busy = ATOMIC_FLAG_INIT;

  State(std::shared_ptr<const Model> shared, const ContextOptions& options)
      : model(std::move(shared)),
        sizes(largest_sizes(model->free())),
        sized(model->at(sizes)),
        arena_limit(options.max_arena_bytes > 0 ? std::min(options.max_arena_bytes, model->arena_limit())
                                                : model->arena_limit()),
        parallel(options.parallel) {
    if (parallel != nullptr) return;
    pool = std::make_unique<ThreadPool>(options.threads,
                                        options.own_threads ? PoolThreads::own : PoolThreads::shared);
    parallel = pool.get();
    choice = WorkerChoice(pool->workers(), processor_seconds);
  }

  /// Measures a run, for the choice of the threads of those that follow. Runs that continue each other take
  /// longer and longer, and have all threads.
  class Timed {
   public:
    Timed(State& state, int64_t batch)
        : state_(state.pool && state.pool->workers() > 1 && state.sized->rows == 0 ? &state : nullptr) {
      if (state_ == nullptr) return;
      if (batch != state_->chosen_batch) state_->choice.forget();
      state_->chosen_batch = batch;
      state_->pool->limit(state_->choice.workers());
      start_ = std::chrono::steady_clock::now();
    }
    /// After a run to its end.
    void done() {
      if (state_ != nullptr)
        state_->choice.ran(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
    }

   private:
    State* state_;
    std::chrono::steady_clock::time_point start_;
  };

  /// The caller counts as one that computes until its end.
  class Running {
   public:
    explicit Running(const State& state) : pool_(state.pool.get()) {
      if (pool_ != nullptr) pool_->enter();
    }
    ~Running() {
      if (pool_ != nullptr) pool_->leave();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    const ThreadPool* pool_;
  };

  const Program& program() const { return sized->program; }

  bool slices(int64_t batch) const {
    return program().items_are_independent() && batch >= kItemsToSlice * parallel->workers();
  }

  /// Items that a region must hold for this batch; grows with the batch. Where slices stay large enough there
  /// are two for each worker, so that one whose core others use does not hold half of the work.
  int64_t slice_capacity(int64_t batch) const {
    constexpr int64_t kWhole = 2 * kItemsToSlice - 1;
    const int64_t workers = parallel->workers(), share = (batch + workers - 1) / workers;
    const int64_t wanted = workers == 1 || share <= kWhole ? share : std::max(kWhole, (share + 1) / 2);
    return std::min(sized->largest_slice, wanted);
  }

  /// Makes sure of the memory for run() with this batch, which was checked, or a smaller one.
  void plan_batch(int64_t batch) {
    if (batch <= planned_batch) return;
    const int workers = parallel->workers();
    const int64_t whole =
        slices(batch) ? kItemsToSlice * workers - 1 : batch;  // the largest batch run unsliced
    size_t needed = program().region_bytes(whole, workers);
    if (slices(batch)) {
      needed =
          std::max(needed, static_cast<size_t>(workers) * program().region_bytes(slice_capacity(batch), 1));
    }
    grow(needed, batch);
    planned_batch = batch;
  }

  void grow(size_t needed, int64_t batch) {
    if (needed > arena_limit) {
      fail(ErrorCode::out_of_memory, "runtime.Engine", "expected intermediates of at most ", arena_limit,
           " bytes, got ", needed, " for batch ", batch);
    }
    if (needed > block.bytes()) planned_batch = 0;
    block.grow(needed);
  }

  /// Makes sure that this run can follow those before.
  void plan_kept(int64_t batch) {
    if (sized->rows == 0) return;
    const std::string& name = model->decoding_dimension();
    const int64_t last = std::min(program().last_position(), model->longest() - sized->rows);
    if (position > last) {
      fail(ErrorCode::bad_shape, "runtime.Engine.run", "expected at most ", last + sized->rows - position,
           " more of '", name, "' behind the ", position, " that the context has taken, got ", sized->rows,
           "; Context::rewind() starts again");
    }
    if (position > 0 && batch != kept_batch) {
      fail(ErrorCode::bad_shape, "runtime.Engine.run", "expected a batch of ", kept_batch,
           ", as in the runs that this one continues, got ", batch, "; Context::rewind() starts again");
    }
    const size_t item = program().kept_bytes();
    const bool fits = item == 0 || static_cast<size_t>(batch) <= arena_limit / item;
    const size_t needed = fits ? item * static_cast<size_t>(batch) : 0;
    if (position == 0) {
      if (!fits)
        fail(ErrorCode::out_of_memory, "runtime.Engine", "expected at most ", arena_limit,
             " bytes between runs, got ", item, " for each item of batch ", batch);
      kept.grow(needed);
      std::memset(kept.data(), 0, kept.data() == nullptr ? 0 : needed);
      kept_batch = batch;
      kept_item = item;
    } else if (item != kept_item) {
      fail("runtime.Engine.run", "expected ", kept_item,
           " bytes of an item between runs, as in those before, got ", item,
           "; Context::rewind() starts again");
    }
  }
  KeptRows kept_rows() const { return {kept.data(), kept_batch, position}; }

  /// Slices of nearly equal size, a multiple of the workers in number, so that all end together.
  void run_slices(int64_t batch, std::span<const void* const> in, std::span<void* const> out,
                  FaultSlot& faults) const {
    const int64_t workers = parallel->workers(), capacity = slice_capacity(batch);
    const int64_t rounds = (batch + capacity * workers - 1) / (capacity * workers);
    const int64_t count = rounds * workers;
    const size_t bytes = program().region_bytes(capacity, 1);
    parallel->run(count, [&](int64_t slice, int worker) {
      const int64_t first = batch * slice / count, last = batch * (slice + 1) / count;
      const Region region{block.data() + static_cast<size_t>(worker) * bytes, capacity};
      program().run(region, {in, out, first, last - first, &faults, kept_rows()}, SerialParallel());
    });
  }

  void check_call(int64_t batch, std::span<const void* const> in, std::span<void* const> out) const {
    if (batch < 1)
      fail(ErrorCode::bad_shape, "runtime.Engine.run", "expected a batch of at least 1, got ", batch);
    const std::vector<TensorInfo>&inputs = program().inputs(), &outputs = program().outputs();
    if (in.size() != inputs.size() || out.size() != outputs.size()) {
      fail(ErrorCode::bad_shape, "runtime.Engine.run", "expected ", inputs.size(), " inputs and ",
           outputs.size(), " outputs, got ", in.size(), " and ", out.size());
    }
    model->batch_range().check(batch, "runtime.Engine.run");
    check_buffers("input", in, inputs);
    check_buffers("output", out, outputs);
    check_batch(program(), batch);
    program().check_ids({in, out, 0, batch, nullptr, {}});
  }
};

Context::Context(std::shared_ptr<const Model> model, const ContextOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

Context::State& Context::state() const {
  if (!state_) fail("runtime.Context", "expected a context, got one that was moved from");
  return *state_;
}

size_t Context::kept_bytes() const {
  const OneCall use = only_call(state().busy, "runtime.Context.kept_bytes");
  return state().kept_item * static_cast<size_t>(state().kept_batch);
}

size_t Context::arena_bytes() const {
  const OneCall use = only_call(state().busy, "runtime.Engine.arena_bytes");
  return state().block.bytes();
}
int Context::threads() const {
  return state().parallel->workers();
}

void Context::set_sizes(const std::map<std::string, int64_t>& wanted) {
  State& own = state();
  const OneCall use = only_call(own.busy, "runtime.Engine.set_sizes");
  const std::vector<DynamicDimension>& free = own.model->free();
  std::vector<int64_t> sizes = own.sizes;
  for (const auto& [name, size] : wanted) {
    const size_t at = free_index(free, name);
    free[at].check(size, "runtime.Engine.set_sizes");
    sizes[at] = size;
  }
  if (sizes == own.sizes) return;
  own.sized = own.model->at(sizes);
  own.sizes = std::move(sizes);
  own.planned_batch = 0;
  own.chosen_batch = 0;
}

int64_t Context::size(const std::string& name) const {
  const OneCall use = only_call(state().busy, "runtime.Engine.size");
  return state().sizes[free_index(state().model->free(), name)];
}

int64_t Context::position() const {
  const OneCall use = only_call(state().busy, "runtime.Engine.position");
  return state().position;
}

void Context::rewind(int64_t position) {
  State& own = state();
  const OneCall use = only_call(own.busy, "runtime.Engine.rewind");
  if (position < 0 || position > own.position)
    fail("runtime.Engine.rewind", "expected a position of 0 to ", own.position, ", got ", position);
  own.position = position;
}

const std::vector<TensorInfo>& Context::inputs() const {
  return state().program().inputs();
}
const std::vector<TensorInfo>& Context::outputs() const {
  return state().program().outputs();
}

void Context::reserve(int64_t batch) {
  State& own = state();
  if (batch < 1)
    fail(ErrorCode::bad_shape, "runtime.Engine.reserve", "expected a batch of at least 1, got ", batch);
  own.model->batch_range().check(batch, "runtime.Engine.reserve");
  const OneCall use = only_call(own.busy, "runtime.Engine.reserve");
  check_batch(own.program(), batch);
  if (own.position == 0) own.plan_kept(batch);
  own.plan_batch(batch);
}

void Context::run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs) {
  State& own = state();
  const OneCall use = only_call(own.busy, "runtime.Engine.run");
  own.check_call(batch, inputs, outputs);
  own.plan_kept(batch);
  own.plan_batch(batch);
  const State::Running running(own);
  State::Timed timed(own, batch);
  FaultSlot faults;
  if (own.slices(batch)) {
    own.run_slices(batch, inputs, outputs, faults);
  } else {
    own.program().run({own.block.data(), batch}, {inputs, outputs, 0, batch, &faults, own.kept_rows()},
                      *own.parallel);
  }
  timed.done();
  own.program().check_faults(faults);
  own.position += own.sized->rows;
}

std::vector<StepProfile> Context::profile(int64_t batch, std::span<const void* const> inputs,
                                          std::span<void* const> outputs) {
  using Clock = std::chrono::steady_clock;
  State& own = state();
  const OneCall use = only_call(own.busy, "runtime.Engine.profile");
  own.check_call(batch, inputs, outputs);
  const Program& program = own.program();
  own.plan_kept(batch);
  own.grow(program.region_bytes(batch, own.parallel->workers()), batch);
  const State::Running running(own);
  if (own.pool) own.pool->limit(own.pool->workers());
  std::vector<StepProfile> profile;
  FaultSlot faults;
  for (size_t step = 0; step < program.steps(); ++step) {
    profile.push_back(program.describe(step, batch));
    const Clock::time_point start = Clock::now();
    program.run_step(step, {own.block.data(), batch}, {inputs, outputs, 0, batch, &faults, own.kept_rows()},
                     *own.parallel);
    profile.back().seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  program.check_faults(faults);
  own.position += own.sized->rows;
  return profile;
}

}  // namespace ulp::runtime
