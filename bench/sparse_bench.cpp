// Linear layers that leave out zeros against the dense ones: blocks and bitmasks at several densities.
//
// One thread, processor time. Dense and sparse runs take turns, and each goes through so many copies of the layer that
// their weights do not fit the cache they are said to be out of; the median of the turns is printed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "ulp/kernels/sparse/sparse_linear.h"

namespace {

using ulp::DataType;
using ulp::kernels::Conv;
using ulp::kernels::ConvConfig;
using ulp::kernels::ConvWeights;
using ulp::kernels::Isa;
using Make = std::unique_ptr<Conv> (*)(const ConvConfig&, const ConvWeights&, Isa);

/// Processor time, so that other programs on the machine count little.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Case {
  const char* what;
  DataType type;
  int64_t in, out, rows;
  int kept;     ///< percent of blocks, or of weights
  bool blocks;  ///< zeros come in blocks of 16 x 4 (8 bits) or 16 x 1
  int copies;   ///< of the layer
};

struct Job {
  ConvConfig config;
  std::vector<int8_t> codes;
  std::vector<float> floats, scale;
  std::vector<uint8_t> x, y, workspace;
  std::vector<std::unique_ptr<Conv>> dense, sparse;
};

Job make_job(const Case& c, Make make, Isa isa) {
  Job job;
  job.config.shape.in_channels = c.in;
  job.config.shape.out_channels = c.out;
  job.config.input = job.config.output = c.type;
  job.config.input_q = job.config.output_q = {0.1F, 100};
  job.scale.assign(static_cast<size_t>(c.out), 0.01F);
  std::mt19937 random(1);
  const auto draw = [&] { return static_cast<int>(random() % 100); };
  const int64_t inputs = c.type == DataType::u8 ? 4 : 1, in_row = (c.in + inputs - 1) / inputs;
  for (int copy = 0; copy < c.copies; ++copy) {
    std::vector<uint8_t> kept(static_cast<size_t>((c.out + 15) / 16 * in_row));
    for (uint8_t& keep : kept) keep = draw() < c.kept;
    job.codes.clear();
    job.floats.clear();
    for (int64_t o = 0; o < c.out; ++o) {
      for (int64_t i = 0; i < c.in; ++i) {
        const bool keep =
            c.blocks ? kept[static_cast<size_t>(o / 16 * in_row + i / inputs)] != 0 : draw() < c.kept;
        const int value = 1 + static_cast<int>(random() % 127);
        job.codes.push_back(static_cast<int8_t>(keep ? value : 0));
        job.floats.push_back(keep ? static_cast<float>(value) * 0.01F : 0.0F);
      }
    }
    const ConvWeights weights{.f32 = job.floats.data(), .i8 = job.codes.data(), .scale = job.scale.data()};
    job.dense.push_back(make_conv(job.config, weights, isa));
    job.sparse.push_back(make(job.config, weights, isa));
  }
  const auto bytes = static_cast<size_t>(ulp::element_bytes(c.type));
  job.x.resize(static_cast<size_t>(c.rows * c.in) * bytes);
  for (uint8_t& v : job.x) v = static_cast<uint8_t>(c.type == DataType::u8 ? random() % 256 : 0x3c);
  job.y.resize(static_cast<size_t>(c.rows * c.out) * bytes);
  job.workspace.resize(
      std::max(job.dense[0]->workspace_bytes(c.rows, 1), job.sparse[0]->workspace_bytes(c.rows, 1)) + 64);
  return job;
}

double seconds_per_run(Job& job, const std::vector<std::unique_ptr<Conv>>& layers, int64_t rows,
                       int repeats) {
  auto* workspace =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(job.workspace.data()) + 63) / 64 * 64);
  const ulp::SerialParallel serial;
  const double start = thread_seconds();
  for (int i = 0; i < repeats; ++i) {
    for (const auto& layer : layers) layer->run(rows, job.x.data(), nullptr, job.y.data(), workspace, serial);
  }
  return (thread_seconds() - start) / (repeats * static_cast<double>(layers.size()));
}

void measure(const Case& c, Make make, Isa isa) {
  Job job = make_job(c, make, isa);
  std::vector<uint8_t> expected;
  seconds_per_run(job, job.dense, c.rows, 1);
  expected = job.y;
  seconds_per_run(job, job.sparse, c.rows, 1);
  if (expected != job.y) {
    std::printf("%s differs from the dense layer\n", job.sparse[0]->name().c_str());
    std::exit(1);
  }
  const double once = seconds_per_run(job, job.dense, c.rows, 1) * c.copies;
  const int repeats = static_cast<int>(std::clamp(0.004 / once, 1.0, 1000.0));
  std::vector<double> dense, sparse, ratio;
  for (int turn = 0; turn < 15; ++turn) {
    dense.push_back(seconds_per_run(job, job.dense, c.rows, repeats));
    sparse.push_back(seconds_per_run(job, job.sparse, c.rows, repeats));
    ratio.push_back(dense.back() / sparse.back());
  }
  std::printf(
      "%-14s %5lld x %-5lld %4lld rows %4d %% kept  dense %9.4f ms  sparse %9.4f ms  %5.2fx  (%s, %s)\n",
      c.what, static_cast<long long>(c.in), static_cast<long long>(c.out), static_cast<long long>(c.rows),
      c.kept, median(dense) * 1e3, median(sparse) * 1e3, median(ratio), job.dense[0]->name().c_str(),
      job.sparse[0]->name().c_str());
  std::fflush(stdout);
}

void measure_blocks(const char* what, DataType type, int64_t in, Isa isa) {
  for (const int kept : {100, 75, 50, 20}) {
    for (const int64_t rows : {1, 4, 16, 64, 256}) {
      measure({what, type, in, 1024, rows, kept, true, 1}, ulp::kernels::make_block_linear, isa);
    }
  }
}

}  // namespace

/// sparse_bench [instruction set [part]], parts being blocks, wide, floats, bits; all of them without one.
int main(int argc, char** argv) {
  const Isa isa = ulp::kernels::choose_isa(argc > 1 ? argv[1] : nullptr);
  const auto wanted = [&](const char* part) { return argc < 3 || std::strcmp(argv[2], part) == 0; };
  if (wanted("blocks")) measure_blocks("s8 16x4", DataType::u8, 1024, isa);
  if (wanted("wide")) measure_blocks("s8 16x4", DataType::u8, 4096, isa);
  if (wanted("floats")) measure_blocks("f32 16x1", DataType::f32, 1024, isa);
  if (!wanted("bits")) return 0;
  // In the second level of the cache, and out of it.
  for (const int copies : {1, 64}) {
    for (const int kept : {50, 30, 20, 10}) {
      for (const int64_t rows : {1, 4}) {
        measure({copies == 1 ? "s8 bits, near" : "s8 bits, far", DataType::u8, 1024, 1024, rows, kept, false,
                 copies},
                ulp::kernels::make_bitmask_linear, isa);
      }
    }
  }
  return 0;
}
