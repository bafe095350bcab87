// Products of matrices with what is added to them, and of three tensors.
#include <initializer_list>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

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

/// x1 [.., I], W [O, I, J], x2 [.., J] as (x1 W) x2, of matrices [O, J].
void bilinear(Formula& f) {
  V a = f.tensor("input1"), b = f.tensor("input2");
  const at::Tensor weight = f.spell().graph().attribute_tensor(value_arg(f.node(), "weight"));
  if (!weight.defined() || a->meta->sizes.empty()) return;
  const int64_t outputs = weight.size(0), columns = weight.size(2);
  const auto behind = [&](std::initializer_list<int64_t> last) {
    Speller::Sizes sizes(a->meta->sizes.begin(), a->meta->sizes.end() - 1);
    for (const int64_t size : last) sizes.push_back(fixed(size));
    return sizes;
  };
  V by = f.constant(weight.detach().permute({0, 2, 1}).reshape({outputs * columns, weight.size(1)}), "rows");
  V matrices = f.spell().call("aten::linear", {a, by}, f.type(), behind({outputs * columns}));
  matrices = f.view(matrices, behind({outputs, columns}));
  V product = f.spell().call("aten::matmul", {matrices, f.view(b, behind({columns, 1}))}, f.type(),
                             behind({outputs, 1}));
  product = f.view(product, behind({outputs}));
  f.result(f.is_tensor("bias") ? f.add(product, f.tensor("bias")) : product);
}

}  // namespace

SpelledTable spelled_products() {
  static constexpr SpelledRow kTable[] = {{"aten::addmm", addmm}, {"aten::bilinear", bilinear}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
