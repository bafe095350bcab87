// Dense products of the engine, as linear layers and 1x1 convolutions use them, beside the peak of their instruction
// measured just before: rows x inner x columns in f32, bf16 and int8, on one thread and on all.
//
//   gemm_bench [f32|narrow|bf16|u8|dynamic|weight8|weight4] [ROWS]
//   gemm_bench gemv [f32|narrow|bf16|u8|dynamic|weight8|weight4]
//
// `narrow` is a layer in f32 that multiplies in bf16. `gemv` is one row times 4096 x 4096 weights that come from memory, beside what reading alone reaches. The best and the median of many calls. A call counts the clock on the wall, so that the machine has to be quiet.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/read_bandwidth.h"
#include "ulp/kernels/conv/conv.h"
#include "ulp/kernels/conv/narrow_conv.h"
#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/kernels/linear/weight_linear.h"
#include "ulp/kernels/peak/peak.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::DataType;
using namespace ulp::kernels;
using ulp::bench::read_bandwidth;
using ulp::bench::seconds;

struct Times {
  double best, median;
};

Times time(const std::function<void()>& work) {
  work();
  std::vector<double> turns;
  const double begin = seconds();
  while (turns.size() < 5 || (seconds() - begin < 0.3 && turns.size() < 400)) {
    const double start = seconds();
    work();
    turns.push_back(seconds() - start);
  }
  std::sort(turns.begin(), turns.end());
  return {turns[0], turns[turns.size() / 2]};
}

/// Operations a second of one core in registers, for products of numbers of a type.
double peak_of(MathType type) {
  double best = 0;
  for (const PeakChoice& choice : peak_loops(selected_isa())) {
    if (choice.loop.type != type && !(type == MathType::bf16 && choice.loop.type == MathType::f32)) continue;
    alignas(64) char sink[64];
    constexpr int64_t kPasses = 4000;
    choice.loop.run(kPasses, sink);
    for (int turn = 0; turn < 40; ++turn) {
      const double start = seconds();
      choice.loop.run(kPasses, sink);
      best = std::max(best, choice.loop.operations * kPasses / (seconds() - start));
    }
  }
  return best;
}

/// Memory on a cache line.
class Buffer {
 public:
  explicit Buffer(int64_t bytes = 64) : lines_(static_cast<size_t>(bytes) / 64 + 1) {}
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(lines_.data());
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

struct Shape {
  int64_t rows, inner, columns;
};

constexpr int64_t kGroup = 128;  // weights of 4 bits that share a scale

/// Random weights: codes, and numbers that are a thousandth of them.
struct Weights {
  std::vector<int8_t> codes;
  std::vector<float> numbers, scale;

  explicit Weights(size_t count) : codes(count), numbers(count), scale(count / kGroup, 0.001F) {
    std::mt19937 random(1);
    for (size_t i = 0; i < count; ++i) {
      codes[i] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      numbers[i] = static_cast<float>(codes[i]) / 1000;
    }
  }
};

/// Those of the layer before, if it had as many: making them takes longer than all else.
const Weights& weights_of(size_t count) {
  static std::unique_ptr<const Weights> kept;
  if (!kept || kept->codes.size() != count) kept = std::make_unique<const Weights>(count);
  return *kept;
}

/// A layer with random weights, and what it reads and writes.
class Product {
 public:
  Product(const std::string& word, const Shape& s) : shape_(s) {
    std::mt19937 random(1);
    const auto& [codes, numbers, scale] = weights_of(static_cast<size_t>(s.inner * s.columns));
    const DataType type = word == "bf16" ? DataType::bf16 : word == "u8" ? DataType::u8 : DataType::f32;
    x_ = Buffer(s.rows * s.inner * 4);
    y_ = Buffer(s.rows * s.columns * 4);
    for (int64_t i = 0; i < s.rows * s.inner; ++i) {
      if (type == DataType::u8) x_.as<uint8_t>()[i] = static_cast<uint8_t>(random() % 256);
      if (type == DataType::bf16) x_.as<uint16_t>()[i] = static_cast<uint16_t>(0x3c00U + random() % 0x100U);
      if (type == DataType::f32) x_.as<float>()[i] = static_cast<float>(random() % 1000) / 1000 - 0.5F;
    }
    if (word == "dynamic") {
      DynamicLinearConfig config;
      config.in = s.inner;
      config.out = s.columns;
      DynamicLinearWeights weights;
      weights.codes = codes.data();
      weights.scale = scale.data();
      dynamic_ = make_dynamic_linear(config, weights, selected_isa());
      return;
    }
    if (is_coded(word)) {
      const int bits = word == "weight4" ? 4 : 8;
      coded_ = make_weight_linear(
          {.in = s.inner, .out = s.columns, .group = bits == 4 ? kGroup : s.inner, .bits = bits},
          {.codes = codes.data(), .scale = scale.data()}, selected_isa());
      return;
    }
    ConvConfig config;
    config.shape.in_channels = s.inner;
    config.shape.out_channels = s.columns;
    config.input = config.output = type;
    config.input_q = config.output_q = {0.1F, 100};
    const ConvWeights given{.f32 = numbers.data(), .i8 = codes.data(), .scale = scale.data()};
    conv_ = (word == "narrow" ? make_narrow_conv : make_conv)(config, given, selected_isa());
  }

  std::function<void()> work(const ulp::Parallel& parallel) {
    const int workers = parallel.workers();
    const size_t bytes = conv_    ? conv_->workspace_bytes(shape_.rows, workers)
                         : coded_ ? coded_->workspace_bytes(shape_.rows, workers)
                                  : dynamic_->workspace_bytes(shape_.rows, workers);
    workspace_ = Buffer(static_cast<int64_t>(bytes) + 64);
    return [this, &parallel] {
      if (conv_)
        return conv_->run(shape_.rows, x_.as<void>(), nullptr, y_.as<void>(), workspace_.as<void>(),
                          parallel);
      const auto run = [&](const auto& layer) {
        layer.run(shape_.rows, x_.as<float>(), nullptr, y_.as<float>(), workspace_.as<void>(), parallel);
      };
      coded_ ? run(*coded_) : run(*dynamic_);
    };
  }

  static bool is_coded(const std::string& word) { return word.starts_with("weight"); }

 private:
  Shape shape_;
  Buffer x_, y_, workspace_;
  std::unique_ptr<Conv> conv_;
  std::unique_ptr<DynamicLinear> dynamic_;
  std::unique_ptr<WeightLinear> coded_;
};

void table(const std::string& word, int64_t only_rows) {
  const MathType type = word == "f32" || Product::is_coded(word) ? MathType::f32
                        : word == "bf16" || word == "narrow"     ? MathType::bf16
                                                                 : MathType::int8;
  const double peak = peak_of(type);
  std::printf("\n%s: peak of one thread %.1f G/s\n", word.c_str(), peak / 1e9);
  std::printf(
      "| rows x inner x columns | threads | G/s | of the peak | median |\n|---|---:|---:|---:|---:|\n");
  const ulp::runtime::ThreadPool pool;
  const ulp::SerialParallel serial;
  for (int64_t rows : {1, 8, 49, 128, 196, 1024, 4096}) {
    if (only_rows != 0 && rows != only_rows) continue;
    for (const auto& [inner, columns] :
         {std::pair<int64_t, int64_t>{768, 768}, {768, 3072}, {3072, 768}, {2048, 2048}}) {
      Product product(word, {rows, inner, columns});
      for (const ulp::Parallel* parallel :
           {static_cast<const ulp::Parallel*>(&serial), static_cast<const ulp::Parallel*>(&pool)}) {
        const Times times = time(product.work(*parallel));
        const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(inner * columns);
        const double limit = peak * parallel->workers();
        std::printf("| %ld x %ld x %ld | %d | %.1f | %.1f %% | %.1f %% |\n", static_cast<long>(rows),
                    static_cast<long>(inner), static_cast<long>(columns), parallel->workers(),
                    operations / times.best / 1e9, 100 * operations / times.best / limit,
                    100 * operations / times.median / limit);
        std::fflush(stdout);
      }
    }
  }
}

/// One row, and so many layers in turn that the weights of each come from memory.
void vector_table(const std::vector<const char*>& words) {
  constexpr int64_t kSize = 4096;
  constexpr double kBeyondCaches = 600e6;
  const ulp::runtime::ThreadPool pool;
  const ulp::SerialParallel serial;
  std::printf(
      "| weights, 4096 x 4096 | threads | us | GB/s | of reading alone | median |\n"
      "|---|---:|---:|---:|---:|---:|\n");
  for (const char* word : words) {
    const std::string name = word;
    const double element = name == "f32"                        ? 4
                           : name == "bf16" || name == "narrow" ? 2
                           : name == "weight4"                  ? 0.5 + 4.0 / kGroup
                                                                : 1;
    const double bytes = element * kSize * kSize;
    const auto layers = static_cast<size_t>(kBeyondCaches / bytes) + 1;
    std::vector<std::unique_ptr<Product>> products;
    for (size_t i = 0; i < layers; ++i)
      products.push_back(std::make_unique<Product>(name, Shape{1, kSize, kSize}));
    for (const ulp::Parallel* parallel :
         {static_cast<const ulp::Parallel*>(&serial), static_cast<const ulp::Parallel*>(&pool)}) {
      const double limit = read_bandwidth(*parallel);
      std::vector<std::function<void()>> calls;
      for (const auto& product : products) calls.push_back(product->work(*parallel));
      const Times all = time([&] {
        for (const auto& call : calls) call();
      });
      const double count = static_cast<double>(layers);
      std::printf("| %s | %d | %.0f | %.1f | %.1f %% | %.1f %% |\n", word, parallel->workers(),
                  all.best / count * 1e6, bytes * count / all.best / 1e9,
                  100 * bytes * count / all.best / limit, 100 * bytes * count / all.median / limit);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<const char*> words = {"f32", "narrow", "bf16", "u8", "dynamic", "weight8", "weight4"};
  const bool vectors = argc > 1 && std::strcmp(argv[1], "gemv") == 0;
  const std::string only = argc > 1 + vectors ? argv[1 + vectors] : "";
  if (!only.empty()) std::erase_if(words, [&](const char* word) { return only != word; });
  if (words.empty()) {
    std::fprintf(stderr,
                 "gemm_bench: expected f32, narrow, bf16, u8, dynamic, weight8, weight4 or gemv, got '%s'\n",
                 only.c_str());
    return 2;
  }
  if (vectors) {
    vector_table(words);
  } else {
    for (const char* word : words) table(word, argc > 2 ? std::atol(argv[2]) : 0);
  }
  return 0;
}
