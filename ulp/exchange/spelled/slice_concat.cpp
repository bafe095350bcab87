// Places that are written, products along a dimension and windows as pieces that are joined.
#include <torch/types.h>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;
constexpr int64_t kMostPieces = 128;  // that one call becomes

int64_t dim_of(Formula& f, const graph::Value& x) {
  return dim_arg(f.node(), "dim", std::ssize(x.meta->sizes));
}

void one_hot(Formula& f) {
  V x = f.spell().tensor("self");
  const int64_t rank = std::ssize(x->meta->sizes), classes = int_arg(f.node(), "num_classes");
  if (classes < 1) return;
  V hit = f.compare("aten::eq", f.unsqueeze(x, rank), f.places(classes, rank, rank + 1, x->meta->dtype));
  f.result(f.spell().to(hit, f.type()));
}

/// Whether indices are as large as x but along the dimension.
bool covers(const graph::Value& index, const graph::Value& x, int64_t dim) {
  Speller::Sizes sizes = x.meta->sizes;
  sizes.at(static_cast<size_t>(dim)) = index.meta->sizes.at(static_cast<size_t>(dim));
  return sizes == index.meta->sizes;
}

/// Places of each row, one after the other, get a number, or an element of a source of their sizes; of
/// several for one place the last.
void scatter(Formula& f) {
  V x = f.x(), index = f.spell().tensor("index"), source = nullptr;
  const int64_t rank = std::ssize(x->meta->sizes), dim = dim_of(f, *x);
  const int64_t count = rank == 0 ? 0 : fixed_size(f.node(), *index, dim);
  if (has_arg(f.node(), "reduce") || !covers(*index, *x, dim) || count > kMostPieces) return;
  double value = 0;
  if (has_arg(f.node(), "src")) {
    source = f.tensor("src");
    if (source->meta->sizes != index->meta->sizes) return;
  } else {
    value = number_arg(f.node(), "value");
    if (std::abs(value) > 0x1p53) return;  // a double may be another whole number
  }
  V all = f.places(fixed_size(f.node(), *x, dim), dim, rank, index->meta->dtype), made = x;
  for (int64_t i = 0; i < count; ++i) {
    const auto part = [&](V of) { return count == 1 ? of : f.slice(of, dim, i, 1); };
    V hit = f.compare("aten::eq", part(index), all);
    made = source == nullptr ? f.where(hit, value, made) : f.where(hit, part(source), made);
  }
  f.result(made);
}

/// Sums over the indices of what they bring to each place.
void scatter_add(Formula& f) {
  V x = f.x(), index = f.spell().tensor("index"), source = f.tensor("src");
  const int64_t rank = std::ssize(x->meta->sizes), dim = dim_of(f, *x);
  if (!covers(*index, *x, dim) || source->meta->sizes != index->meta->sizes || !f.floats()) return;
  V made = x;
  const int64_t count = fixed_size(f.node(), *index, dim);
  if (count > kMostPieces) return;
  V all = f.places(fixed_size(f.node(), *x, dim), dim, rank, index->meta->dtype);
  for (int64_t i = 0; i < count; ++i) {
    V hit = f.compare("aten::eq", f.slice(index, dim, i, 1), all);
    made = f.add(made, f.where(hit, f.slice(source, dim, i, 1), 0.0));
  }
  f.result(made);
}

void cumprod(Formula& f) {
  V x = f.x();
  const int64_t dim = dim_of(f, *x), count = fixed_size(f.node(), *x, dim);
  if (count > kMostPieces) return;
  std::vector<graph::Argument> rows;
  V last = nullptr;
  for (int64_t i = 0; i < count; ++i) {
    V one = f.slice(x, dim, i, 1);
    last = last == nullptr ? one : f.mul(last, one);
    rows.emplace_back(last);
  }
  f.result(f.spell().call("aten::cat", {graph::Argument::list(std::move(rows)), c10::IValue(dim)}, f.type(),
                          x->meta->sizes));
}

/// Each element of the windows as an image of its own, [N, C, taps, windows] at last.
void im2col(Formula& f) {
  V x = f.x();
  if (x->meta->sizes.size() != 4) return;
  const auto pair = [&](const char* name) { return ints_arg(f.node(), name, 2); };
  const std::vector<int64_t> kernel = pair("kernel_size"), dilation = pair("dilation"), pad = pair("padding"),
                             stride = pair("stride");
  Speller::Sizes sizes = x->meta->sizes;
  for (const size_t d : {size_t{0}, size_t{1}})
    sizes[2 + d].offset = fixed_size(f.node(), *x, static_cast<int64_t>(2 + d)) + 2 * pad[d];
  V around =
      f.spell().call("aten::constant_pad_nd",
                     {x, c10::IValue(std::vector<int64_t>{pad[1], pad[1], pad[0], pad[0]}), c10::IValue(0.0)},
                     f.type(), sizes);
  Speller::Sizes part = sizes;
  std::vector<int64_t> reach(2);
  for (const size_t d : {size_t{0}, size_t{1}}) {
    const int64_t count = (sizes[2 + d].offset - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
    part[2 + d] = fixed(count);
    reach[d] = (count - 1) * stride[d] + 1;
  }
  if (kernel[0] * kernel[1] > kMostPieces) return;
  std::vector<graph::Argument> taps;
  for (int64_t i = 0; i < kernel[0] * kernel[1]; ++i) {
    V tap = around;
    const std::vector<int64_t> start = {i / kernel[1] * dilation[0], i % kernel[1] * dilation[1]};
    for (const size_t d : {size_t{0}, size_t{1}}) {
      Speller::Sizes cut = tap->meta->sizes;
      cut[2 + d] = part[2 + d];
      tap = f.spell().call("aten::slice.Tensor",
                           {tap, c10::IValue(static_cast<int64_t>(2 + d)), c10::IValue(start[d]),
                            c10::IValue(start[d] + reach[d]), c10::IValue(stride[d])},
                           f.type(), cut);
    }
    taps.emplace_back(tap);
  }
  Speller::Sizes stacked = part;
  stacked.insert(stacked.begin() + 2, fixed(kernel[0] * kernel[1]));
  V all = f.spell().call("aten::stack", {graph::Argument::list(std::move(taps)), c10::IValue(int64_t{2})},
                         f.type(), stacked);
  f.result(f.view(all, sizes_of(f.node(), *f.node().output())));
}

/// Tensors of numbers alone are stored.
void eye(Formula& f) {
  std::vector<int64_t> sizes;
  for (const graph::SizeExpr& size : f.node().output()->meta->sizes) {
    if (!size.constant()) return;
    sizes.push_back(size.offset);
  }
  f.result(f.constant(torch::eye(sizes.at(0), sizes.at(1), f.type()), "eye"));
}

void linspace(Formula& f) {
  if (optional_value(f.node(), "start") != nullptr || optional_value(f.node(), "end") != nullptr) return;
  f.result(f.constant(torch::linspace(scalar_arg(f.node(), "start"), scalar_arg(f.node(), "end"),
                                      int_arg(f.node(), "steps"), f.type()),
                      "linspace"));
}

}  // namespace

SpelledTable spelled_pieces() {
  static constexpr SpelledRow kTable[] = {{"aten::one_hot", one_hot},         {"aten::scatter", scatter},
                                          {"aten::scatter_add", scatter_add}, {"aten::cumprod", cumprod},
                                          {"aten::im2col", im2col},           {"aten::eye", eye},
                                          {"aten::linspace", linspace}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
