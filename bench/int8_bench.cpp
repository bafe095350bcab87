// Products of int8 matrices as training makes them: the product alone, with quantizing both operands, and
// against the peak of vpdpbusd measured in the same run.
//
// The best and the median of several turns are printed. One thread counts processor time, several the clock
// on the wall.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "ulp/kernels/linear/int8_block_product.h"
#include "ulp/kernels/linear/int8_product.h"
#include "ulp/kernels/training/int8_quantizers.h"
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

/// Products a second of one thread that does nothing but vpdpbusd, in twelve chains; the best of a few turns.
double peak_of_vnni() {
  constexpr int64_t kTimes = 400'000, kChains = 12, kProducts = 64;
  double best = 0;
  for (int turn = 0; turn < 15; ++turn) {
    const double start = seconds(true);
    for (int64_t i = 0; i < kTimes; ++i) {
      __asm__ volatile(
          "vpdpbusd %%zmm0, %%zmm0, %%zmm1\n vpdpbusd %%zmm0, %%zmm0, %%zmm2\n"
          "vpdpbusd %%zmm0, %%zmm0, %%zmm3\n vpdpbusd %%zmm0, %%zmm0, %%zmm4\n"
          "vpdpbusd %%zmm0, %%zmm0, %%zmm5\n vpdpbusd %%zmm0, %%zmm0, %%zmm6\n"
          "vpdpbusd %%zmm0, %%zmm0, %%zmm7\n vpdpbusd %%zmm0, %%zmm0, %%zmm8\n"
          "vpdpbusd %%zmm0, %%zmm0, %%zmm9\n vpdpbusd %%zmm0, %%zmm0, %%zmm10\n"
          "vpdpbusd %%zmm0, %%zmm0, %%zmm11\n vpdpbusd %%zmm0, %%zmm0, %%zmm12\n" ::
              : "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                "xmm12");
    }
    __asm__ volatile("vzeroupper");
    best = std::max(best, static_cast<double>(kTimes * kChains * kProducts) / (seconds(true) - start));
  }
  return best;
}

/// How a matrix is quantized and multiplied.
enum class Way { rows, columns, blocks };

struct Shape {
  int64_t rows, columns, inner;
};

struct Run {
  Shape shape;
  Way way;
  Isa isa;
  const ulp::Parallel& parallel;

  /// Columns: both operands lie with the sums down their columns, as for the gradient of a weight.
  bool across() const { return way == Way::columns; }
  Operand operand(int64_t rows) const {
    return across() ? Operand(shape.inner, rows) : Operand(rows, shape.inner);
  }
  void quantize(Operand& x) const {
    const Int8Scales scales[] = {Int8Scales::rows, Int8Scales::columns, Int8Scales::blocks};
    int8_quantize(
        {DataType::bf16, x.bf16.data(), x.rows, x.columns}, scales[static_cast<int>(way)],
        {x.scale.data(), across() ? nullptr : x.codes.data(), across() ? x.transposed.data() : nullptr}, {},
        isa, parallel);
  }
  int8_t* codes(Operand& x) const { return across() ? x.transposed.data() : x.codes.data(); }
};

/// The product of two operands, ready to run.
std::function<void()> product(const Run& run, Operand& a, Operand& b, float* y, Lines<uint8_t>& workspace) {
  const DataType output = run.across() ? DataType::f32 : DataType::bf16;
  if (run.way == Way::blocks) {
    Int8BlockProduct p;
    p.rows = run.shape.rows, p.columns = run.shape.columns, p.inner = run.shape.inner;
    p.a = {run.codes(a), a.scale.data()};
    p.b = {run.codes(b), b.scale.data()};
    p.output = output;
    p.y = y;
    workspace = Lines<uint8_t>(static_cast<int64_t>(int8_block_product_workspace(p, run.isa)));
    return [=, &workspace, &run] { int8_block_product(p, workspace.data(), run.isa, run.parallel); };
  }
  Int8Product p;
  p.rows = run.shape.rows, p.columns = run.shape.columns, p.inner = run.shape.inner;
  p.a = {run.codes(a), run.shape.inner, a.scale.data(), true};
  p.b = {run.codes(b), run.shape.inner, b.scale.data(), true};
  p.output = output;
  p.y = y;
  workspace = Lines<uint8_t>(static_cast<int64_t>(int8_product_workspace(p, run.isa)));
  return [=, &workspace, &run] { int8_product(p, workspace.data(), run.isa, run.parallel); };
}

void measure(const Run& run, double peak) {
  const bool alone = run.parallel.workers() == 1;
  Operand a = run.operand(run.shape.rows), b = run.operand(run.shape.columns);
  Lines<float> y(run.shape.rows * run.shape.columns);
  Lines<uint8_t> workspace(0);
  const auto multiply = product(run, a, b, y.data(), workspace);
  const Times of_a = time([&] { run.quantize(a); }, alone), of_b = time([&] { run.quantize(b); }, alone);
  const Times one = time(multiply, alone);
  const Times all = {one.best + of_a.best + of_b.best, one.median + of_a.median + of_b.median};
  const char* const names[] = {"rows", "columns", "blocks"};
  std::printf("%-8s%5lld x %5lld x %5lld", names[static_cast<int>(run.way)],
              static_cast<long long>(run.shape.rows), static_cast<long long>(run.shape.columns),
              static_cast<long long>(run.shape.inner));
  const double work = static_cast<double>(run.shape.rows * run.shape.columns * run.shape.inner);
  const auto print = [&](const char* what, const Times& t) {
    std::printf("  %s %7.3f ms (median %7.3f) %5.0f GMAC/s", what, t.best * 1e3, t.median * 1e3,
                work / t.best * 1e-9);
    if (peak > 0) std::printf(" %3.0f %%", 100 * work / t.best / peak);
  };
  std::printf(", %d threads", run.parallel.workers());
  print("product", one);
  print("with quantizing", all);
  std::printf("  (%.3f and %.3f ms)\n", of_a.best * 1e3, of_b.best * 1e3);
  std::fflush(stdout);
}

}  // namespace

/// int8_bench [instruction set]
int main(int argc, char** argv) {
  const Isa isa = choose_isa(argc > 1 ? argv[1] : nullptr);
  const double peak = admits(isa, Isa::avx512_vnni) ? peak_of_vnni() : 0;
  if (peak > 0) std::printf("vpdpbusd alone: %.0f GMAC/s a thread\n", peak * 1e-9);
  for (const int threads : {1, 2}) {
    const ulp::runtime::ThreadPool pool(threads);
    for (const int64_t tokens : {512, 1024, 2048}) {
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{768, 768}, {768, 3072}, {3072, 768}}) {
        measure({{tokens, out, in}, Way::rows, isa, pool}, peak * threads);
        measure({{out, in, tokens}, Way::columns, isa, pool}, peak * threads);
        measure({{tokens, out, in}, Way::blocks, isa, pool}, peak * threads);
      }
    }
  }
  return 0;
}
