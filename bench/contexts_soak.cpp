// Many callers of one engine: each thread has a context of its own and runs the same model again and again.
//   contexts_soak model.ulp [callers=24] [seconds=600] [batch=1]
// Prints the runs per second, the bytes of the process before and after its contexts, and fails where a run gives other
// bits than the first.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/runtime/engine/engine.h"

namespace {

namespace rt = ulp::runtime;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

double resident_mb() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Inputs that every caller reads.
std::vector<std::vector<float>> random_inputs(const rt::Engine& engine, int64_t batch) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs;
  for (const rt::TensorInfo& info : engine.inputs()) {
    if (info.type != rt::DataType::f32) throw ulp::Error("contexts_soak: expected f32 inputs");
    auto& values = inputs.emplace_back(rt::element_count(info, batch));
    for (float& value : values) value = normal(random);
  }
  return inputs;
}

/// The buffers of one caller.
struct Caller {
  rt::Context context;
  int64_t batch;
  std::vector<const void*> in;
  std::vector<Bytes> results;
  std::vector<void*> out;

  Caller(const rt::Engine& engine, int64_t items, const std::vector<std::vector<float>>& inputs)
      : context(engine), batch(items) {
    for (const auto& input : inputs) in.push_back(input.data());
    for (const rt::TensorInfo& info : engine.outputs()) results.emplace_back(rt::byte_count(info, batch));
    for (Bytes& bytes : results) out.push_back(bytes.data());
    context.reserve(batch);
  }
  void run() { context.run(batch, in, out); }
};

int soak(const char* path, int callers, double seconds, int64_t batch) {
  const rt::Engine engine{std::filesystem::path(path), {.threads = 1}};
  const auto inputs = random_inputs(engine, batch);
  Caller first(engine, batch, inputs);
  first.run();
  const double before = resident_mb();
  std::vector<Caller> all;
  for (int i = 0; i < callers; ++i) all.emplace_back(engine, batch, inputs);
  std::atomic<int64_t> runs = 0, wrong = 0;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> threads;
  for (Caller& caller : all) {
    threads.emplace_back([&] {
      for (; Clock::now() < end; ++runs) {
        caller.run();
        wrong += caller.results != first.results;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto arena = static_cast<double>(first.context.arena_bytes()) / 1e6;
  std::cout << callers << " callers, batch " << batch << ", " << seconds << " s: " << runs << " runs, "
            << static_cast<double>(runs) / seconds << " a second, " << wrong << " with other bits\n"
            << "resident " << before << " MB with one context, " << resident_mb() << " MB with all; arena "
            << arena << " MB each, constants " << static_cast<double>(engine.constant_bytes()) / 1e6
            << " MB\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: contexts_soak model.ulp [callers=24] [seconds=600] [batch=1]\n";
    return 2;
  }
  try {
    return soak(argv[1], argc > 2 ? std::atoi(argv[2]) : 24, argc > 3 ? std::atof(argv[3]) : 600,
                argc > 4 ? std::atoll(argv[4]) : 1);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
