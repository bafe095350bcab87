#include "ulp/kernels/sequence/attention.h"

#include <algorithm>

#include "ulp/kernels/conv/conv_impl.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/sequence/attention_head.h"

namespace ulp::kernels {
namespace {

constexpr Variant<const HeadFn*> kHeads[] = {{Isa::avx512, ULP_ON_X86(&kHeadAvx512)},
                                             {Isa::avx2, ULP_ON_X86(&kHeadAvx2)},
                                             {Isa::neon, ULP_ON_ARM(&kHeadNeon)},
                                             {Isa::portable, &kHeadPortable}};

constexpr Variant<const HeadCodesFn*> kCodeHeads[] = {{Isa::avx512_vnni, ULP_ON_X86(&kHeadCodesAvx512Vnni)},
                                                      {Isa::avx2, ULP_ON_X86(&kHeadCodesAvx2)},
                                                      {Isa::portable, &kHeadCodesPortable}};

HeadBf16Fn bf16_head() {
  return ULP_ON_X86(kHeadAvx512Bf16);
}

HeadFn head_of(Isa isa) {
  return *first_admitted(kHeads, isa);
}

/// Floats of the head's own scratch, then of its rows of q, k, v and y where those are no f32.
struct Scratch {
  explicit Scratch(const AttentionShape& s)
      : head(round_up(of_head(s), 16)),
        queries(round_up(s.queries * s.depth, 16)),
        keys(widens(s) ? round_up(s.keys * s.depth, 16) : 0),
        inputs(widens(s) ? queries + 2 * keys : 0),
        all(head + inputs + (s.output.is_f32() ? 0 : queries)) {}
  int64_t head, queries, keys, inputs, all;

 private:
  static bool widens(const AttentionShape& s) { return !s.query.is_f32() && !attention_in_int8(s); }
  static int64_t of_head(const AttentionShape& s) {
    if (attention_in_int8(s)) return head_codes_scratch(s.keys, s.depth);
    return std::max(head_scratch(s.keys, s.depth), head_bf16_scratch(s.keys, s.depth));
  }
};

int64_t kv_heads_of(const AttentionShape& s) {
  return s.kv_heads > 0 ? s.kv_heads : s.heads;
}

/// The first keys of a run that none of its queries sees, for the windows of all begin behind them. One key
/// is always left.
int64_t keys_before_windows(const AttentionShape& s) {
  return s.causal && s.window > 0 ? std::clamp<int64_t>(s.earlier + 1 - s.window, 0, s.keys - 1) : 0;
}

/// Rows of one head: where they are read or made, and from one to the next.
struct HeadRows {
  const float* data;
  int64_t stride;
};

class Heads {
 public:
  Heads(const AttentionShape& shape, Isa isa)
      : shape_(shape),
        width_(shape.heads * shape.depth),
        kv_width_(kv_heads_of(shape) * shape.depth),
        query_("kernels.attention", shape.query, isa),
        key_("kernels.attention", shape.key, isa),
        value_("kernels.attention", shape.value, isa),
        output_("kernels.attention", shape.output, isa) {}

  HeadRows queries(const void* q, int64_t at, float* to) const {
    return read(query_, q, at, width_, shape_.queries, to);
  }
  HeadRows keys(const void* k, int64_t at, int64_t rows, float* to) const {
    return read(key_, k, at, kv_width_, rows, to);
  }
  HeadRows values(const void* v, int64_t at, int64_t rows, float* to) const {
    return read(value_, v, at, kv_width_, rows, to);
  }
  int64_t output_stride() const { return shape_.output.is_f32() ? width_ : shape_.depth; }
  float* target(void* y, int64_t at, float* to) const { return output_.target(y, at, to); }
  void write(const float* made, void* y, int64_t at) const {
    if (shape_.output.is_f32()) return;
    for (int64_t r = 0; r < shape_.queries; ++r) {
      output_.write(made + r * shape_.depth, y, at + r * width_, shape_.depth);
    }
  }

 private:
  /// `rows` of a head that begin at element `at`, each of them widened into `to` unless they are f32.
  HeadRows read(const TypedRows& input, const void* data, int64_t at, int64_t width, int64_t rows,
                float* to) const {
    if (shape_.query.is_f32()) return {static_cast<const float*>(data) + at, width};
    for (int64_t r = 0; r < rows; ++r) {
      input.read(data, at + r * width, shape_.depth, to + r * shape_.depth);
    }
    return {to, shape_.depth};
  }

  const AttentionShape& shape_;
  int64_t width_, kv_width_;  ///< of a row of queries, and of one of keys
  TypedRows query_, key_, value_, output_;
};

/// What turns sums of products of codes into scores.
float score_scale(const AttentionShape& s) {
  return static_cast<float>(double{s.query.affine.scale} * s.key.affine.scale * s.scale);
}

}  // namespace

bool attention_in_bf16(const AttentionShape& shape, Isa isa) {
  const bool admitted = isa == Isa::avx512_vnni || isa == Isa::amx;
  return admitted && cpu_features().avx512_bf16 && !cpu_features().intel &&
         shape.query.type == DataType::bf16 && shape.depth % 2 == 0;
}

bool attention_in_int8(const AttentionShape& shape) {
  return shape.query.type == DataType::u8 && shape.depth <= kLargestCodesDepth;
}

size_t attention_workspace_bytes(const AttentionShape& shape, int workers) {
  return static_cast<size_t>(workers * Scratch(shape).all) * sizeof(float);
}

void attention(const AttentionShape& shape, int64_t batch, const void* q, const void* k, const void* v,
               const float* mask, void* y, void* workspace, Isa isa, const Parallel& parallel) {
  const HeadFn head = head_of(isa);
  const HeadCodesFn code_head = *first_admitted(kCodeHeads, isa);
  const bool in_bf16 = attention_in_bf16(shape, isa), in_codes = attention_in_int8(shape);
  const Heads heads(shape, isa);
  const Scratch sizes(shape);
  const int64_t width = shape.heads * shape.depth, kv_width = kv_heads_of(shape) * shape.depth;
  const int64_t shared = shape.heads / kv_heads_of(shape);  // heads of queries by one of keys
  const int64_t item_keys = shape.item_keys > 0 ? shape.item_keys : shape.keys;
  const int64_t unseen = keys_before_windows(shape), seen = shape.keys - unseen;
  parallel.run(batch * shape.heads, [&](int64_t task, int worker) {
    const int64_t item = task / shape.heads, number = task % shape.heads;
    const int64_t query = item * shape.queries * width + number * shape.depth;
    const int64_t key = (item * item_keys + unseen) * kv_width + number / shared * shape.depth;
    float* scratch = static_cast<float*>(workspace) + worker * sizes.all;
    float* rows = scratch + sizes.head;
    float* made = heads.target(y, query, rows + sizes.inputs);
    const auto fill = [&](auto& args) {
      args.y = made;
      args.y_stride = heads.output_stride();
      args.mask = mask == nullptr ? nullptr : mask + item * shape.keys + unseen;
      args.queries = shape.queries;
      args.keys = seen;
      args.depth = shape.depth;
      args.scale = shape.scale;
      args.causal = shape.causal;
      args.earlier = shape.earlier - unseen;
      args.window = shape.window;
      args.softcap = shape.softcap;
      args.scratch = scratch;
    };
    if (in_bf16) {
      HeadBf16Args args;
      args.q = static_cast<const uint16_t*>(q) + query;
      args.k = static_cast<const uint16_t*>(k) + key;
      args.v = static_cast<const uint16_t*>(v) + key;
      args.stride = width;
      args.kv_stride = kv_width;
      fill(args);
      bf16_head()(args);
    } else if (in_codes) {
      HeadCodesArgs args;
      args.q = static_cast<const uint8_t*>(q) + query;
      args.k = static_cast<const uint8_t*>(k) + key;
      args.v = static_cast<const uint8_t*>(v) + key;
      args.stride = width;
      args.kv_stride = kv_width;
      fill(args);
      args.scale = score_scale(shape);
      args.query_zero = shape.query.affine.zero_point;
      args.key_zero = shape.key.affine.zero_point;
      args.value_zero = shape.value.affine.zero_point;
      args.value_scale = shape.value.affine.scale;
      code_head(args);
    } else {
      const HeadRows queries = heads.queries(q, query, rows);
      const HeadRows keys = heads.keys(k, key, seen, rows + sizes.queries);
      const HeadRows values = heads.values(v, key, seen, rows + sizes.queries + sizes.keys);
      HeadArgs args;
      args.q = queries.data;
      args.k = keys.data;
      args.v = values.data;
      args.stride = queries.stride;
      args.kv_stride = keys.stride;
      fill(args);
      head(args);
    }
    heads.write(made, y, query);
  });
}

}  // namespace ulp::kernels
