// Scaled dot-product attention whose heads stay where the linear layers put them.
#include <cmath>
#include <optional>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// The 4-d value [samples, heads, length, size] is the exchange of the middle dimensions of a view of a value
/// [samples, length, heads * size], or that by `permute`: gives the latter.
const graph::Value* merged_source(const graph::Value& value) {
  const graph::Node& exchange = *value.producer;
  if (!value.meta || value.meta->sizes.size() != 4) return nullptr;
  if (exchange.target() == "aten::transpose.int") {
    const auto dim = [&](const char* name) {
      const graph::Argument& given = exchange.arg(name);
      if (given.kind != graph::Argument::Kind::literal || !given.literal.isInt()) return int64_t{-9};
      const int64_t d = given.literal.toInt();
      return d < 0 ? d + 4 : d;
    };
    const int64_t first = dim("dim0"), second = dim("dim1");
    if (!(first == 1 && second == 2) && !(first == 2 && second == 1)) return nullptr;
  } else if (exchange.target() == "aten::permute") {
    const graph::Argument& given = exchange.arg("dims");
    if (given.kind != graph::Argument::Kind::literal ||
        given.literal.toIntVector() != std::vector<int64_t>{0, 2, 1, 3})
      return nullptr;
  } else {
    return nullptr;
  }
  const graph::Argument& split = exchange.arg("self");
  if (exchange.no_grad || !split.is_value()) return nullptr;
  const graph::Node& view = *split.value->producer;
  const bool views = view.target() == "aten::view" || view.target() == "aten::reshape" ||
                     view.target() == "aten::unflatten.int";
  if (!views || view.no_grad || !view.arg("self").is_value()) return nullptr;
  const graph::Value* source = view.arg("self").value;
  if (!source->meta || source->meta->sizes.size() != 3 || !split.value->meta) return nullptr;
  const auto &from = source->meta->sizes, &to = split.value->meta->sizes;
  if (!(from[0] == to[0]) || !(from[1] == to[1]) || !to[2].constant() || !to[3].constant()) return nullptr;
  return source;
}

/// An operand of attention as it lies.
HeadsMatrix heads_of(Builder& builder, const graph::Node& node, const char* argument) {
  if (const graph::Value* source = merged_source(*node.arg(argument).value)) {
    graph::Argument merged = node.arg(argument);
    merged.value = const_cast<graph::Value*>(source);  // as arguments have it; nothing is written
    return {builder.padded(builder.matrix(node, merged)), true};
  }
  return {builder.padded(node, argument), false};
}

/// The sizes of an operand as [samples, heads, length, size].
struct HeadSizes {
  std::vector<graph::SizeExpr> samples;
  int64_t heads = 1, length = 0, size = 0;
};

HeadSizes head_sizes(Builder& builder, const graph::Node& node, const char* argument) {
  const auto sizes = builder.sizes(node, argument);
  const size_t n = sizes.size();
  if (n < 2 || n > 4) builder.refuse(node, "expected attention of 2 to 4 dimensions, got ", n);
  for (size_t d = n == 4 ? 1 : n - 2; d < n; ++d) {
    if (!sizes[d].constant())
      builder.refuse(node, "expected fixed sizes but for the first dimension in attention, got others");
  }
  HeadSizes found;
  if (n > 2) found.samples.push_back(sizes[0]);
  if (n == 4) found.heads = sizes[1].offset;
  found.length = sizes[n - 2].offset;
  found.size = sizes[n - 1].offset;
  return found;
}

/// The mask [samples, heads, queries, keys], which is repeated along dimensions of one and those that are missing in front.
void add_mask(Builder& builder, const graph::Node& node, Attention& of) {
  const graph::Argument& given = node.arg("attn_mask");
  if (given.is_none()) return;
  const auto sizes = builder.sizes(node, "attn_mask");
  const int mask = builder.padded(node, "attn_mask");
  if (builder.needs_gradient(mask)) builder.refuse(node, "expected a mask without gradients, got one with");
  const graph::SizeExpr one{.offset = 1};
  if (sizes.empty() || sizes.size() > 4 || !(sizes.back() == graph::SizeExpr{.offset = of.keys}))
    builder.refuse(node, "expected a mask whose last dimension is the ", of.keys, " keys, got another one");
  const auto size = [&](size_t from_end) {
    return sizes.size() < from_end ? one : sizes[sizes.size() - from_end];
  };
  const auto steps = [&](const graph::SizeExpr& dim, const RowCount& whole, int64_t rows) {
    if (dim == one) return int64_t{0};
    if (!(builder.count_of(node, {dim}) == whole))
      builder.refuse(node, "expected a mask of the sizes of the scores, or of one, got others");
    return rows;
  };
  const auto rows_of = [&](const graph::SizeExpr& dim) { return dim == one ? 1 : dim.offset; };
  of.mask_query = steps(size(2), {0, 1, of.queries}, 1);
  of.mask_head = steps(size(3), {0, 1, of.heads}, rows_of(size(2)));
  // Of three dimensions the first one is that of the samples where the scores have three, too.
  const bool three = builder.sizes(node, "query").size() == 3;
  if (three && of.mask_head != 0) builder.refuse(node, "expected a mask for one head, got one for several");
  of.mask_sample = steps(size(4), of.batch, rows_of(size(3)) * rows_of(size(2)));
  of.mask = mask;
  of.mask_truth = given.is_value() && given.value->meta && given.value->meta->dtype == at::kBool;
}

Attention attention_of(Builder& builder, const graph::Node& node) {
  const HeadSizes query = head_sizes(builder, node, "query"), key = head_sizes(builder, node, "key"),
                  value = head_sizes(builder, node, "value");
  Attention of;
  of.batch = builder.count_of(node, query.samples);
  of.heads = query.heads;
  of.key_heads = key.heads;
  of.queries = query.length;
  of.keys = key.length;
  of.size = query.size;
  of.value_size = value.size;
  const bool groups = builder.flag(node, "enable_gqa");
  if (!(builder.count_of(node, key.samples) == of.batch) ||
      !(builder.count_of(node, value.samples) == of.batch) || value.heads != key.heads ||
      value.length != key.length || key.size != query.size ||
      (groups ? query.heads % key.heads != 0 : query.heads != key.heads))
    builder.refuse(node, "expected queries, keys and values of the same samples and heads, got others");
  of.scale = builder.literal(node, "scale").isNone()
                 ? static_cast<float>(1 / std::sqrt(static_cast<double>(of.size)))
                 : static_cast<float>(builder.number(node, "scale"));
  of.causal = builder.flag(node, "is_causal");
  const double p = builder.number(node, "dropout_p");
  if (!(p >= 0 && p < 1)) builder.refuse(node, "expected 0 <= dropout_p < 1, got ", p);
  if (p > 0 && !builder.draws())
    builder.refuse(node, "expected dropout_p = 0 or CompileOptions::dropout_seed, got p = ", p);
  of.dropout = static_cast<float>(p);
  if (p > 0) of.draw = builder.next_draw();
  of.query = heads_of(builder, node, "query");
  of.key = heads_of(builder, node, "key");
  of.value = heads_of(builder, node, "value");
  add_mask(builder, node, of);
  return of;
}

/// A matrix for the result, or for a gradient like it.
HeadsMatrix make_heads(Builder& builder, const Attention& of, bool merged) {
  return merged ? HeadsMatrix{builder.make(of.batch.times(of.queries), of.heads * of.value_size), true}
                : HeadsMatrix{builder.make(of.batch.times(of.heads * of.queries), of.value_size), false};
}

/// The result in the node's own sizes: heads before positions.
void set_heads_first(Builder& builder, const graph::Node& node, const Attention& of) {
  const int y = of.result.matrix;
  const RowCount one{}, none{0, 1, 0};
  Move move;
  move.dims = {{of.batch, {0, 1, of.queries}, 0},
               {{0, 1, of.heads}, none, of.value_size},
               {{0, 1, of.queries}, one, 0},
               {{0, 1, of.value_size}, none, 1}};
  builder.set_moved(node, *node.output(), y, std::move(move));
}

void add_attention(Builder& builder, const graph::Node& node) {
  Attention of = attention_of(builder, node);
  of.result = make_heads(builder, of, of.query.merged);
  of.log_sums = builder.make(of.batch.times(of.heads), of.queries);
  builder.emit_attention(Op::attention, of);
  const int y = of.result.matrix;
  const bool needs = builder.needs_gradient(of.query.matrix) || builder.needs_gradient(of.key.matrix) ||
                     builder.needs_gradient(of.value.matrix);
  builder.set_needs_gradient(y, needs);
  if (of.result.merged) {
    builder.set_merged(*node.output(), y, false);
    builder.defer(node, *node.output(), [&builder, &node, of] { set_heads_first(builder, node, of); });
  } else {
    builder.set(*node.output(), y);
  }
  builder.on_backward(y, [&builder, of](int gradient) mutable {
    of.result_gradient = {gradient, of.result.merged};
    const auto gradient_of = [&](const HeadsMatrix& operand) {
      return HeadsMatrix{builder.make_like(operand.matrix), operand.merged};
    };
    of.query_gradient = gradient_of(of.query);
    of.key_gradient = gradient_of(of.key);
    of.value_gradient = gradient_of(of.value);
    builder.emit_attention(Op::attention_gradient, of);
    builder.pass_on(of.query.matrix, of.query_gradient.matrix);
    builder.pass_on(of.key.matrix, of.key_gradient.matrix);
    builder.pass_on(of.value.matrix, of.value_gradient.matrix);
  });
}

}  // namespace

void Builder::emit_attention(Op op, Attention attention) {
  built_.plan.attentions.push_back(std::move(attention));
  emit({.op = op, .detail = static_cast<int>(built_.plan.attentions.size()) - 1});
}

void Builder::set_merged(const graph::Value& value, int matrix, bool transposed) {
  merged_[transposed ? 1 : 0][&value] = matrix;
}

int Builder::merged(const graph::Node& node, std::string_view argument, bool transposed) const {
  const graph::Argument& given = node.arg(argument);
  if (!given.is_value() || node.no_grad) return -1;
  const auto& known = merged_[transposed ? 1 : 0];
  const auto found = known.find(given.value);
  return found == known.end() ? -1 : found->second;
}

std::vector<OpRow> attention_rules() {
  return {{"aten::scaled_dot_product_attention", add_attention}};
}

}  // namespace ulp::train::compiled
