#include "ulp/exchange/coreml/along.h"

#include <torch/types.h>

#include <numeric>
#include <utility>

namespace ulp::exchange::coreml {

Along::Along(Builder& builder, const graph::Node& node, const graph::Value& x)
    : builder_(builder),
      node_(node),
      type_(type_of(x)),
      name_(builder.name_of(&x)),
      shape_(shape_of(node, x)) {}

void Along::step(const char* op, Inputs inputs) {
  name_ = builder_.call(node_, op, std::move(inputs), {type_, shape_});
}

void Along::step(const char* op, Inputs inputs, std::vector<int64_t> shape) {
  shape_ = std::move(shape);
  step(op, std::move(inputs));
}

std::string Along::picked(int64_t dim, const std::vector<int64_t>& ids) {
  std::vector<int64_t> shape = shape_;
  shape.at(static_cast<size_t>(dim)) = std::ssize(ids);
  return builder_.call(node_, "gather",
                       {{"x", name_},
                        {"indices", builder_.ints(ids)},
                        {"axis", builder_.integer(dim)},
                        {"batch_dims", builder_.integer(0)}},
                       {type_, shape});
}

void Along::pick(int64_t dim, const std::vector<int64_t>& ids) {
  name_ = picked(dim, ids);
  set_size(dim, std::ssize(ids));
}

void Along::blend(int64_t dim, const LinearPicks& picks) {
  std::vector<int64_t> sizes(shape_.size() - static_cast<size_t>(dim), 1), shape = shape_;
  sizes[0] = shape.at(static_cast<size_t>(dim)) = std::ssize(picks.lower);
  const auto part = [&](const std::vector<int64_t>& ids, const at::Tensor& share) {
    const std::string by = builder_.constant(share.reshape(sizes).to(type_), "shares");
    return builder_.call(node_, "mul", {{"x", picked(dim, ids)}, {"y", by}}, {type_, shape});
  };
  const std::string lower = part(picks.lower, 1 - picks.share), upper = part(picks.upper, picks.share);
  step("add", {{"x", lower}, {"y", upper}}, shape);
}

void Along::product(int64_t dim, const at::Tensor& matrix) {
  const bool is_last = dim == std::ssize(shape_) - 1;
  std::vector<int64_t> order(shape_.size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order.at(static_cast<size_t>(dim)), order.back());
  const auto turn = [&] {
    std::swap(shape_.at(static_cast<size_t>(dim)), shape_.back());
    step("transpose", {{"x", name_}, {"perm", builder_.ints(order)}});
  };
  if (!is_last) turn();
  shape_.back() = matrix.size(0);
  step("matmul", {{"x", name_},
                  {"y", builder_.constant(matrix.t().to(type_).contiguous(), "shares")},
                  {"transpose_x", builder_.flag(false)},
                  {"transpose_y", builder_.flag(false)}});
  if (!is_last) turn();
}

void Along::largest(int64_t dim, const std::vector<std::vector<int64_t>>& windows) {
  std::string most;
  std::vector<int64_t> shape = shape_;
  shape.at(static_cast<size_t>(dim)) = std::ssize(windows);
  for (size_t k = 0; k < windows.front().size(); ++k) {
    std::vector<int64_t> ids;
    for (const std::vector<int64_t>& window : windows) ids.push_back(window[k]);
    const std::string one = picked(dim, ids);
    most = most.empty() ? one : builder_.call(node_, "maximum", {{"x", most}, {"y", one}}, {type_, shape});
  }
  name_ = most;
  shape_ = shape;
}

void Along::slice(int64_t dim, int64_t begin, int64_t end) {
  Inputs inputs = sliced(builder_, name_, shape_, {.dim = dim, .begin = begin, .end = end});
  set_size(dim, end - begin);
  step("slice_by_index", std::move(inputs));
}

}  // namespace ulp::exchange::coreml
