// Attention by itself, computed in f32 and on codes, as static int8 has it: 12 heads of depth 64, results in codes.
//
//   attention_bench [TOKENS] [THREADS]
//
// The best of many calls both ways, in turns. A call counts the clock on the wall, so that the machine has to be quiet.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "bench/read_bandwidth.h"
#include "ulp/kernels/sequence/attention.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::DataType;
using namespace ulp::kernels;
using ulp::bench::seconds;

constexpr int kTurns = 60;

struct alignas(64) Line {
  std::byte bytes[64];
};

double run_once(const AttentionShape& shape, const std::vector<uint8_t>& rows, std::vector<uint8_t>& y,
                std::vector<Line>& workspace, const ulp::Parallel& parallel) {
  const double begin = seconds();
  attention(shape, 1, rows.data(), rows.data(), rows.data(), nullptr, y.data(), workspace.data(),
            selected_isa(), parallel);
  return seconds() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atol(argv[1]) : 128;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  if (tokens < 1 || threads < 1) return std::fputs("attention_bench [TOKENS] [THREADS]\n", stderr), 2;
  const ulp::runtime::ThreadPool pool(threads);
  AttentionShape codes{.heads = 12, .depth = 64, .queries = tokens, .keys = tokens, .scale = 0.125F};
  codes.output = {DataType::u8, {0.02F, 128}};
  AttentionShape floats = codes;
  codes.query = codes.key = codes.value = {DataType::u8, {0.02F, 128}};
  const auto numbers = static_cast<size_t>(tokens * codes.heads * codes.depth);
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(numbers), words(numbers * sizeof(float));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() % 256);
  for (size_t i = 0; i < numbers; ++i)
    reinterpret_cast<float*>(words.data())[i] = (static_cast<float>(bytes[i]) - 128) * 0.02F;
  std::vector<uint8_t> y(numbers);
  std::vector<Line> workspace(
      std::max(attention_workspace_bytes(codes, threads), attention_workspace_bytes(floats, threads)) /
          sizeof(Line) +
      1);
  double best_floats = std::numeric_limits<double>::infinity(), best_codes = best_floats;
  for (int turn = 0; turn < kTurns; ++turn) {
    best_floats = std::min(best_floats, run_once(floats, words, y, workspace, pool));
    best_codes = std::min(best_codes, run_once(codes, bytes, y, workspace, pool));
  }
  std::printf("%ld tokens, %d threads: f32 %.3f ms, codes %.3f ms: %.2fx\n", static_cast<long>(tokens),
              threads, best_floats * 1e3, best_codes * 1e3, best_floats / best_codes);
  return 0;
}
