// Products of matrices with what is added to them, and of three tensors.
#include "ulp/exchange/arguments.h"
#include "ulp/exchange/tflite/spelled.h"

namespace ulp::exchange::tflite {

namespace {

using V = Formula::V;

/// beta self + alpha (a b).
void add_product(Formula& f, const char* first, const char* second, const char* op) {
  V a = f.tensor(first), b = f.tensor(second), self = f.x();
  const double alpha = number_arg(f.node(), "alpha"), beta = number_arg(f.node(), "beta");
  V product = f.spell().call(op, {a, b}, f.type(), sizes_of(f.node(), *f.node().output()));
  if (alpha != 1) product = f.mul(product, alpha);
  if (beta == 0) return f.result(product);
  f.result(f.add(beta == 1 ? self : f.mul(self, beta), product));
}

void addmm(Formula& f) {
  add_product(f, "mat1", "mat2", "aten::mm");
}
void baddbmm(Formula& f) {
  add_product(f, "batch1", "batch2", "aten::bmm");
}

/// x1 [N, I], W [O, I, J], x2 [N, J] as (x1 W) x2, of matrices [O, J].
void bilinear(Formula& f) {
  V a = f.tensor("input1"), b = f.tensor("input2");
  const at::Tensor weight = f.spell().graph().attribute_tensor(value_arg(f.node(), "weight"));
  if (!weight.defined() || a->meta->sizes.size() != 2) return;
  const int64_t outputs = weight.size(0), columns = weight.size(2);
  const graph::SizeExpr rows = a->meta->sizes[0];
  V by = f.constant(weight.detach().permute({0, 2, 1}).reshape({outputs * columns, weight.size(1)}), "rows");
  V matrices = f.spell().call("aten::linear", {a, by}, f.type(), {rows, fixed(outputs * columns)});
  matrices = f.view(matrices, {rows, fixed(outputs), fixed(columns)});
  V product = f.spell().call("aten::matmul", {matrices, f.view(b, {rows, fixed(columns), fixed(1)})},
                             f.type(), {rows, fixed(outputs), fixed(1)});
  product = f.view(product, {rows, fixed(outputs)});
  f.result(f.is_tensor("bias") ? f.add(product, f.tensor("bias")) : product);
}

}  // namespace

SpelledTable spelled_products() {
  static constexpr SpelledRow kTable[] = {
      {"aten::addmm", addmm}, {"aten::baddbmm", baddbmm}, {"aten::bilinear", bilinear}};
  return kTable;
}

}  // namespace ulp::exchange::tflite
