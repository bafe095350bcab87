// Scaled dot-product attention of several heads, of numbers or of codes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ulp/kernels/sequence/attention.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_attention(const StepView& view) {
  for (size_t i = 0; i < 3; ++i) {
    view.expect_plain_numbers(i, 3);
    view.expect_type("q, k and v of one type,", view.input(i).type, view.input(0).type);
    if (view.input(i).shape.size() != 3) view.fail("expected q, k and v of 3 dimensions");
  }
  const std::vector<int64_t>&q = view.input(0).shape, &k = view.input(1).shape;
  const auto& own = view.attributes<AttentionAttributes>();
  const int64_t heads = own.heads, kept = own.kept, kv_heads = own.kv_heads > 0 ? own.kv_heads : heads;
  if (heads % kv_heads != 0) view.fail("expected kv_heads that divide the ", heads, " heads, got ", kv_heads);
  if (q[2] % heads != 0) view.fail("expected heads that divide ", q[2], ", got ", heads);
  if (k != view.input(2).shape || q[0] != k[0] || q[2] / heads * kv_heads != k[2]) {
    view.fail("expected q [N, queries, heads * depth], k and v [N, keys, kv_heads * depth] of ", heads,
              " and ", kv_heads, " heads, got ", shape_text(q), ", ", shape_text(k), " and ",
              shape_text(view.input(2).shape));
  }
  if (own.window > 0 && (!own.causal || view.input_count() == 4))
    view.fail("expected causal attention without a mask where queries have a window");
  if (kept > 0 && (!own.causal || view.input_count() == 4 || q[1] != k[1] || q[1] > kept)) {
    view.fail("expected causal attention of as many queries as keys, ", kept,
              " at most, where they are kept, got ", shape_text(q), " and ", shape_text(k));
  }
  if (kept > 0 && q[0] != kBatch) view.fail("expected the batch as dimension 0 where keys are kept");
  const int64_t rows[] = {kept, 2, k[2]};
  if (kept > 0 && checked_elements(rows) < 0) view.fail("what is kept is too large");
  if (own.blind != BlindQueries::zeros && view.input_count() != 4)
    view.fail("expected a mask where queries may see no key");
  if (own.blind != BlindQueries::zeros && kv_heads != heads)
    view.fail("expected as many kv_heads as heads where queries may see no key");
  if (view.input_count() == 4) {
    view.expect_plain_f32(3, 2);
    const std::vector<int64_t> expected = {k[0], k[1]};
    if (view.input(3).shape != expected) {
      view.fail("expected a mask ", shape_text(expected), ", got ", shape_text(view.input(3).shape));
    }
  }
  return q;
}

void check_attention_output(const StepView& view) {
  view.expect_plain_numbers_output();
}

/// Keys, then values, of one item.
std::optional<Kept> kept_of(const StepView& view) {
  const int64_t capacity = view.attributes<AttentionAttributes>().kept;
  if (capacity == 0) return std::nullopt;
  const TensorInfo& k = view.input(1);
  const auto row = static_cast<size_t>(k.shape[2] * element_bytes(k.type));
  return Kept{
      .item_bytes = 2 * static_cast<size_t>(capacity) * row, .rows = k.shape[1], .capacity = capacity};
}

class AttentionRunner final : public Runner {
 public:
  AttentionRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()),
        isa_(isa),
        values_("runtime.attention", format_of(view.input(2)), isa),
        results_("runtime.attention", format_of(view.output()), isa) {
    const auto& attributes = view.attributes<AttentionAttributes>();
    shape_ = {.heads = attributes.heads,
              .depth = info_.shape[2] / attributes.heads,
              .queries = info_.shape[1],
              .keys = view.input(1).shape[1],
              .scale = attributes.scale,
              .causal = attributes.causal,
              .kv_heads = attributes.kv_heads,
              .window = attributes.window,
              .softcap = attributes.softcap,
              .query = format_of(info_),
              .key = format_of(view.input(1)),
              .value = format_of(view.input(2)),
              .output = format_of(view.output())};
    capacity_ = attributes.kept;
    blind_ = attributes.blind;
    row_ = static_cast<size_t>(view.input(1).shape[2] * element_bytes(info_.type));
  }
  size_t workspace_bytes(int64_t, int workers) const override {
    kernels::AttentionShape most = shape_;
    if (capacity_ > 0) most.keys = capacity_;
    return kernels::attention_workspace_bytes(most, workers);
  }
  void run(const RunArgs& args) const override {
    const int64_t items = first_size(info_, args.batch);
    if (capacity_ > 0) {
      const std::byte* keys = args.memory.data;
      const std::byte* values = keys + static_cast<size_t>(capacity_) * row_;
      kernels::attention(keep(args), items, args.inputs[0], keys, values, nullptr, args.output,
                         args.workspace, isa_, args.parallel);
      return;
    }
    const void* mask = args.inputs.size() == 4 ? args.inputs[3] : nullptr;
    kernels::attention(shape_, items, args.inputs[0], args.inputs[1], args.inputs[2],
                       static_cast<const float*>(mask), args.output, args.workspace, isa_, args.parallel);
    if (blind_ != BlindQueries::zeros) fill_blind(args, items);
  }
  std::string kernel() const override { return std::string("attention_") + kernels::to_string(isa_); }

 private:
  static constexpr int64_t kPiece = 64;

  /// Queries of an item that see no key: those before the first one that is seen, or all.
  int64_t blind_queries(const RunArgs& args, int64_t item) const {
    const auto* mask = static_cast<const float*>(args.inputs[3]) + item * shape_.keys;
    const auto first = std::find_if(mask, mask + shape_.keys, [](float m) { return m != -INFINITY; }) - mask;
    if (first == shape_.keys) return shape_.queries;
    return shape_.causal ? std::min(first, shape_.queries) : 0;
  }

  /// Writes what queries that see no key get, in columns that fit a buffer.
  void fill_blind(const RunArgs& args, int64_t items) const {
    int64_t item = 0;
    while (item < items && blind_queries(args, item) == 0) ++item;
    if (item == items) return;
    const int64_t pieces = (info_.shape[2] + kPiece - 1) / kPiece;
    args.parallel.run(items * pieces, [&](int64_t i, int) {
      if (const int64_t count = blind_queries(args, i / pieces); count > 0)
        fill_columns(args, i / pieces, count, i % pieces * kPiece);
    });
  }

  /// From column `begin` on, of the first `count` rows of an item.
  void fill_columns(const RunArgs& args, int64_t item, int64_t count, int64_t begin) const {
    const int64_t width = info_.shape[2], size = std::min(kPiece, width - begin);
    std::array<float, kPiece> sums{}, row{};
    for (int64_t k = 0; k < shape_.keys && blind_ == BlindQueries::mean; ++k) {
      const float* value =
          values_.read(args.inputs[2], (item * shape_.keys + k) * width + begin, size, row.data());
      for (int64_t d = 0; d < size; ++d) sums[static_cast<size_t>(d)] += value[d];
    }
    // Codes have no NaN.
    const float nothing = shape_.output.type == DataType::u8 ? 0.0F : NAN;
    for (float& sum : sums)
      sum = blind_ == BlindQueries::nan ? nothing : sum / static_cast<float>(shape_.keys);
    for (int64_t q = 0; q < count; ++q) {
      const int64_t at = (item * shape_.queries + q) * width + begin;
      float* made = results_.target(args.output, at, row.data());
      std::copy_n(sums.begin(), size, made);
      results_.write(made, args.output, at, size);
    }
  }

  /// Puts the keys and values of this run behind those that are kept; gives the attention over all of them.
  kernels::AttentionShape keep(const RunArgs& args) const {
    const auto rows = static_cast<size_t>(shape_.keys), before = static_cast<size_t>(args.memory.position);
    for (int64_t i = 0; i < first_size(info_, args.batch); ++i) {
      std::byte* item = args.memory.data + static_cast<size_t>(i) * args.memory.item_bytes;
      for (size_t side = 0; side < 2; ++side) {
        const auto* from = static_cast<const std::byte*>(args.inputs[1 + side]);
        std::memcpy(item + (side * static_cast<size_t>(capacity_) + before) * row_,
                    from + static_cast<size_t>(i) * rows * row_, rows * row_);
      }
    }
    kernels::AttentionShape all = shape_;
    all.earlier = args.memory.position;
    all.keys = all.earlier + shape_.keys;
    all.item_keys = static_cast<int64_t>(args.memory.item_bytes / row_);
    return all;
  }

  TensorInfo info_;
  int64_t capacity_ = 0;  ///< rows kept between runs
  BlindQueries blind_ = BlindQueries::zeros;
  size_t row_ = 0;  ///< bytes of a key
  kernels::AttentionShape shape_;
  kernels::Isa isa_;
  kernels::TypedRows values_, results_;
};

/// A query is multiplied with the keys that it sees, and their values with the weights.
StepWork attention_work(const StepView& view, int64_t batch) {
  const auto queries = static_cast<double>(view.input().shape[1]);
  const auto keys = static_cast<double>(view.input(1).shape[1]);
  const auto& own = view.attributes<AttentionAttributes>();
  const double hidden = own.causal ? std::min(keys, queries - 1) / 2 : 0;  // where there are as many of both
  double seen = keys - hidden;
  if (const auto window = static_cast<double>(own.window); own.window > 0 && window < keys)
    seen = window - window * (window - 1) / (2 * keys);  // query i sees min(i + 1, window) keys
  return product_work(view, batch, 2 * seen);
}

}  // namespace

const OpDef ops::attention = {.min_inputs = 3,
                              .max_inputs = 4,
                              .infer = infer_attention,
                              .check_output = check_attention_output,
                              .kept = kept_of,
                              .work = attention_work,
                              .prepare = make_runner<AttentionRunner>};

}  // namespace ulp::runtime
