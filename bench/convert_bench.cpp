// Conversions of arrays between fp32 and the small formats, beside LibTorch's copy_ between the same types
// and beside a plain copy, which is what the memory allows.
//
// Arrays of 2^24 numbers, larger than the caches; both sides use one thread per core, write into memory that
// exists, and are counted by the bytes they must read and write once.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <cstring>
#include <string>
#include <vector>

#include "ulp/kernels/convert/convert.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::formats::Rounding;
using ulp::kernels::ArrayCast;
using ulp::kernels::Isa;

constexpr int64_t kCount = int64_t{1} << 24;

const ulp::runtime::ThreadPool& pool() {
  static const ulp::runtime::ThreadPool threads(at::get_num_threads());
  return threads;
}

const std::vector<float>& numbers() {
  static const std::vector<float> x = [] {
    const auto drawn = torch::randn({kCount});
    return std::vector<float>(drawn.data_ptr<float>(), drawn.data_ptr<float>() + kCount);
  }();
  return x;
}

void count_bytes(benchmark::State& state, double bytes_per_number) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes_per_number * kCount) * state.iterations());
}

void copy(benchmark::State& state) {
  std::vector<float> y(kCount);
  constexpr int64_t kPiece = 16384;
  for (auto _ : state) {
    pool().run(kCount / kPiece, [&](int64_t task, int) {
      std::memcpy(y.data() + task * kPiece, numbers().data() + task * kPiece, kPiece * sizeof(float));
    });
    benchmark::ClobberMemory();
  }
  count_bytes(state, 8);
}

template <typename Code>
void encode(benchmark::State& state, const ulp::formats::Format& format, Rounding rounding, Isa isa) {
  std::vector<Code> y(kCount);
  const ArrayCast cast{.rounding = rounding, .key = {1, 0}};
  for (auto _ : state) {
    ulp::kernels::encode(format, numbers().data(), y.data(), kCount, cast, isa, pool());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 4 + sizeof(Code));
}

template <typename Code>
void decode(benchmark::State& state, const ulp::formats::Format& format, Isa isa) {
  std::vector<Code> codes(kCount);
  ulp::kernels::encode(format, numbers().data(), codes.data(), kCount, {}, isa, pool());
  std::vector<float> y(kCount);
  for (auto _ : state) {
    ulp::kernels::decode(format, codes.data(), y.data(), kCount, isa, pool());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 4 + sizeof(Code));
}

void round(benchmark::State& state, const ulp::formats::Format& format, Isa isa) {
  std::vector<float> y(kCount);
  for (auto _ : state) {
    ulp::kernels::round_to_format(format, numbers().data(), y.data(), kCount, {}, isa, pool());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 8);
}

void blocks(benchmark::State& state, const ulp::formats::BlockFormat& format, Isa isa) {
  std::vector<uint8_t> scales(static_cast<size_t>(kCount / format.size)), codes(kCount);
  const float tensor = ulp::formats::tensor_scale(format, numbers());
  for (auto _ : state) {
    ulp::kernels::quantize_blocks(format, numbers().data(), tensor, scales.data(), codes.data(), kCount, {},
                                  isa, pool());
    benchmark::ClobberMemory();
  }
  count_bytes(state, 5 + 1.0 / format.size);
}

void torch_copy(benchmark::State& state, at::ScalarType from, at::ScalarType to) {
  const auto x = torch::from_blob(const_cast<float*>(numbers().data()), {kCount}).to(from);
  auto y = torch::empty({kCount}, to);
  for (auto _ : state) {
    y.copy_(x);
    benchmark::ClobberMemory();
  }
  count_bytes(state, static_cast<double>(x.element_size() + y.element_size()));
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->Unit(benchmark::kMillisecond)->UseRealTime();
}

struct Pair {
  const char* name;
  at::ScalarType dtype;
};

template <typename Code>
void register_format(const Pair& pair, Isa isa) {
  const ulp::formats::Format& format = ulp::formats::find(pair.name);
  const std::string name = pair.name, ours = std::string("ulp_") + to_string(isa);
  const auto dtype = pair.dtype;
  add("to_" + name + "/" + ours,
      [=, &format](auto& s) { encode<Code>(s, format, Rounding::nearest_even, isa); });
  if (isa != Isa::portable) add("to_" + name + "/torch", [=](auto& s) { torch_copy(s, at::kFloat, dtype); });
  add("to_" + name + "_stochastic/" + ours,
      [=, &format](auto& s) { encode<Code>(s, format, Rounding::stochastic, isa); });
  add("from_" + name + "/" + ours, [=, &format](auto& s) { decode<Code>(s, format, isa); });
  if (isa != Isa::portable)
    add("from_" + name + "/torch", [=](auto& s) { torch_copy(s, dtype, at::kFloat); });
}

void register_all() {
  add("copy_f32/memcpy", copy);
  for (Isa isa : {ulp::kernels::selected_isa(), Isa::portable}) {
    for (const Pair& pair : {Pair{"bf16", at::kBFloat16}, Pair{"fp16", at::kHalf}})
      register_format<uint16_t>(pair, isa);
    for (const Pair& pair : {Pair{"fp8_e4m3fn", at::kFloat8_e4m3fn}, Pair{"fp8_e5m2", at::kFloat8_e5m2}}) {
      register_format<uint8_t>(pair, isa);
    }
    const std::string ours = std::string("/ulp_") + to_string(isa);
    for (const char* name : {"tf32", "fp8_e4m3fn"}) {
      add(std::string("round_to_") + name + ours, [=](auto& s) { round(s, ulp::formats::find(name), isa); });
    }
    for (const ulp::formats::BlockFormat& format : ulp::formats::all_blocks()) {
      add("quantize_" + std::string(format.name) + ours, [&format, isa](auto& s) { blocks(s, format, isa); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  register_all();
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
