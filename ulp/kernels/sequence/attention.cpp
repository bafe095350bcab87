#include "ulp/kernels/sequence/attention.h"

#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/sequence/attention_head.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const HeadFn*> kHeads[] = {
    {Isa::avx512, &kHeadAvx512}, {Isa::avx2, &kHeadAvx2}, {Isa::portable, &kHeadPortable}};

HeadFn head_of(Isa isa) {
  return *first_admitted(kHeads, isa);
}

int64_t worker_floats(const AttentionShape& shape) {
  return round_up(head_scratch(shape.keys, shape.depth), 16);
}

}  // namespace

size_t attention_workspace_bytes(const AttentionShape& shape, int workers) {
  return static_cast<size_t>(workers * worker_floats(shape)) * sizeof(float);
}

void attention(const AttentionShape& shape, int64_t batch, const float* q, const float* k, const float* v,
               const float* mask, float* y, void* workspace, Isa isa, const Parallel& parallel) {
  const HeadFn head = head_of(isa);
  const int64_t stride = shape.heads * shape.depth;
  parallel.run(batch * shape.heads, [&](int64_t task, int worker) {
    const int64_t item = task / shape.heads, offset = task % shape.heads * shape.depth;
    const int64_t query = item * shape.queries * stride + offset, key = item * shape.keys * stride + offset;
    head({.q = q + query,
          .k = k + key,
          .v = v + key,
          .y = y + query,
          .stride = stride,
          .mask = mask == nullptr ? nullptr : mask + item * shape.keys,
          .queries = shape.queries,
          .keys = shape.keys,
          .depth = shape.depth,
          .scale = shape.scale,
          .causal = shape.causal,
          .scratch = static_cast<float*>(workspace) + worker * worker_floats(shape)});
  });
}

}  // namespace ulp::kernels
