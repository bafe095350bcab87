// Products of matrices and vectors.
#include <torch/types.h>

#include "ulp/graph/decompose/table.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

/// [.., n, k] [.., k, m].
V matrix_product(Formula& f, const char* op, V a, V b) {
  Formula::Sizes sizes = a->meta->sizes;
  sizes.back() = b->meta->sizes.back();
  return f.call(op, {a, b}, a->meta->dtype, sizes);
}

/// beta self + alpha made; without self where beta is 0, whatever is in it.
void give_sum(Formula& f, V made) {
  const double alpha = f.number("alpha"), beta = f.number("beta");
  if (alpha != 1) made = f.mul(made, alpha);
  if (beta == 0) return f.result(made);
  V self = f.operand("self");
  f.result(f.add(made, beta == 1 ? self : f.mul(self, beta)));
}

/// [n, k] [k].
V matrix_by_vector(Formula& f, V matrix, V vector) {
  return f.squeeze(matrix_product(f, "aten::mm", matrix, f.unsqueeze(vector, 1)), {1});
}

void mv(Formula& f) {
  f.result(matrix_by_vector(f, f.operand("self"), f.operand("vec")));
}

void addmv(Formula& f) {
  give_sum(f, matrix_by_vector(f, f.operand("mat"), f.operand("vec")));
}

void addr(Formula& f) {
  give_sum(f, f.mul(f.unsqueeze(f.operand("vec1"), 1), f.unsqueeze(f.operand("vec2"), 0)));
}

/// The sum of the products of a batch.
void addbmm(Formula& f) {
  V products = matrix_product(f, "aten::bmm", f.operand("batch1"), f.operand("batch2"));
  give_sum(f, f.squeeze(f.reduce("aten::sum.dim_IntList", products, {0}), {0}));
}

void baddbmm(Formula& f) {
  give_sum(f, matrix_product(f, "aten::bmm", f.operand("batch1"), f.operand("batch2")));
}

void dot(Formula& f) {
  V both = f.mul(f.operand("self"), f.operand(f.node().is("aten::dot") ? "tensor" : "other"));
  f.result(f.squeeze(f.reduce("aten::sum.dim_IntList", both, {0}), {0}));
}

/// Along a dimension of 3: each element is a product of the other two, less the one the other way round.
void cross(Formula& f) {
  V a = f.operand("self"), b = f.operand("other");
  const Formula::Sizes sizes = f.node().output()->meta->sizes;
  const int64_t rank = std::ssize(sizes), given = f.integer("dim"), dim = given < 0 ? given + rank : given;
  a = f.expand(a, sizes);
  b = f.expand(b, sizes);
  const at::Tensor next = torch::tensor({1, 2, 0}, torch::kLong),
                   last = torch::tensor({2, 0, 1}, torch::kLong);
  V forth = f.mul(f.pick(a, dim, next, "next"), f.pick(b, dim, last, "last"));
  V back = f.mul(f.pick(a, dim, last, "last"), f.pick(b, dim, next, "next"));
  f.result(f.sub(forth, back));
}

}  // namespace

DecomposeTable decomposed_products() {
  static constexpr DecomposeRow kTable[] = {{"aten::mv", mv},           {"aten::addmv", addmv},
                                            {"aten::addr", addr},       {"aten::addbmm", addbmm},
                                            {"aten::baddbmm", baddbmm}, {"aten::dot", dot},
                                            {"aten::vdot", dot},        {"aten::linalg_cross", cross}};
  return kTable;
}

}  // namespace ulp::graph
