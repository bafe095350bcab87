#include "ulp/kernels/training/optimizer.h"

#include <algorithm>
#include <numeric>

namespace ulp::kernels {
namespace {

/// Elements a task: some microseconds of work, and few enough that small tensors are spread, too. The sums of
/// the chunks are added in order, so the number is part of the result.
constexpr int64_t kChunk = 1 << 14;

struct Chunk {
  const OptimizerTensor* tensor;
  int64_t begin, size;
};

std::vector<Chunk> cut(const std::vector<OptimizerTensor>& tensors) {
  std::vector<Chunk> chunks;
  for (const OptimizerTensor& tensor : tensors) {
    for (int64_t begin = 0; begin < tensor.size; begin += kChunk)
      chunks.push_back({&tensor, begin, std::min(kChunk, tensor.size - begin)});
  }
  return chunks;
}

const OptimizerOps& optimizer_ops(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return kOptimizerOpsPortable;
    case Isa::avx2:
      return kOptimizerOpsAvx2;
    default:
      return kOptimizerOpsAvx512;
  }
}

const void* at(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
void* at(void* base, int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<char*>(base) + bytes;
}

int64_t bytes_of(FloatType type) {
  return type == FloatType::f32 ? 4 : 2;
}
int64_t bytes_of(MomentStore store) {
  return store == MomentStore::f32 ? 4 : 2;
}
int64_t parameter_bytes(WeightStore store) {
  return store == WeightStore::f32 ? 4 : 2;
}
int64_t master_bytes(WeightStore store) {
  switch (store) {
    case WeightStore::bf16_master:
    case WeightStore::f16_master:
      return 4;
    case WeightStore::bf16_split:
    case WeightStore::bf16_kahan:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

double gradient_square_sum(const std::vector<OptimizerTensor>& tensors, Isa isa, const Parallel& parallel) {
  const OptimizerOps& ops = optimizer_ops(isa);
  const std::vector<Chunk> chunks = cut(tensors);
  std::vector<double> sums(chunks.size());
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int) {
    const auto& [tensor, begin, size] = chunks[static_cast<size_t>(i)];
    const auto type = tensor->gradient_type;
    const void* gradient = at(tensor->gradient, begin * bytes_of(type));
    sums[static_cast<size_t>(i)] = ops.square_sum[static_cast<size_t>(type)](gradient, size);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void update_parameters(const std::vector<OptimizerTensor>& tensors, float inverse_scale, float clip, Isa isa,
                       const Parallel& parallel) {
  const OptimizerOps& ops = optimizer_ops(isa);
  const std::vector<Chunk> chunks = cut(tensors);
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int) {
    const auto& [tensor, begin, size] = chunks[static_cast<size_t>(i)];
    const OptimizerTensor& t = *tensor;
    const UpdateRun run{.gradient = at(t.gradient, begin * bytes_of(t.gradient_type)),
                        .gradient_type = t.gradient_type,
                        .parameter = at(t.parameter, begin * parameter_bytes(t.store)),
                        .store = t.store,
                        .master = at(t.master, begin * master_bytes(t.store)),
                        .first = at(t.first, begin * bytes_of(t.moments)),
                        .second = at(t.second, begin * bytes_of(t.moments)),
                        .moments = t.moments,
                        .stream_copies = t.stream_copies,
                        .size = size,
                        .begin = begin,
                        .inverse_scale = inverse_scale,
                        .clip = clip,
                        .step = t.step,
                        .random = t.random};
    ops.update[static_cast<size_t>(t.step->kind)](run);
  });
}

}  // namespace ulp::kernels
