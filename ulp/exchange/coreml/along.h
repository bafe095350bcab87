// A tensor of which one dimension after the other changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/exchange/coreml/converters.h"
#include "ulp/exchange/resize.h"

namespace ulp::exchange::coreml {

/// Starts as a value of the graph. Dimensions count from the front; the type stays.
class Along {
 public:
  Along(Builder& builder, const graph::Node& node, const graph::Value& x);

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& shape() const { return shape_; }

  /// The elements with these indices.
  void pick(int64_t dim, const std::vector<int64_t>& ids);
  /// Shares of two picks.
  void blend(int64_t dim, const LinearPicks& picks);
  /// result[o] = sum of matrix[o, i] x[i].
  void product(int64_t dim, const at::Tensor& matrix);
  /// The largest of each window's elements; all windows have as many.
  void largest(int64_t dim, const std::vector<std::vector<int64_t>>& windows);
  /// From `begin` to `end`, the latter left out.
  void slice(int64_t dim, int64_t begin, int64_t end);
  /// An operation that leaves the sizes as they are, or changes them to these.
  void step(const char* op, Inputs inputs);
  void step(const char* op, Inputs inputs, std::vector<int64_t> shape);

  /// The node's result is what it has become.
  void finish() { builder_.alias(node_.output(), name_); }

 private:
  std::string picked(int64_t dim, const std::vector<int64_t>& ids);
  void set_size(int64_t dim, int64_t size) { shape_.at(static_cast<size_t>(dim)) = size; }

  Builder& builder_;
  const graph::Node& node_;
  at::ScalarType type_;
  std::string name_;
  std::vector<int64_t> shape_;
};

}  // namespace ulp::exchange::coreml
