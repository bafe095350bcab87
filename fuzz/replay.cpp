// Runs a harness without libFuzzer: over every file given, then over changed copies of them. The same files
// and numbers give the same copies on every machine. A copy that fails is told by its number, from which it
// can be made again:
//   replay_engine --only 123 --write finding.ulp CORPUS   writes copy 123 and runs it
// A long run can be cut into parts, and can tell what the process holds on the way:
//   replay_engine --first 50001 --mutants 100000 --tell 1000 CORPUS
#include <fcntl.h>
#include <malloc.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "byte_mutator.h"
#include "harness.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMemoryFactor = 4;
constexpr size_t kMemoryBytes = size_t{256} << 20;

struct Options {
  size_t mutants = 0;
  size_t first = 1;  ///< the number of the first copy
  size_t tell = 0;   ///< after how many copies the memory is told; 0: never
  size_t only = 0;   ///< the number of the one copy to run, from 1; 0: all
  size_t seconds = 10;
  std::string write;
  std::vector<fs::path> files;
};

/// What is being run, told by signal handlers.
char present[512] = "";

void say(const char* what) {
  for (const char* text : {"finding: ", what, " in ", static_cast<const char*>(present), "\n"}) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
  }
}

/// Leaves with a code, not by the signal: CTest fails a test that a signal ended, whatever the test expects.
extern "C" void on_signal(int signal) {
  say(signal == SIGPROF ? "too long a time" : signal == SIGABRT ? "an abort" : "a crash");
  ::_exit(1);
}

void watch_for_death() {
  // A sanitizer has better words for a crash than we.
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback([] { say("what is told above"); });
  } else {
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_signal);
  }
  for (const int signal : {SIGABRT, SIGPROF}) std::signal(signal, on_signal);
}

/// Processor time: a busy machine makes no findings.
void limit_time(size_t seconds) {
  const itimerval limit{{0, 0}, {static_cast<time_t>(seconds), 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
}

/// The line of /proc/self/status, in bytes; 0 where there is none.
size_t memory_of(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::strtoull(line.c_str() + std::strlen(name), nullptr, 10) << 10;
  }
  return 0;
}

/// Sets the peak back to what is held now; false where the system does not allow it.
bool reset_peak() {
  const int file = ::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool done = ::write(file, "5", 1) == 1;
  ::close(file);
  return done;
}

void run(const Bytes& bytes, const Options& options) {
  const bool measured = reset_peak();
  const size_t before = memory_of("VmRSS:");
  limit_time(options.seconds);
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  limit_time(0);
  if (!measured) return;
  const size_t most = before + kMemoryFactor * bytes.size() + kMemoryBytes;
  if (const size_t peak = memory_of("VmHWM:"); peak > most) {
    say("too much memory");
    std::cerr << "expected at most " << most << " bytes, got " << peak << '\n';
    std::exit(1);
  }
}

Bytes mutant(Bytes bytes, unsigned int seed) {
  ulp::fuzz::seed_byte_mutator(seed);
  size_t size = bytes.size();
  bytes.resize(std::max(kMostBytes, size));
  for (unsigned int change = 0; change <= seed % 3; ++change) {
    const unsigned int own = seed * 4 + change;
    size = LLVMFuzzerCustomMutator != nullptr ? LLVMFuzzerCustomMutator(bytes.data(), size, bytes.size(), own)
                                              : LLVMFuzzerMutate(bytes.data(), size, bytes.size());
  }
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

Bytes read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("could not read '" + path.string() + "'");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Files, and those of folders in order of their names. Throws for a path that is not there.
void add_files(const fs::path& path, std::vector<fs::path>& files) {
  if (!fs::is_directory(path)) {
    if (!fs::exists(path)) throw std::runtime_error("found no file or folder '" + path.string() + "'");
    files.push_back(path);
    return;
  }
  const size_t first = files.size();
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      add_files(word, options.files);
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error("expected a value behind " + word);
    const std::string value = argv[++i];
    if (word == "--write") {
      options.write = value;
      continue;
    }
    const std::pair<const char*, size_t*> numbers[] = {{"--mutants", &options.mutants},
                                                       {"--first", &options.first},
                                                       {"--tell", &options.tell},
                                                       {"--only", &options.only},
                                                       {"--seconds", &options.seconds}};
    const auto is_word = [&](const auto& one) { return word == one.first; };
    const auto* found = std::find_if(std::begin(numbers), std::end(numbers), is_word);
    if (found == std::end(numbers))
      throw std::runtime_error("expected --mutants, --first, --tell, --only, --seconds or --write, got " +
                               word);
    *found->second = std::stoul(value);
  }
  if (options.files.empty()) throw std::runtime_error("expected files or folders that hold some, got none");
  return options;
}

void run_mutant(const Options& options, size_t number) {
  const fs::path& from = options.files[number % options.files.size()];
  std::snprintf(present, sizeof present, "copy %zu, made of '%s' (again: the same files with --only %zu)",
                number, from.c_str(), number);
  const Bytes bytes = mutant(read(from), static_cast<unsigned int>(number));
  if (!options.write.empty()) {
    std::ofstream(options.write, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  run(bytes, options);
}

/// What the process holds after a copy, and what of it the allocator of the C library has given out.
void tell_memory(size_t number) {
  constexpr double kMegabyte = 1 << 20;
  std::cerr << "copy " << number << ": " << static_cast<double>(memory_of("VmRSS:")) / kMegabyte
            << " MB held";
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 heap = ::mallinfo2();
  std::cerr << ", " << static_cast<double>(heap.uordblks + heap.hblkhd) / kMegabyte << " MB given out";
#endif
  std::cerr << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    watch_for_death();
    if (options.only > 0) {
      run_mutant(options, options.only);
      return 0;
    }
    for (const fs::path& file : options.files) {
      std::snprintf(present, sizeof present, "the file '%s'", file.c_str());
      run(read(file), options);
    }
    for (size_t number = options.first; number <= options.mutants; ++number) {
      run_mutant(options, number);
      if (options.tell > 0 && number % options.tell == 0) tell_memory(number);
    }
    const size_t copies = options.mutants - std::min(options.mutants, options.first - 1);
    std::cout << options.files.size() << " files and " << copies << " changed copies are in order"
              << (reset_peak() ? "\n" : "; memory was not measured: no access to /proc/self/clear_refs\n");
    return 0;
  } catch (const std::exception& error) {
    say("an exception");
    std::cerr << error.what() << '\n';
    return 1;
  }
}
