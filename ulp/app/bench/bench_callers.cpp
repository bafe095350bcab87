#include <algorithm>
#include <chrono>
#include <future>

#include "ulp/app/bench/bench_parts.h"
#include "ulp/base/interrupt.h"

namespace ulp::app {

namespace {

using Clock = std::chrono::steady_clock;

/// A thread's context, with memory for what it reads and writes.
class Caller {
 public:
  Caller(const runtime::Engine& engine, const at::Tensor& images, int64_t batch, int threads)
      : context_(engine, {.threads = std::max(threads, 1)}),
        batch_(batch),
        images_(images),
        output_(empty_output(engine, batch)) {
    call();  // the arena is there from now on
  }

  /// The seconds of each call.
  std::vector<double> call_until(Clock::time_point end) {
    std::vector<double> seconds;
    Clock::time_point now = Clock::now();
    do {
      const Clock::time_point start = now;
      call();
      now = Clock::now();
      seconds.push_back(std::chrono::duration<double>(now - start).count());
    } while (now < end && !interrupted());
    return seconds;
  }

  size_t arena_bytes() const { return context_.arena_bytes(); }

 private:
  void call() {
    const void* in = images_.const_data_ptr();
    void* out = output_.mutable_data_ptr();
    context_.rewind();
    context_.run(batch_, {&in, 1}, {&out, 1});
  }

  runtime::Context context_;
  int64_t batch_;
  at::Tensor images_, output_;
};

/// What callers of one engine got.
struct Service {
  std::vector<double> seconds;  ///< of each call, sorted
  double calls_per_second = 0;
  size_t arena_bytes = 0;  ///< of each
};

Service serve(const InferenceModel& model, int callers, int64_t batch, const BenchOptions& options) {
  const at::Tensor images = random_inputs(model, batch);
  std::vector<std::unique_ptr<Caller>> all;
  for (int i = 0; i < callers; ++i)
    all.push_back(std::make_unique<Caller>(*model.engine, images, batch, options.threads));
  Service service{.seconds = {}, .arena_bytes = all.front()->arena_bytes()};
  const PollsInterrupts polls;
  const Clock::time_point start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                               options.measure.rounds * options.measure.round_seconds));
  std::vector<std::future<std::vector<double>>> running;
  for (const auto& caller : all)
    running.push_back(std::async(std::launch::async, [&] { return caller->call_until(end); }));
  for (auto& one : running) {
    const std::vector<double> seconds = one.get();
    service.seconds.insert(service.seconds.end(), seconds.begin(), seconds.end());
  }
  check_interrupted();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  service.calls_per_second = static_cast<double>(service.seconds.size()) / wall;
  std::ranges::sort(service.seconds);
  return service;
}

}  // namespace

report::Table callers_table(const std::vector<InferenceModel>& models, const BenchOptions& options) {
  using report::Better;
  report::Table table{.title = "Callers",
                      .columns = {{"model"},
                                  {"batch"},
                                  {"callers"},
                                  {"throughput", "images/s", Better::higher, 0},
                                  {"against one", "x"},
                                  {"median", "ms"},
                                  {"slowest", "ms"},
                                  {"arena of each", "MB"},
                                  {"constants of all", "MB"}}};
  for (size_t i = 0; i < models.size(); ++i) {
    if (!models[i].engine) continue;
    for (const int64_t batch : options.batches) {
      double one = 0;
      for (const int callers : {1, options.contexts}) {
        const Service service = serve(models[i], callers, batch, options);
        if (callers == 1) one = service.calls_per_second;
        table.add_row({options.models[i], static_cast<double>(batch), static_cast<double>(callers),
                       service.calls_per_second * static_cast<double>(batch), service.calls_per_second / one,
                       service.seconds[service.seconds.size() / 2] * 1e3, service.seconds.back() * 1e3,
                       static_cast<double>(service.arena_bytes) / 1e6,
                       static_cast<double>(models[i].engine->constant_bytes()) / 1e6});
        if (options.contexts == 1) break;
      }
    }
  }
  return table;
}

}  // namespace ulp::app
