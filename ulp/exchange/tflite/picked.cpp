// Elements of a dimension in another order that is known when the file is written.
#include "ulp/exchange/tflite/along.h"

namespace ulp::exchange::tflite {

namespace {

using graph::Node;
using graph::Value;

/// flip, roll and repeat_interleave: `pick(i, size)` says which element a place of the dimension gets.
template <typename Pick>
void move_along(Builder& builder, const Node& node, const std::vector<int64_t>& dims, const Pick& pick) {
  const Value& x = *value_arg(node, "self");
  const bool integer = builder.has_codes(&x);
  const Layout layout = builder.layout_of(&x);
  const int64_t rank = rank_of(node, x);
  Index made = builder.tensor_of(node, &x, layout, integer);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = dims[i] < 0 ? dims[i] + rank : dims[i];
    Picks picks;
    const int64_t from = fixed_size(node, x, dim), to = fixed_size(node, *node.output(), dim);
    for (int64_t place = 0; place < to; ++place) picks.push_back(pick(i, place, from));
    made = picked_along(builder, made, axis_in(layout, dim, rank), picks);
  }
  if (dims.empty()) return builder.share(node.output(), &x);
  builder.place(node.output(), made, layout, integer ? &x : nullptr);
}

void flip(Builder& builder, const Node& node) {
  move_along(builder, node, ints_arg(node, "dims"),
             [](size_t, int64_t place, int64_t size) { return size - 1 - place; });
}

void roll(Builder& builder, const Node& node) {
  const std::vector<int64_t> shifts = ints_arg(node, "shifts"), dims = ints_arg(node, "dims");
  if (shifts.size() != dims.size()) refuse(node, "expected a dimension for each shift");
  move_along(builder, node, dims, [&](size_t i, int64_t place, int64_t size) {
    return ((place - shifts[i]) % size + size) % size;
  });
}

void repeat_interleave(Builder& builder, const Node& node) {
  if (optional_value(node, "repeats") != nullptr || node.arg("dim").is_none())
    refuse(node, "expected one number of repeats and a dimension");
  const int64_t repeats = int_arg(node, "repeats");
  move_along(builder, node, {int_arg(node, "dim")},
             [&](size_t, int64_t place, int64_t) { return place / repeats; });
}

}  // namespace

ConverterTable picked_converters() {
  static constexpr Converter kTable[] = {
      {"aten::flip", flip}, {"aten::roll", roll}, {"aten::repeat_interleave.self_int", repeat_interleave}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
