#include "ulp/kernels/training/optimizer.h"

#include <algorithm>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/dispatch.h"

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

int64_t chunks_of(const OptimizerTensor& tensor) {
  return (tensor.size + kChunk - 1) / kChunk;
}

/// Calls with(chunk, number) for all chunks in any order, in runs of neighbours on the threads of `parallel`.
/// Nothing is allocated.
template <typename With>
void for_chunks(std::span<const OptimizerTensor> tensors, const Parallel* parallel, const With& with) {
  constexpr int64_t kRunsOfThread = 8;
  constexpr int64_t kElementsOfThread = 2 * kChunk;  // fewer are done before another thread is awake
  int64_t chunks = 0, elements = 0;
  for (const OptimizerTensor& tensor : tensors) {
    chunks += chunks_of(tensor);
    elements += tensor.size;
  }
  const auto run = [&](int64_t from, int64_t to) {
    int64_t number = 0;  // of the tensor's first chunk
    for (const OptimizerTensor& tensor : tensors) {
      const int64_t own = chunks_of(tensor);
      for (int64_t i = std::max<int64_t>(0, from - number); i < std::min(own, to - number); ++i) {
        const int64_t begin = i * kChunk;
        with(Chunk{&tensor, begin, std::min(kChunk, tensor.size - begin)}, number + i);
      }
      number += own;
      if (number >= to) return;
    }
  };
  if (parallel == nullptr || parallel->workers() == 1 || elements < 2 * kElementsOfThread)
    return run(0, chunks);
  const int64_t runs = std::min(chunks, kRunsOfThread * parallel->workers());
  parallel->run(runs, [&](int64_t i, int) { run(chunks * i / runs, chunks * (i + 1) / runs); });
}

constexpr Variant<const OptimizerOps*> kTables[] = {{Isa::avx512, ULP_ON_X86(&kOptimizerOpsAvx512)},
                                                    {Isa::avx2, ULP_ON_X86(&kOptimizerOpsAvx2)},
                                                    {Isa::portable, &kOptimizerOpsPortable}};

const OptimizerOps& optimizer_ops(Isa isa) {
  return *first_admitted(kTables, isa);
}

const void* at(const void* base, int64_t bytes) {
  return static_cast<const char*>(base) + bytes;
}
void* at(void* base, int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<char*>(base) + bytes;
}

void check_types(const char* where, const std::vector<OptimizerTensor>& tensors) {
  for (const OptimizerTensor& tensor : tensors) {
    const DataType type = tensor.gradient_type;
    if (type != DataType::f32 && type != DataType::bf16 && type != DataType::f16) {
      fail(where, "expected gradients of f32, bf16 or f16, got ", to_string(type));
    }
  }
}

float* absmax_at(float* absmax, MomentStore store, int64_t begin) {
  const int64_t block = moment_block(store);
  return block == 0 || absmax == nullptr ? nullptr : absmax + begin / block;
}

const MomentBlocks& blocks_of(const char* where, MomentStore store, MomentKind kind, Isa isa) {
  if (moment_block(store) == 0) fail(where, "expected moments of int8 or int4, got others");
  return optimizer_ops(isa).blocks[store == MomentStore::int8 ? 0 : 1][kind == MomentKind::square ? 1 : 0];
}

/// Calls with(begin, size) for the chunks of n elements.
template <typename With>
void for_each_chunk(int64_t n, const Parallel& parallel, const With& with) {
  parallel.run((n + kChunk - 1) / kChunk,
               [&](int64_t i, int) { with(i * kChunk, std::min(kChunk, n - i * kChunk)); });
}

double square_sum(const OptimizerOps& ops, DataType type, const void* gradient, int64_t n) {
  if (type == DataType::f32) return ops.square_sum.f32(gradient, n);
  if (type == DataType::bf16) return ops.square_sum.bf16(gradient, n);
  return ops.square_sum.f16(gradient, n);
}

/// The gradients [begin, begin + size) with zeros where the mask has them.
template <typename T>
std::vector<T> masked_gradients(const OptimizerTensor& tensor, int64_t begin, int64_t size) {
  const T* gradient = static_cast<const T*>(tensor.gradient) + begin;
  std::vector<T> masked(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t element = begin + i;
    if ((tensor.mask[element / 8] >> element % 8 & 1) != 0) masked[static_cast<size_t>(i)] = gradient[i];
  }
  return masked;
}

double square_sum(const OptimizerOps& ops, const Chunk& chunk) {
  const auto& [tensor, begin, size] = chunk;
  const DataType type = tensor->gradient_type;
  if (tensor->mask == nullptr)
    return square_sum(ops, type, at(tensor->gradient, begin * element_bytes(type)), size);
  if (type == DataType::f32)
    return square_sum(ops, type, masked_gradients<uint32_t>(*tensor, begin, size).data(), size);
  return square_sum(ops, type, masked_gradients<uint16_t>(*tensor, begin, size).data(), size);
}

int64_t master_bytes(WeightStore store) {
  switch (store) {
    case WeightStore::bf16_master:
    case WeightStore::f16_master:
      return 4;
    case WeightStore::bf16_split:
    case WeightStore::bf16_kahan:
      return 2;
    case WeightStore::f32:
    case WeightStore::bf16_stochastic:
      break;
  }
  return 0;
}

void update_chunk(const OptimizerOps& ops, const Chunk& chunk, float inverse_scale, float clip) {
  const auto& [tensor, begin, size] = chunk;
  const OptimizerTensor& t = *tensor;
  const UpdateRun run{.gradient = at(t.gradient, begin * element_bytes(t.gradient_type)),
                      .gradient_type = t.gradient_type,
                      .parameter = at(t.parameter, begin * element_bytes(parameter_type(t.store))),
                      .store = t.store,
                      .master = at(t.master, begin * master_bytes(t.store)),
                      .first = at(t.first, moment_bytes(t.moments, begin)),
                      .second = at(t.second, moment_bytes(t.moments, begin)),
                      .first_absmax = absmax_at(t.first_absmax, t.moments, begin),
                      .second_absmax = absmax_at(t.second_absmax, t.moments, begin),
                      .moments = t.moments,
                      .stream_copies = t.stream_copies && t.mask == nullptr,
                      .size = size,
                      .begin = t.random_begin + begin,
                      .inverse_scale = inverse_scale,
                      .clip = clip,
                      .step = t.step,
                      .random = t.random,
                      .mask = t.mask == nullptr ? nullptr : t.mask + begin / 8};
  ops.update[static_cast<size_t>(t.step->kind)](run);
}

}  // namespace

double gradient_square_sum(const std::vector<OptimizerTensor>& tensors, Isa isa, const Parallel& parallel) {
  check_types("kernels.gradient_square_sum", tensors);
  const OptimizerOps& ops = optimizer_ops(isa);
  const std::vector<Chunk> chunks = cut(tensors);
  std::vector<double> sums(chunks.size());
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int) {
    sums[static_cast<size_t>(i)] = square_sum(ops, chunks[static_cast<size_t>(i)]);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void update_parameters(const std::vector<OptimizerTensor>& tensors, float inverse_scale, float clip, Isa isa,
                       const Parallel& parallel) {
  check_types("kernels.update_parameters", tensors);
  const OptimizerOps& ops = optimizer_ops(isa);
  const std::vector<Chunk> chunks = cut(tensors);
  parallel.run(static_cast<int64_t>(chunks.size()), [&](int64_t i, int) {
    update_chunk(ops, chunks[static_cast<size_t>(i)], inverse_scale, clip);
  });
}

double gradient_square_sum(std::span<const OptimizerTensor> tensors, Isa isa, const Parallel* parallel,
                           std::span<double> sums) {
  const OptimizerOps& ops = optimizer_ops(isa);
  for_chunks(tensors, parallel, [&](const Chunk& chunk, int64_t i) {
    const auto* gradient = static_cast<const float*>(chunk.tensor->gradient);
    sums[static_cast<size_t>(i)] = ops.square_sum.f32(gradient + chunk.begin, chunk.size);
  });
  double sum = 0;
  for (int64_t i = 0; i < gradient_chunks(tensors); ++i) sum += sums[static_cast<size_t>(i)];
  return sum;
}

void update_parameters(std::span<const OptimizerTensor> tensors, float inverse_scale, float clip, Isa isa,
                       const Parallel* parallel) {
  const OptimizerOps& ops = optimizer_ops(isa);
  for_chunks(tensors, parallel,
             [&](const Chunk& chunk, int64_t) { update_chunk(ops, chunk, inverse_scale, clip); });
}

int64_t gradient_chunks(std::span<const OptimizerTensor> tensors) {
  int64_t chunks = 0;
  for (const OptimizerTensor& tensor : tensors) chunks += chunks_of(tensor);
  return chunks;
}

void load_moments(MomentStore store, MomentKind kind, const uint8_t* codes, const float* absmax, int64_t n,
                  float* wide, Isa isa, const Parallel& parallel) {
  const MomentBlocks& blocks = blocks_of("kernels.load_moments", store, kind, isa);
  for_each_chunk(n, parallel, [&](int64_t begin, int64_t size) {
    blocks.load(codes + moment_bytes(store, begin), absmax + begin / moment_block(store), size, wide + begin);
  });
}

void store_moments(MomentStore store, MomentKind kind, const float* wide, int64_t n, uint8_t* codes,
                   float* absmax, Isa isa, const Parallel& parallel) {
  const MomentBlocks& blocks = blocks_of("kernels.store_moments", store, kind, isa);
  for_each_chunk(n, parallel, [&](int64_t begin, int64_t size) {
    blocks.store(wide + begin, size, codes + moment_bytes(store, begin),
                 absmax + begin / moment_block(store));
  });
}

}  // namespace ulp::kernels
