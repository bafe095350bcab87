// Convolutions of the networks we care about, on every instruction set, with their share of the machine's
// peak.
//
// The peak is measured by the same program just before: independent chains of the instruction that the kernel
// is made of, in registers only. Inputs rotate through more memory than the last-level cache only where the
// layer does so in a network; here every run reads one activation set that fits the caches, as between two
// layers of a small network.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "ulp/kernels/conv/conv.h"

namespace {

using ulp::Activation;
using ulp::DataType;
using ulp::element_bytes;
using ulp::kernels::Conv;
using ulp::kernels::ConvConfig;
using ulp::kernels::ConvShape;
using ulp::kernels::ConvWeights;

using ulp::kernels::Isa;

constexpr int kChains = 16;  // enough to hide the latency of two units
constexpr int64_t kSteps = 20000;

/// Processor time, so that other programs on the machine do not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Kernel>
double best_rate(double operations_per_step, Kernel kernel) {
  double best = 0;
  for (int round = 0; round < 50; ++round) {
    const double start = thread_seconds();
    kernel();
    best = std::max(best, operations_per_step * kSteps * kChains / (thread_seconds() - start));
  }
  return best;
}

#define ULP_KEEP(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx512f"))) void chains_f32_512() {
  __m512 acc[kChains] = {}, a = _mm512_set1_ps(0.5F), b = _mm512_set1_ps(0.25F);
  ULP_KEEP(a);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c)
      __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(acc[c]) : "v"(a), "v"(b));
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) ULP_KEEP(acc[c]);
}
__attribute__((target("avx512f,avx512vnni"))) void chains_u8_512() {
  __m512i acc[kChains] = {}, a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(acc[c]) : "v"(a), "v"(b));
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) ULP_KEEP(acc[c]);
}
__attribute__((target("avx512f,avx512bf16"))) void chains_bf16_512() {
  __m512 acc[kChains] = {};
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c)
      __asm__ volatile("vdpbf16ps %1, %2, %0" : "+v"(acc[c]) : "v"(a), "v"(b));
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) ULP_KEEP(acc[c]);
}
constexpr int kShortChains = 12;  // of sixteen registers
__attribute__((target("avx2,fma"))) void chains_f32_256() {
  __m256 acc[kShortChains] = {}, a = _mm256_set1_ps(0.5F), b = _mm256_set1_ps(0.25F);
  for (int64_t i = 0; i < kSteps * kChains / kShortChains; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kShortChains; ++c)
      __asm__ volatile("vfmadd231ps %1, %2, %0" : "+x"(acc[c]) : "x"(a), "x"(b));
  }
#pragma GCC unroll 16
  for (int c = 0; c < kShortChains; ++c) ULP_KEEP(acc[c]);
}
/// vpmaddwd and the addition of its result: what a step of 16-bit products costs.
__attribute__((target("avx2"))) void chains_u8_256() {
  __m256i acc[kShortChains] = {}, a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  for (int64_t i = 0; i < kSteps * kChains / kShortChains; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kShortChains; ++c) {
      __m256i product;
      __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
                       : "+x"(acc[c]), "=&x"(product)
                       : "x"(a), "x"(b));
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kShortChains; ++c) ULP_KEEP(acc[c]);
}
__attribute__((target("avx512f,avx512bw"))) void chains_i16_512() {
  __m512i acc[kChains] = {}, a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      __m512i product;
      __asm__ volatile("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
                       : "+v"(acc[c]), "=&v"(product)
                       : "v"(a), "v"(b));
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) ULP_KEEP(acc[c]);
}

/// Operations a second of one core; 0 where we measure none.
double measured_peak(const std::string& kernel) {
  static std::vector<std::pair<std::string, double>> known;
  for (const auto& [name, rate] : known) {
    if (name == kernel) return rate;
  }
  double rate = 0;
  if (kernel == "conv_f32_avx512" || kernel == "conv_bf16_avx512") rate = best_rate(32, chains_f32_512);
  if (kernel == "conv_u8_avx512_vnni") rate = best_rate(128, chains_u8_512);
  if (kernel == "conv_bf16_avx512_bf16") rate = best_rate(64, chains_bf16_512);
  if (kernel == "conv_u8_avx512") rate = best_rate(64, chains_i16_512);
  if (kernel == "conv_f32_avx2" || kernel == "conv_bf16_avx2") rate = best_rate(16, chains_f32_256);
  if (kernel == "conv_u8_avx2") rate = best_rate(32, chains_u8_256);
  known.emplace_back(kernel, rate);
  return rate;
}

struct Layer {
  const char* name;
  ConvShape shape;
  int64_t batch;
};

ConvShape conv(int64_t hw, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t groups = 1) {
  return {hw, hw, in, out, k, k, stride, stride, k / 2, k / 2, 1, 1, groups};
}

const Layer kLayers[] = {
    {"resnet20/first_1x16", conv(28, 1, 16, 3, 1), 64},
    {"resnet20/28x28_16", conv(28, 16, 16, 3, 1), 64},
    {"resnet20/28x28_16x32_s2", conv(28, 16, 32, 3, 2), 64},
    {"resnet20/14x14_32", conv(14, 32, 32, 3, 1), 64},
    {"resnet20/7x7_64", conv(7, 64, 64, 3, 1), 64},
    {"resnet20/linear_64x10", conv(1, 64, 10, 1, 1), 64},
    {"resnet20_b1/28x28_16", conv(28, 16, 16, 3, 1), 1},
    {"resnet20_b1/14x14_32", conv(14, 32, 32, 3, 1), 1},
    {"resnet20_b1/7x7_64", conv(7, 64, 64, 3, 1), 1},
    {"resnet50/first_3x64_k7s2", conv(224, 3, 64, 7, 2), 1},
    {"resnet50/56x56_64", conv(56, 64, 64, 3, 1), 1},
    {"resnet50/56x56_64x256_1x1", conv(56, 64, 256, 1, 1), 1},
    {"resnet50/28x28_128", conv(28, 128, 128, 3, 1), 1},
    {"resnet50/14x14_256", conv(14, 256, 256, 3, 1), 1},
    {"resnet50/7x7_512", conv(7, 512, 512, 3, 1), 1},
    {"resnet50/7x7_2048x512_1x1", conv(7, 2048, 512, 1, 1), 1},
    {"resnet50/linear_2048x1000", conv(1, 2048, 1000, 1, 1), 1},
    {"mobilenet/112x112_32_dw", conv(112, 32, 32, 3, 1, 32), 1},
    {"mobilenet/56x56_144_dw", conv(56, 144, 144, 3, 1, 144), 1},
    {"mobilenet/28x28_192x64_1x1", conv(28, 192, 64, 1, 1), 1},
    {"mobilenet/7x7_960_dw", conv(7, 960, 960, 3, 1, 960), 1},
    {"mobilenet/7x7_960x320_1x1", conv(7, 960, 320, 1, 1), 1},
};

struct Job {
  std::vector<int8_t> w8;
  std::vector<float> w, scale;
  std::vector<uint8_t> x, residual, y, workspace;
  std::unique_ptr<Conv> conv;
};

Job make_job(const Layer& layer, DataType type, Isa isa) {
  const ConvShape& s = layer.shape;
  Job job;
  std::mt19937 engine(1);
  const auto weights =
      static_cast<size_t>(s.out_channels * s.in_channels / s.groups * s.kernel_h * s.kernel_w);
  for (size_t i = 0; i < weights; ++i) {
    job.w8.push_back(static_cast<int8_t>(engine() % 255 - 127));
    job.w.push_back(static_cast<float>(job.w8.back()) / 1000);
  }
  job.scale.assign(static_cast<size_t>(s.out_channels), 0.001F);
  ConvConfig config;
  config.shape = s;
  config.input = config.output = type;
  config.activation = Activation::relu;
  config.input_q = config.output_q = {0.1F, 100};
  const ConvWeights given{.f32 = job.w.data(), .i8 = job.w8.data(), .scale = job.scale.data()};
  job.conv = make_conv(config, given, isa);
  const int64_t bytes = element_bytes(type);
  job.x.resize(static_cast<size_t>(layer.batch * s.in_h * s.in_w * s.in_channels * bytes));
  for (auto& v : job.x) v = static_cast<uint8_t>(type == DataType::u8 ? engine() % 256 : 0x3c);
  job.y.resize(static_cast<size_t>(layer.batch * s.out_h() * s.out_w() * s.out_channels * bytes));
  job.workspace.resize(job.conv->workspace_bytes(layer.batch, 1) + 64);
  return job;
}

void run_layer(benchmark::State& state, const Layer& layer, DataType type, Isa isa) {
  const Job job = make_job(layer, type, isa);
  auto* workspace =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(job.workspace.data()) + 63) / 64 * 64);
  auto* y = const_cast<uint8_t*>(job.y.data());
  const ulp::SerialParallel serial;
  const double peak = measured_peak(job.conv->name());
  for (auto _ : state) {
    job.conv->run(layer.batch, job.x.data(), nullptr, y, workspace, serial);
    benchmark::ClobberMemory();
  }
  const ConvShape& s = layer.shape;
  const double operations = 2.0 * static_cast<double>(layer.batch * s.out_h() * s.out_w() * s.out_channels) *
                            static_cast<double>(s.in_channels / s.groups * s.kernel_h * s.kernel_w);
  const double done = operations * static_cast<double>(state.iterations());
  state.counters["GOP/s"] = benchmark::Counter(done / 1e9, benchmark::Counter::kIsRate);
  if (peak > 0) state.counters["peak"] = peak / 1e9;
  if (peak > 0) state.counters["of_peak"] = benchmark::Counter(done / peak, benchmark::Counter::kIsRate);
  state.SetLabel(job.conv->name());
}

void register_all() {
  const std::pair<DataType, const char*> types[] = {
      {DataType::u8, "u8"}, {DataType::bf16, "bf16"}, {DataType::f32, "f32"}};
  for (Isa isa : ulp::kernels::available_isas()) {
    if (isa == Isa::portable || isa == Isa::amx_emulated) continue;  // slow by design
    for (const auto& [type, word] : types) {
      for (const Layer& layer : kLayers) {
        const std::string name = std::string(to_string(isa)) + "/" + word + "/" + layer.name;
        benchmark::RegisterBenchmark(name.c_str(), [layer, type = type, isa](benchmark::State& state) {
          run_layer(state, layer, type, isa);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
