// Elements that are moved.
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "ulp/graph/decompose/table.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

std::vector<int64_t> identity(int64_t rank) {
  std::vector<int64_t> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Puts the last dimensions, as many as `to` has, to these places; the others keep their order.
V last_moved(Formula& f, V x, const std::vector<int64_t>& to) {
  const int64_t rank = std::ssize(x->meta->sizes), moved = std::ssize(to);
  std::vector<int64_t> order(static_cast<size_t>(rank), -1);
  for (int64_t i = 0; i < moved; ++i)
    order.at(static_cast<size_t>(to[static_cast<size_t>(i)])) = rank - moved + i;
  int64_t next = 0;
  for (int64_t& dim : order) {
    if (dim < 0) dim = next++;
  }
  return f.permute(x, order);
}

int64_t from_front(int64_t dim, int64_t rank) {
  const int64_t found = dim < 0 ? dim + rank : dim;
  if (found < 0 || found >= rank) throw CannotWrite{"expected a dimension of the tensor"};
  return found;
}

/// The elements of the last dimension on a diagonal of two new ones, zeros around it.
void diag_embed(Formula& f) {
  V x = f.operand("self");
  const int64_t rank = std::ssize(x->meta->sizes), offset = f.integer("offset");
  const int64_t count = Formula::size(x, rank - 1), size = count + std::abs(offset);
  const int64_t down = std::max<int64_t>(-offset, 0);
  const at::Tensor rows = torch::arange(size).unsqueeze(1), columns = torch::arange(size).unsqueeze(0);
  const at::Tensor on = (columns - rows).eq(offset);
  // The element of each row; those of rows without one are not taken.
  const at::Tensor element = (torch::arange(size) - down).clamp(0, count - 1);
  V spread = f.unsqueeze(offset == 0 ? x : f.pick(x, rank - 1, element, "elements"), rank);
  const at::Tensor zero = torch::zeros({}, x->meta->dtype);
  V made = f.where(f.constant(on, "diagonal"), spread, f.constant(zero, "zero"));
  f.result(last_moved(f, made,
                      {from_front(f.integer("dim1"), rank + 1), from_front(f.integer("dim2"), rank + 1)}));
}

/// Two dimensions as one, at the end, and of that the diagonal.
void diagonal(Formula& f) {
  V x = f.operand("self");
  const int64_t rank = std::ssize(x->meta->sizes), a = from_front(f.integer("dim1"), rank),
                b = from_front(f.integer("dim2"), rank), offset = f.integer("offset");
  const int64_t rows = Formula::size(x, a), columns = Formula::size(x, b);
  const int64_t down = std::max<int64_t>(-offset, 0), right = std::max<int64_t>(offset, 0);
  const int64_t count = std::min(rows - down, columns - right);
  if (count < 1) throw CannotWrite{"expected a diagonal of at least one element"};
  std::vector<int64_t> order = identity(rank);
  std::erase_if(order, [&](int64_t dim) { return dim == a || dim == b; });
  Formula::Sizes sizes;
  for (const int64_t dim : order) sizes.push_back(x->meta->sizes[static_cast<size_t>(dim)]);
  sizes.push_back(fixed(rows * columns));
  order.insert(order.end(), {a, b});
  V flat = f.view(f.permute(x, order), sizes);
  f.result(f.pick(flat, rank - 2, (torch::arange(count) + down) * columns + torch::arange(count) + right,
                  "diagonal"));
}

void rot90(Formula& f) {
  V x = f.operand("self");
  const std::vector<int64_t> given = f.integers("dims");
  const int64_t rank = std::ssize(x->meta->sizes), turns = (f.integer("k") % 4 + 4) % 4;
  const int64_t a = from_front(given.at(0), rank), b = from_front(given.at(1), rank);
  if (turns == 0) return f.result(f.map("aten::clone", x));
  if (turns == 2) return f.result(f.flip(x, {a, b}));
  f.result(f.transpose(f.flip(x, {turns == 1 ? b : a}), a, b));
}

/// Windows of a dimension, whose elements become the last one.
void unfold(Formula& f) {
  V x = f.operand("self");
  const int64_t rank = std::ssize(x->meta->sizes), dim = f.dim("dimension", x), size = f.integer("size"),
                step = f.integer("step");
  const int64_t windows = (Formula::size(x, dim) - size) / step + 1;
  if (size < 1 || windows < 1) throw CannotWrite{"expected windows of at least one element"};
  const at::Tensor places = torch::arange(windows).unsqueeze(1) * step + torch::arange(size).unsqueeze(0);
  Formula::Sizes split = x->meta->sizes;
  split[static_cast<size_t>(dim)] = fixed(windows);
  split.insert(split.begin() + dim + 1, fixed(size));
  V apart = f.view(f.pick(x, dim, places.reshape({-1}), "windows"), split);
  std::vector<int64_t> order = identity(rank + 1);
  order.erase(order.begin() + dim + 1);
  order.push_back(dim + 1);
  f.result(f.permute(apart, order));
}

/// A triangle of what is computed, 0 around it.
void triangle(Formula& f) {
  if (f.graph().attribute_tensor(f.node().arg("self").value).defined()) return;
  V x = f.operand("self");
  const int64_t diagonal = f.integer("diagonal");
  const at::Tensor ones = torch::ones({Formula::size(x, -2), Formula::size(x, -1)}, torch::kBool);
  V mask = f.constant(f.node().is("aten::tril") ? ones.tril(diagonal) : ones.triu(diagonal), "triangle");
  f.result(f.where(mask, x, f.constant(torch::zeros({1}, x->meta->dtype), "zero")));
}

}  // namespace

DecomposeTable decomposed_moves() {
  static constexpr DecomposeRow kTable[] = {{"aten::diag_embed", diag_embed}, {"aten::diagonal", diagonal},
                                            {"aten::rot90", rot90},           {"aten::unfold", unfold},
                                            {"aten::tril", triangle},         {"aten::triu", triangle}};
  return kTable;
}

}  // namespace ulp::graph
