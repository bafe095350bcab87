// Sizes that are known when a program runs, as torch.export writes them: expressions of symbols in sympy's
// text.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ulp/exchange/pt2/program.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::pt2 {

/// The batch is the symbol s0, free dimension i is s(i + 1) times its multiple.
class Symbols {
 public:
  explicit Symbols(const graph::Graph& graph);

  /// The text of an expression: "Mul(Integer(2), Symbol('s1', positive=True, integer=True))".
  std::string text(const graph::SizeExpr& size) const;
  /// The size in the sample inputs, which are large enough that every symbol is at least 2.
  int64_t sample(const graph::SizeExpr& size) const { return size.at(sample_); }
  /// A SymInt: a number, or an expression and its sample.
  Json number(const graph::SizeExpr& size) const;
  /// The same of a text. Compilers of PyTorch unroll recurrent layers: an expression of the length of one has
  /// no sample, so that they refuse the program instead of fixing the length without a word.
  Json expression(const std::string& text, int64_t sample) const;
  /// The strides of a dense tensor of these sizes whose dimensions lie in this order, the outermost first:
  /// SymInts.
  Json strides(const std::vector<graph::SizeExpr>& sizes, const std::vector<size_t>& order) const;
  /// range_constraints: of symbols, and of multiples of one under their printed names.
  Json ranges() const;
  /// Conditions that ranges do not say, as Python: sizes of these inputs that are multiples.
  Json guards(const std::vector<std::string>& inputs) const;

 private:
  /// The free dimension, 0 for the batch.
  std::string symbol(size_t which) const;

  const graph::Graph& graph_;
  std::vector<int64_t> sample_;
  std::set<size_t> unrolled_;  ///< free dimensions that are the length of a recurrent layer
};

}  // namespace ulp::exchange::pt2
