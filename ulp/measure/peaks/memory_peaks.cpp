#include "ulp/measure/peaks/memory_peaks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "ulp/base/error.h"
#include "ulp/base/seconds_since.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/measure/peaks/caches.h"

namespace ulp::measure {

namespace {

using kernels::Isa;
using kernels::MemoryPass;

using Clock = std::chrono::steady_clock;

constexpr int64_t kGrain = 64;  // doubles that a pass takes at a time

int64_t round_down(double doubles) {
  return std::max(static_cast<int64_t>(doubles) / kGrain, int64_t{1}) * kGrain;
}

/// Memory of large pages, where the system gives them. `shift`: doubles before the first one. Arrays that
/// begin at the same place of a page hinder each other in the first cache.
class Pages {
 public:
  Pages(int64_t doubles, int64_t shift)
      : bytes_(static_cast<size_t>(doubles + shift) * sizeof(double)), shift_(shift) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    ::madvise(data_, bytes_, MADV_HUGEPAGE);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  double* data() const { return static_cast<double*>(data_) + shift_; }

 private:
  size_t bytes_;
  int64_t shift_;
  void* data_;
};

/// Three arrays, of which each thread has a part that it touches first.
class Arrays {
 public:
  Arrays(ThreadBarrier& crew, int64_t part)
      : crew_(crew), part_(part), a_(all(), 0), b_(all(), kShift), c_(all(), 2 * kShift) {
    crew_.time([&](int worker) {
      const int64_t first = worker * part_;
      std::fill_n(a_.data() + first, part_, 1.0);
      std::fill_n(b_.data() + first, part_, 2.0);
      std::fill_n(c_.data() + first, part_, 0.0);
    });
  }

  /// Seconds of `repeats` passes over `count` doubles of each thread's part, of all threads.
  double time(MemoryPass pass, int64_t count, int64_t repeats, Isa isa) {
    return crew_.time([&](int worker) {
      const int64_t first = worker * part_;
      for (int64_t i = 0; i < repeats; ++i)
        kernels::memory_pass(pass, a_.data() + first, b_.data() + first, c_.data() + first, count, isa);
    });
  }
  /// Bytes/s of what one thread has to itself: each by its own clock, as in a busy machine they seldom run at
  /// once.
  double rate_apart(MemoryPass pass, int64_t count, int64_t repeats, Isa isa) {
    time(pass, count, repeats, isa);
    double rate = 0;
    for (int i = 0; i < crew_.threads(); ++i)
      rate += bytes_of_pass(pass, count * repeats) / crew_.seconds_of(i);
    return rate;
  }
  /// Bytes/s of one pass over all of what the threads share.
  double rate_together(MemoryPass pass, Isa isa) {
    return bytes_of_pass(pass, part_) * crew_.threads() / time(pass, part_, 1, isa);
  }
  int64_t part() const { return part_; }

 private:
  static double bytes_of_pass(MemoryPass pass, int64_t doubles) {
    return 8.0 * kernels::arrays_of(pass) * static_cast<double>(doubles);
  }
  static constexpr int64_t kShift = 168;  // 1,344 of 4,096 bytes
  int64_t all() const { return part_ * crew_.threads(); }
  ThreadBarrier& crew_;
  int64_t part_;
  Pages a_, b_, c_;
};

/// Those whose vectors are tried. Wider ones are not always faster: on Zen 4 memory gives 256 bits more than 512.
std::vector<Isa> vectors_of(Isa isa) {
  std::vector<Isa> found = {isa};
  for (const Isa narrower : {Isa::avx2, Isa::portable})
    if (narrower != isa && kernels::admits(isa, narrower)) found.push_back(narrower);
  return found;
}

/// Passes over what stays in a cache: all arrays of a pass together take `bytes` of each thread.
void measure_cache(MemoryPeak& peak, Arrays& arrays, double bytes, Isa isa, double budget) {
  for (size_t p = 0; p < peak.rate.size(); ++p) {
    const auto pass = static_cast<MemoryPass>(p);
    const int64_t count = std::min(round_down(bytes / 8 / kernels::arrays_of(pass)), arrays.part());
    const int64_t repeats = std::max<int64_t>(1, static_cast<int64_t>(4e6 / bytes));
    arrays.time(pass, count, repeats, isa);  // brings them in
    const auto start = Clock::now();
    int runs = 0;
    do peak.rate[p] = std::max(peak.rate[p], arrays.rate_apart(pass, count, repeats, isa));
    while (++runs < 5 || seconds_since(start) < budget);
  }
}

double physical_memory() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

}  // namespace

std::vector<MemoryPeak> measure_memory(ThreadBarrier& crew, Isa isa, bool quick,
                                       const std::function<void(const std::string&)>& say) {
  const std::vector<Cache> caches = data_caches();
  const int threads = crew.threads();
  const double last = bytes_of(caches.back(), threads);
  const double array = std::min(4 * last, physical_memory() / 8);
  const double budget = quick ? 2e-3 : 8e-3;
  std::vector<MemoryPeak> peaks;
  Arrays arrays(crew, round_down(array / 8 / threads));
  const std::vector<Isa> vectors = vectors_of(isa);
  double nearer = 0;
  for (const Cache& cache : caches) {
    MemoryPeak peak{.name = "L" + std::to_string(cache.level), .bytes = bytes_of(cache, threads)};
    say(peak.name);
    // Half of a core's own cache; of one that is shared less, but much more than the nearer one holds.
    const double used =
        cache.sharers == 1 ? peak.bytes / 2 : std::max(peak.bytes / 4, std::min(peak.bytes / 2, 4 * nearer));
    for (const Isa one : vectors) measure_cache(peak, arrays, used / threads, one, budget);
    nearer = peak.bytes;
    peaks.push_back(std::move(peak));
  }
  MemoryPeak memory{.name = "memory", .bytes = 3.0 * 8 * static_cast<double>(arrays.part()) * threads};
  say(memory.name);
  // As often as STREAM, with vectors of each width.
  constexpr double kMostSeconds = 4;
  const auto start = Clock::now();
  for (int round = 0; round < (quick ? 3 : 10) && (round < 2 || seconds_since(start) < kMostSeconds);
       ++round) {
    for (const Isa one : vectors) {
      for (size_t p = 0; p < memory.rate.size(); ++p)
        memory.rate[p] = std::max(memory.rate[p], arrays.rate_together(static_cast<MemoryPass>(p), one));
    }
  }
  peaks.push_back(std::move(memory));
  for (size_t i = peaks.size() - 1; i-- > 0;) {
    for (size_t p = 0; p < peaks[i].rate.size(); ++p)
      peaks[i].rate[p] = std::max(peaks[i].rate[p], peaks[i + 1].rate[p]);
  }
  return peaks;
}

}  // namespace ulp::measure
