// The largest elements of windows with their places, and what is put back to such places.
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "ulp/graph/decompose/table.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using V = Formula::V;
using Picks = std::vector<std::vector<int64_t>>;  // [tap][window]: which element

constexpr int64_t kMostTaps = 128;  // each is an operator

/// The elements of windows in order. A tap outside of its window's part of the row is one inside, again: no
/// element is there before those that come before it.
Picks picks_of_pool(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation) {
  Picks picks(static_cast<size_t>(kernel));
  for (int64_t o = 0; o < out; ++o) {
    const auto at = [&](int64_t tap) { return o * stride - pad + tap * dilation; };
    int64_t first = 0, last = kernel - 1;
    while (first < kernel && at(first) < 0) ++first;
    while (last >= 0 && at(last) >= in) --last;
    if (first > last) throw CannotWrite{"expected windows that begin inside of the image"};
    for (int64_t tap = 0; tap < kernel; ++tap)
      picks[static_cast<size_t>(tap)].push_back(at(std::clamp(tap, first, last)));
  }
  return picks;
}

/// Windows of several sizes, which share a row evenly.
Picks picks_of_shares(int64_t in, int64_t out) {
  const auto begin = [&](int64_t o) { return o * in / out; };
  const auto end = [&](int64_t o) { return ((o + 1) * in + out - 1) / out; };
  int64_t longest = 0;
  for (int64_t o = 0; o < out; ++o) longest = std::max(longest, end(o) - begin(o));
  Picks picks(static_cast<size_t>(longest));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t tap = 0; tap < longest; ++tap)
      picks[static_cast<size_t>(tap)].push_back(std::min(begin(o) + tap, end(o) - 1));
  }
  return picks;
}

at::Tensor as_tensor(const std::vector<int64_t>& numbers) {
  return torch::tensor(numbers, torch::kLong);
}

/// The first of the largest elements of each window, or its last NaN, and its place in the flattened image.
class Largest {
 public:
  Largest(Formula& f, V x, std::vector<Picks> picks) : f_(f), picks_(std::move(picks)) {
    size_t taps = 1;
    for (const Picks& one : picks_) taps *= one.size();
    if (static_cast<int64_t>(taps) > kMostTaps)
      throw CannotWrite{"expected windows of at most " + std::to_string(kMostTaps) + " elements"};
    first_ = std::ssize(x->meta->sizes) - std::ssize(picks_);
    for (int64_t d = first_; d < std::ssize(x->meta->sizes); ++d) image_.push_back(Formula::size(x, d));
    take(x, torch::zeros({1}, torch::kLong), 0);
  }
  V value() const { return value_; }
  V place() const { return place_; }

 private:
  /// The taps of dimension d and those behind it, in order; `place`: of the elements by the dimensions
  /// before.
  void take(V x, const at::Tensor& place, size_t d) {
    if (d == picks_.size()) return see(x, place);
    for (const std::vector<int64_t>& tap : picks_[d]) {
      const at::Tensor next = place.unsqueeze(-1) * image_[d] + as_tensor(tap);
      take(f_.pick(x, first_ + static_cast<int64_t>(d), as_tensor(tap), "tap"), next, d + 1);
    }
  }

  void see(V x, const at::Tensor& place) {
    std::vector<int64_t> sizes(x->meta->sizes.size(), 1);
    for (size_t d = 0; d < picks_.size(); ++d)
      sizes[static_cast<size_t>(first_) + d] = std::ssize(picks_[d][0]);
    V at = f_.constant(place.reshape(sizes), "place");
    if (value_ == nullptr) {
      value_ = x;
      place_ = f_.where(f_.compare("aten::eq", x, x), at, at);  // of the sizes of x
      return;
    }
    V takes = f_.compare("aten::gt", x, value_);
    if (at::isFloatingType(x->meta->dtype)) takes = f_.either(takes, f_.compare("aten::ne", x, x));
    value_ = f_.where(takes, x, value_);
    place_ = f_.where(takes, at, place_);
  }

  Formula& f_;
  std::vector<Picks> picks_;
  std::vector<int64_t> image_;
  int64_t first_ = 0;
  V value_ = nullptr, place_ = nullptr;
};

/// How many of the last dimensions "aten::max_pool2d_with_indices" and its like pool.
int64_t pooled_dims(const Node& node) {
  for (const char digit : {'1', '2', '3'}) {
    if (node.op().find(std::string("pool") + digit) != std::string_view::npos) return digit - '0';
  }
  throw CannotWrite{"expected a pool of one to three dimensions"};
}

void give_largest(Formula& f, V x, std::vector<Picks> picks) {
  const Largest found(f, x, std::move(picks));
  f.result(0, found.value());
  f.result(1, found.place());
}

void max_pool(Formula& f) {
  V x = f.operand("self");
  if (!f.is_read(1)) return;
  const int64_t dims = pooled_dims(f.node());
  const auto list = [&](const char* name, std::vector<int64_t> otherwise) {
    std::vector<int64_t> given = f.integers(name);
    return spread(given.empty() ? std::move(otherwise) : given, static_cast<size_t>(dims));
  };
  const std::vector<int64_t> kernel = list("kernel_size", {}), stride = list("stride", kernel),
                             pad = list("padding", {0}), dilation = list("dilation", {1});
  const int64_t first = std::ssize(x->meta->sizes) - dims;
  std::vector<Picks> picks;
  for (int64_t d = 0; d < dims; ++d) {
    const auto i = static_cast<size_t>(d);
    picks.push_back(picks_of_pool(Formula::size(x, first + d), Formula::size(f.node().output(), first + d),
                                  kernel[i], stride[i], pad[i], dilation[i]));
  }
  give_largest(f, x, std::move(picks));
}

void adaptive_max_pool(Formula& f) {
  V x = f.operand("self");
  if (!f.is_read(1)) return;
  const int64_t dims = pooled_dims(f.node()), first = std::ssize(x->meta->sizes) - dims;
  std::vector<Picks> picks;
  for (int64_t d = 0; d < dims; ++d)
    picks.push_back(
        picks_of_shares(Formula::size(x, first + d), Formula::size(f.node().output(), first + d)));
  give_largest(f, x, std::move(picks));
}

/// Stored where the sizes are numbers.
V zeros(Formula& f, const Formula::Sizes& sizes) {
  std::vector<int64_t> numbers;
  std::vector<Argument> list;
  for (const SizeExpr& size : sizes) {
    if (size.constant()) numbers.push_back(size.offset);
    list.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
  }
  if (numbers.size() == sizes.size()) return f.constant(torch::zeros(numbers, f.type()), "zeros");
  const Argument type = c10::IValue(static_cast<int64_t>(f.type()));
  return f.call("aten::full", {Argument::list(std::move(list)), c10::IValue(0.0), type}, f.type(), sizes);
}

/// Zeros with each element at its place of the flattened image.
void max_unpool(Formula& f) {
  V x = f.operand("self"), places = f.operand("indices");
  const int64_t dims = f.node().is("aten::max_unpool3d") ? 3 : 2;
  const Formula::Sizes out = f.node().output()->meta->sizes;
  const int64_t first = std::ssize(out) - dims;
  int64_t from = 1, to = 1;
  for (int64_t d = first; d < std::ssize(out); ++d) {
    from *= Formula::size(x, d);
    to *= Formula::size(f.node().output(), d);
  }
  Formula::Sizes flat(out.begin(), out.begin() + first), rows = flat;
  flat.push_back(fixed(from));
  rows.push_back(fixed(to));
  V values = f.view(x, flat), ids = f.view(places, flat);
  V empty = zeros(f, rows);
  f.result(
      f.view(f.call("aten::scatter.src", {empty, c10::IValue(first), ids, values}, f.type(), rows), out));
}

}  // namespace

DecomposeTable decomposed_windows() {
  static constexpr DecomposeRow kTable[] = {{"aten::max_pool1d_with_indices", max_pool},
                                            {"aten::max_pool2d_with_indices", max_pool},
                                            {"aten::max_pool3d_with_indices", max_pool},
                                            {"aten::adaptive_max_pool1d", adaptive_max_pool},
                                            {"aten::adaptive_max_pool2d", adaptive_max_pool},
                                            {"aten::adaptive_max_pool3d", adaptive_max_pool},
                                            {"aten::max_unpool2d", max_unpool},
                                            {"aten::max_unpool3d", max_unpool}};
  return kTable;
}

}  // namespace ulp::graph
