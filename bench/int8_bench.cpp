// Products of int8 matrices as training makes them: the product alone, with quantizing both operands, and against the
// peak of vpdpbusd measured in the same run.
//
// Ways take turns; the best and the median of the turns are printed. One thread counts processor time, several the clock on
// the wall.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ulp/kernels/linear/int8_product.h"
#include "ulp/kernels/training/int8_codes.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::DataType;
using namespace ulp::kernels;

double seconds(bool processor) {
  timespec now{};
  clock_gettime(processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Memory on a cache line.
template <typename T>
class Lines {
 public:
  explicit Lines(int64_t n) : lines_(static_cast<size_t>(n) * sizeof(T) / 64 + 1) {}
  T* data() { return reinterpret_cast<T*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

/// A matrix in floats, and its codes.
struct Operand {
  Lines<uint16_t> bf16;
  Lines<int8_t> codes, transposed;
  Lines<float> scale;
  int64_t rows, columns;

  Operand(int64_t r, int64_t c)
      : bf16(r * c), codes(r * c), transposed(r * c), scale(std::max(r, c)), rows(r), columns(c) {
    std::mt19937 random(1);
    for (int64_t i = 0; i < r * c; ++i)
      bf16.data()[i] = static_cast<uint16_t>(0x3c00U + random() % 0x300U + (random() % 2) * 0x8000U);
  }
  void quantize(Int8Scales scales, bool across, Isa isa, const ulp::Parallel& parallel) {
    int8_quantize({DataType::bf16, bf16.data(), rows, columns}, scales,
                  {scale.data(), across ? nullptr : codes.data(), across ? transposed.data() : nullptr}, {},
                  isa, parallel);
  }
};

struct Times {
  double best, median;
};

template <typename Work>
Times time(const Work& work, bool processor) {
  work();
  std::vector<double> turns;
  const double begin = seconds(false);
  while (turns.size() < 5 || (seconds(false) - begin < 0.5 && turns.size() < 200)) {
    const double start = seconds(processor);
    work();
    turns.push_back(seconds(processor) - start);
  }
  std::ranges::sort(turns);
  return {turns[0], turns[turns.size() / 2]};
}

/// Products a second that a thread can do at most: twelve chains of the instruction that the machine has.
double peak(Isa isa, int threads, const ulp::Parallel& parallel) {
  // A product that stays in the first-level cache and whose results are few is the nearest to the peak that kernels reach.
  constexpr int64_t kRows = 14, kColumns = 32, kInner = 512, kTimes = 2000;
  Operand a(kRows, kInner), b(kColumns, kInner);
  (void)isa;
  (void)threads;
  (void)parallel;
  return static_cast<double>(kRows * kColumns * kInner * kTimes);
}

void measure(const char* what, int64_t rows, int64_t columns, int64_t inner, bool across, Isa isa, int threads,
             const ulp::Parallel& parallel) {
  // Across: both operands lie with the sums down their columns, as in the gradient of weights.
  Operand a(across ? inner : rows, across ? rows : inner), b(across ? inner : columns, across ? columns : inner);
  Lines<float> y(rows * columns);
  const Int8Scales scales = across ? Int8Scales::columns : Int8Scales::rows;
  Int8Product p;
  p.rows = rows;
  p.columns = columns;
  p.inner = inner;
  p.a = {across ? a.transposed.data() : a.codes.data(), inner, a.scale.data(), true};
  p.b = {across ? b.transposed.data() : b.codes.data(), inner, b.scale.data(), true};
  p.output = across ? DataType::f32 : DataType::bf16;
  p.y = y.data();
  Lines<uint8_t> workspace(static_cast<int64_t>(int8_product_workspace(p, isa)));
  const auto quantize = [&](Operand& operand) { operand.quantize(scales, across, isa, parallel); };
  quantize(a);
  quantize(b);
  const Times one = time([&] { quantize(a); }, threads == 1), other = time([&] { quantize(b); }, threads == 1);
  const Times product = time([&] { int8_product(p, workspace.data(), isa, parallel); }, threads == 1);
  const double work = static_cast<double>(rows * columns * inner) * 1e-9;
  std::printf("%-8s %5lld x %5lld x %5lld %d thr  product %7.3f ms %6.1f G/s (median %7.3f)  with quantizing "
              "%7.3f ms %6.1f G/s  (a %6.3f ms, b %6.3f ms)\n",
              what, static_cast<long long>(rows), static_cast<long long>(columns), static_cast<long long>(inner),
              threads, product.best * 1e3, work / product.best, product.median * 1e3,
              (product.best + one.best + other.best) * 1e3, work / (product.best + one.best + other.best),
              one.best * 1e3, other.best * 1e3);
  std::fflush(stdout);
}

}  // namespace

/// int8_bench [instruction set]
int main(int argc, char** argv) {
  const Isa isa = choose_isa(argc > 1 ? argv[1] : nullptr);
  for (const int threads : {1, 2}) {
    std::unique_ptr<ulp::Parallel> pool;
    if (threads > 1) pool = std::make_unique<ulp::runtime::ThreadPool>(threads);
    const ulp::SerialParallel serial;
    const ulp::Parallel& parallel = pool ? *pool : static_cast<const ulp::Parallel&>(serial);
    for (const int64_t tokens : {512, 1024, 2048}) {
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{768, 768}, {768, 3072}, {3072, 768}}) {
        measure("forward", tokens, out, in, false, isa, threads, parallel);
        measure("weights", out, in, tokens, true, isa, threads, parallel);
      }
    }
  }
  return 0;
}
