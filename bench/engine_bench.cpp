// What a caller waits for beside the steps of a network: loading an engine file up to the first result with the memory that
// takes, and one more token of a text.
//
//   engine_bench load FILE [TURNS]
//   engine_bench decode FILE [TOKENS]
//   engine_bench rate FILE [BATCH] [THREADS] [SECONDS] [CALLERS]
//
// `load` takes a process of its own for each turn, so that none finds memory of another, and prints medians: the time up to
// the engine, the time up to its first result for one item, resident memory then and at most, and both beside the constants
// and the arena. `decode` writes TOKENS tokens one by one behind the first half of the longest text (an engine that continues,
// as `ulp lower --continued` writes it) and prints the best and the median time of one, and what share of the time would do to
// read the packed constants at the speed of memory. `rate` runs a batch again and again, on inputs of zeros: what a
// process gets beside others (bench/shared_engines.sh). Each of its callers is a thread with an engine of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "bench/read_bandwidth.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using namespace ulp::runtime;
using ulp::bench::read_bandwidth;
using ulp::bench::seconds;

/// Bytes of a line of /proc/self/status, "VmRSS" or "VmHWM".
double memory_of_process(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == line + ":" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

/// Buffers for what an engine reads and writes.
struct Buffers {
  std::vector<std::vector<std::byte>> in, out;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

  Buffers(const Engine& engine, int64_t batch) {
    for (const TensorInfo& tensor : engine.inputs())
      inputs.push_back(in.emplace_back(byte_count(tensor, batch)).data());
    for (const TensorInfo& tensor : engine.outputs())
      outputs.push_back(out.emplace_back(byte_count(tensor, batch)).data());
  }
};

struct Load {
  double made, first, resident, before, most, constants, arena;
};

Load load_once(const char* file) {
  Load found{};
  found.before = memory_of_process("VmRSS");
  const double begin = seconds();
  Engine engine((std::filesystem::path(file)));
  found.made = seconds() - begin;
  Buffers buffers(engine, 1);
  engine.run(1, buffers.inputs, buffers.outputs);
  found.first = seconds() - begin;
  found.resident = memory_of_process("VmRSS");
  found.most = memory_of_process("VmHWM");
  found.constants = static_cast<double>(engine.constant_bytes());
  found.arena = static_cast<double>(engine.arena_bytes());
  return found;
}

/// In a child, which begins with the memory of a fresh program.
bool load_in_child(const char* file, Load* found) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    const Load load = load_once(file);
    const bool written = write(ends[1], &load, sizeof load) == sizeof load;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  const bool complete = read(ends[0], found, sizeof *found) == sizeof *found;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return complete && status == 0;
}

int load(const char* file, int turns) {
  std::vector<Load> loads(static_cast<size_t>(turns));
  for (Load& one : loads) {
    if (!load_in_child(file, &one))
      return std::fprintf(stderr, "engine_bench: could not load '%s'\n", file), 1;
  }
  const auto median = [&](double Load::*part) {
    std::sort(loads.begin(), loads.end(), [&](const Load& a, const Load& b) { return a.*part < b.*part; });
    return loads[loads.size() / 2].*part;
  };
  const double made = median(&Load::made), first = median(&Load::first), least = loads.front().first;
  const double resident = median(&Load::resident) - median(&Load::before), most = median(&Load::most);
  const double constants = loads[0].constants, arena = loads[0].arena;
  std::printf("engine after %.1f ms, first result after %.1f ms (least %.1f)\n", made * 1e3, first * 1e3,
              least * 1e3);
  std::printf(
      "constants %.1f MB, arena %.1f MB; resident %.1f MB more than before, %.2fx of both; at most %.1f MB\n",
      constants / 1e6, arena / 1e6, resident / 1e6, resident / (constants + arena),
      (most - median(&Load::before)) / 1e6);
  return 0;
}

int decode(const char* file, int tokens) {
  Engine engine((std::filesystem::path(file)));
  if (engine.decoding_dimension().empty())
    return std::fputs("engine_bench: expected an engine that continues\n", stderr), 1;
  const std::string along = engine.decoding_dimension();
  int64_t longest = 0;
  for (const ulp::DynamicDimension& dimension : engine.free()) {
    if (dimension.name == along) longest = dimension.max;
  }
  std::vector<int64_t> text(static_cast<size_t>(longest));
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int64_t>(i * 37 % 1000);
  engine.set_sizes({{along, longest / 2}});
  Buffers buffers(engine, 1);
  const void* in[] = {text.data()};
  engine.run(1, in, buffers.outputs);
  engine.set_sizes({{along, 1}});
  std::vector<double> times;
  for (int i = 0; i < tokens; ++i) {
    if (engine.position() == longest) engine.rewind(longest / 2);
    const void* next[] = {text.data() + engine.position()};
    const double begin = seconds();
    engine.run(1, next, buffers.outputs);
    times.push_back(seconds() - begin);
  }
  std::sort(times.begin(), times.end());
  const ThreadPool pool;
  const double bandwidth = read_bandwidth(pool), bytes = static_cast<double>(engine.constant_bytes());
  const double best = times.front(), median = times[times.size() / 2];
  std::printf("a token: best %.2f ms, median %.2f ms: %.1f tokens/s\n", best * 1e3, median * 1e3, 1 / median);
  std::printf(
      "constants %.1f MB, %.1f GB/s read alone: %.2f ms; %.2fx of that at best, %.2fx in the median\n",
      bytes / 1e6, bandwidth / 1e9, bytes / bandwidth * 1e3, best * bandwidth / bytes,
      median * bandwidth / bytes);
  return 0;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Runs the engine again and again until then; the seconds of each run.
std::vector<double> run_until(Engine& engine, int64_t batch, double end) {
  Buffers buffers(engine, batch);
  std::vector<double> times;
  for (double last = seconds(); last < end;) {
    engine.run(batch, buffers.inputs, buffers.outputs);
    const double now = seconds();
    times.push_back(now - last);
    last = now;
  }
  return times;
}

int rate(const char* file, int64_t batch, int threads, double span, int callers) {
  std::vector<Engine> engines;
  for (int i = 0; i < callers; ++i) {
    engines.emplace_back(std::filesystem::path(file), EngineOptions{.threads = threads});
    run_until(engines.back(), batch, seconds() + 1e-3);
  }
  const double begin = seconds(), used = processor_seconds();
  std::vector<std::future<std::vector<double>>> all;
  for (Engine& engine : engines)
    all.push_back(std::async(std::launch::async, [&] { return run_until(engine, batch, begin + span); }));
  std::vector<double> times;
  for (auto& one : all) {
    const std::vector<double> of_caller = one.get();
    times.insert(times.end(), of_caller.begin(), of_caller.end());
  }
  const double end = seconds(), cost = processor_seconds() - used, runs = static_cast<double>(times.size());
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (const double time : times) sum += time;
  std::printf("%.3f ms in the median, %.3f on average, %.4f of processors, %.2f runs/s\n",
              times[times.size() / 2] * 1e3, sum / runs * 1e3, cost / runs * 1e3, runs / (end - begin));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 2 ? argv[1] : "";
  const int count = argc > 3 ? std::atoi(argv[3]) : 0;
  try {
    if (command == "load") return load(argv[2], count > 0 ? count : 9);
    if (command == "decode") return decode(argv[2], count > 0 ? count : 200);
    if (command == "rate")
      return rate(argv[2], std::max(count, 1), argc > 4 ? std::atoi(argv[4]) : 0,
                  argc > 5 ? std::atof(argv[5]) : 3, argc > 6 ? std::max(std::atoi(argv[6]), 1) : 1);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "engine_bench: %s\n", error.what()), 1;
  }
  std::fputs(
      "engine_bench load FILE [TURNS] | decode FILE [TOKENS] | rate FILE [BATCH] [THREADS] [SECONDS] "
      "[CALLERS]\n",
      stderr);
  return 2;
}
