// What integer inputs become: rows of embeddings, truth values of comparisons, floats.
#include <cmath>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

void add_embedding(Builder& builder, const graph::Node& node) {
  const int weight = builder.outside(node, "weight");
  if (weight < 0 || builder.sizes(node, "weight").size() != 2)
    builder.refuse(node, "expected a weight of two dimensions, got another one");
  if (builder.flag(node, "scale_grad_by_freq") || builder.flag(node, "sparse"))
    builder.refuse(node, "expected dense gradients that follow no frequencies, got others");
  const int indices = builder.integers(node, "indices");
  const int64_t classes = builder.at(weight).rows.at(1);
  const int y = builder.make(node, *node.output());
  if (builder.at(y).width != builder.at(weight).width)
    builder.refuse(node, "expected rows of ", builder.at(weight).width, " numbers, got ",
                   builder.at(y).width);
  const auto padding = static_cast<int64_t>(builder.number(node, "padding_idx"));
  builder.add_bound(node, indices, classes, builder.at(y).rows);
  builder.emit({.op = Op::embedding, .out = y, .a = weight, .classes = indices});
  builder.set_needs_gradient(y, builder.needs_gradient(weight));
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, weight, indices, padding](int gradient) {
    builder.contribute(weight, true, [&](int out, bool adds) {
      builder.emit({.op = Op::embedding_gradient,
                    .out = out,
                    .a = gradient,
                    .adds = adds,
                    .from = padding,
                    .classes = indices});
    });
  });
}

/// 1 where an integer input compares with a number, else 0.
template <Compare kCompare>
void add_comparison(Builder& builder, const graph::Node& node) {
  const int input = builder.integers(node, "self");
  const double number = builder.number(node, "other");
  if (number != std::floor(number) || std::fabs(number) > 0x1p53)
    builder.refuse(node, "expected a whole number to compare integers with, got ", number);
  const int y = builder.make_of_any_type(node, *node.output());
  builder.emit({.op = Op::from_integers,
                .out = y,
                .compare = kCompare,
                .from = static_cast<int64_t>(number),
                .classes = input});
  builder.set(*node.output(), y);
}

/// Integers or truth values as floats; floats stay what they are.
void add_conversion(Builder& builder, const graph::Node& node) {
  if (!builder.is_integers(node, "self")) {
    const bool floats = node.output()->meta && node.output()->meta->dtype == at::kFloat;
    if (!floats) builder.refuse(node, "expected floats to be made, got another type");
    return builder.set(*node.output(), builder.in_memory(node, "self"));
  }
  const int input = builder.integers(node, "self");
  if (node.output()->meta && node.output()->meta->dtype == at::kLong)
    return builder.pass_integers(node, "self");
  const int y = builder.make(node, *node.output());
  builder.emit({.op = Op::from_integers, .out = y, .classes = input});
  builder.set(*node.output(), y);
}

}  // namespace

std::vector<OpRow> integer_rules() {
  return {{"aten::embedding", add_embedding},
          {"aten::eq.Scalar", add_comparison<Compare::equal>},
          {"aten::ne.Scalar", add_comparison<Compare::not_equal>},
          {"aten::lt.Scalar", add_comparison<Compare::less>},
          {"aten::le.Scalar", add_comparison<Compare::less_equal>},
          {"aten::gt.Scalar", add_comparison<Compare::greater>},
          {"aten::ge.Scalar", add_comparison<Compare::greater_equal>},
          {"aten::to.dtype", add_conversion}};
}

}  // namespace ulp::train::compiled
