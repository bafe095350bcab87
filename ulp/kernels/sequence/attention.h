// Scaled dot-product attention of several heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// The sizes that stay the same from run to run. A row of q and y holds `heads` runs of `depth` numbers, one
/// of k and v `kv_heads`.
struct AttentionShape {
  int64_t heads = 1, depth = 1;
  int64_t queries = 1, keys = 1;  ///< rows of one item
  float scale = 1;                ///< of the products of queries and keys, usually 1 / sqrt(depth)
  bool causal = false;            ///< query i sees the keys 0 to earlier + i only
  int64_t earlier = 0;            ///< keys before the first query's own
  int64_t item_keys = 0;          ///< rows from item to item of k and v; 0: as many as keys
  /// Heads of keys and values, each shared by heads / kv_heads heads of queries that lie side by side
  /// (Ainslie et al. 2023); divides `heads`. 0: as many as heads.
  int64_t kv_heads = 0;
  int64_t window = 0;  ///< causal: a query sees the last so many of those keys only; 0: all
  float softcap =
      0;  ///< above 0: scores become softcap * tanh(score / softcap) before the mask (Bello et al. 2016)
  /// The formats of q, k and v: one type, and scales of their own. Computed in f32, or see
  /// attention_in_bf16() and _in_codes().
  ElementFormat query = {}, key = {}, value = {};
  ElementFormat output = {};
};

/// True if queries and keys, and the softmax and values, are multiplied in bf16 and summed in f32: inputs are bf16 and this
/// machine is faster so (vdpbf16ps). The softmax is rounded to bf16 then, before it is divided by its sum.
ULP_API bool attention_in_bf16(const AttentionShape& shape, Isa isa);

/// True if queries and keys, and the softmax and values, are multiplied as integers: inputs are u8 codes of a depth up to 32768.
/// Products of queries and keys are exact in 32 bits. A number of the softmax is rounded to a multiple of 1 / 32767 of the
/// row's largest, off by 0.51 of them, and divided by the sum of those: a result is off by keys / 64000 of the range of the values
/// at most, besides roundings of f32. Every instruction set gives the same bits.
ULP_API bool attention_in_int8(const AttentionShape& shape);

/// Bytes of scratch for so many workers.
ULP_API size_t attention_workspace_bytes(const AttentionShape& shape, int workers);

/// y = softmax(scale q k^T + mask) v for each head of each of `batch` items (Vaswani et al. 2017). q and y:
/// [batch][queries][heads * depth], k and v: [batch][item_keys][kv_heads * depth], of which the first `keys`
/// rows are read; mask: [batch][keys], added to the scores of every query (0, or -infinity for a key that is
/// not seen), or null. A query that sees no key gives zeros. y is apart from the inputs; `workspace` is
/// 64-byte aligned.
ULP_API void attention(const AttentionShape& shape, int64_t batch, const void* q, const void* k,
                       const void* v, const float* mask, void* y, void* workspace, Isa isa,
                       const Parallel& parallel);

}  // namespace ulp::kernels
