#include "ulp/amp/int8/int8_tensor.h"

#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "ulp/kernels/linear/int8_block_product.h"
#include "ulp/kernels/linear/int8_product.h"
#include "ulp/libtorch/data_types.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {
namespace {

using at::Tensor;
using kernels::Int8Scales;

/// Memory that a thread keeps from product to product: the system takes longer to give and clear megabytes
/// than a product takes to fill them.
void* scratch(size_t bytes) {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    constexpr size_t kPage = 4096;
    const size_t wanted = (bytes + kPage - 1) / kPage * kPage;
    memory.reset();
    size = 0;
    memory.reset(std::aligned_alloc(kPage, wanted));
    if (!memory) throw std::bad_alloc();
    size = wanted;
  }
  return memory.get();
}

/// Dense, and of a type that the kernels read.
Tensor readable(const Tensor& matrix) {
  const bool as_it_is = matrix.scalar_type() == at::kBFloat16 || matrix.scalar_type() == at::kFloat;
  return (as_it_is ? matrix : matrix.to(at::kFloat)).contiguous();
}

std::vector<int64_t> scale_sizes(Int8Scales scales, int64_t rows, int64_t columns) {
  if (scales != Int8Scales::blocks) return {kernels::int8_scale_count(scales, rows, columns)};
  const auto blocks = [](int64_t n) { return (n + kernels::kInt8Block - 1) / kernels::kInt8Block; };
  return {blocks(rows), blocks(columns)};
}

Tensor transposed_scale(const Tensor& scale) {
  return scale.dim() == 2 ? scale.t().contiguous() : scale;
}

Int8How transposed_how(Int8How how) {
  std::swap(how.straight, how.across);
  if (how.scales == Int8Scales::rows) {
    how.scales = Int8Scales::columns;
  } else if (how.scales == Int8Scales::columns) {
    how.scales = Int8Scales::rows;
  }
  return how;
}

kernels::Int8Rows rows_of(const Int8Tensor& matrix) {
  return {matrix.codes.const_data_ptr<int8_t>(), matrix.codes.size(1), matrix.scale.const_data_ptr<float>(),
          matrix.scale.numel() == matrix.codes.size(0)};
}

Tensor row_product(const Int8Tensor& a, const Int8Tensor& b, const Tensor& bias, at::ScalarType dtype) {
  const Tensor bias_f32 = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const int64_t inner = a.codes.size(1);
  const bool narrow = dtype == at::kBFloat16 && inner <= kernels::kMaxInt8Inner;
  const Tensor y = at::empty({a.codes.size(0), b.codes.size(0)},
                             a.codes.options().dtype(narrow ? at::kBFloat16 : at::kFloat));
  kernels::Int8Product p;
  p.rows = a.codes.size(0);
  p.columns = b.codes.size(0);
  p.a = rows_of(a);
  p.b = rows_of(b);
  p.output = narrow ? DataType::bf16 : DataType::f32;
  p.y = y.mutable_data_ptr();
  p.bias = bias_f32.defined() ? bias_f32.const_data_ptr<float>() : nullptr;
  const libtorch::TorchParallel parallel;
  const kernels::Isa isa = kernels::selected_isa();
  for (int64_t begin = 0; begin < std::max<int64_t>(inner, 1); begin += kernels::kMaxInt8Inner) {
    p.inner = std::min(inner - begin, kernels::kMaxInt8Inner);
    kernels::int8_product(p, scratch(kernels::int8_product_workspace(p, isa)), isa, parallel);
    p.a.codes += p.inner;
    p.b.codes += p.inner;
    p.bias = nullptr;
    p.accumulate = true;
  }
  return y.to(dtype);
}

/// The same of blocks.
Tensor block_product(const Int8Tensor& a, const Int8Tensor& b, const Tensor& bias, at::ScalarType dtype) {
  const Tensor bias_f32 = bias.defined() ? bias.to(at::kFloat).contiguous() : bias;
  const bool narrow = dtype == at::kBFloat16;
  const Tensor y = at::empty({a.codes.size(0), b.codes.size(0)},
                             a.codes.options().dtype(narrow ? at::kBFloat16 : at::kFloat));
  kernels::Int8BlockProduct p;
  p.rows = a.codes.size(0);
  p.columns = b.codes.size(0);
  p.inner = a.codes.size(1);
  p.a = {a.codes.const_data_ptr<int8_t>(), a.scale.const_data_ptr<float>()};
  p.b = {b.codes.const_data_ptr<int8_t>(), b.scale.const_data_ptr<float>()};
  p.bias = bias_f32.defined() ? bias_f32.const_data_ptr<float>() : nullptr;
  p.output = narrow ? DataType::bf16 : DataType::f32;
  p.y = y.mutable_data_ptr();
  const kernels::Isa isa = kernels::selected_isa();
  kernels::int8_block_product(p, scratch(kernels::int8_block_product_workspace(p, isa)), isa,
                              libtorch::TorchParallel());
  return y.to(dtype);
}

}  // namespace

bool is_transposed(const Tensor& matrix) {
  return !matrix.is_contiguous() && matrix.t().is_contiguous();
}

Int8Pair int8_quantize(const Tensor& matrix, const Int8How& how) {
  if (!matrix.is_cpu()) return int8_quantize_generic(matrix, how);
  if (is_transposed(matrix)) {
    Int8Pair pair = int8_quantize(matrix.t(), transposed_how(how));
    return {pair.across, pair.straight};
  }
  const Tensor x = readable(matrix);
  const int64_t rows = x.size(0), columns = x.size(1);
  Int8Pair pair;
  kernels::Int8Target target;
  const auto options = x.options().dtype(at::kChar);
  const Tensor scale = at::empty(scale_sizes(how.scales, rows, columns), x.options().dtype(at::kFloat));
  target.scale = scale.mutable_data_ptr<float>();
  if (how.straight) {
    pair.straight = {at::empty({rows, columns}, options), scale};
    target.codes = pair.straight.codes.mutable_data_ptr<int8_t>();
  }
  if (how.across) {
    pair.across.codes = at::empty({columns, rows}, options);
    target.transposed = pair.across.codes.mutable_data_ptr<int8_t>();
  }
  const DataType type = libtorch::data_type_of(x.scalar_type()).value();
  kernels::int8_quantize({type, x.const_data_ptr(), rows, columns}, how.scales, target, how.key,
                         kernels::selected_isa(), libtorch::TorchParallel());
  if (how.across) pair.across.scale = transposed_scale(scale);
  return pair;
}

Int8Tensor int8_transpose(const Int8Tensor& matrix) {
  const int64_t rows = matrix.codes.size(0), columns = matrix.codes.size(1);
  if (!matrix.codes.is_cpu()) return {matrix.codes.t().contiguous(), transposed_scale(matrix.scale)};
  const Tensor codes = at::empty({columns, rows}, matrix.codes.options());
  kernels::int8_transpose(matrix.codes.const_data_ptr<int8_t>(), rows, columns,
                          codes.mutable_data_ptr<int8_t>(), kernels::selected_isa(),
                          libtorch::TorchParallel());
  return {codes, transposed_scale(matrix.scale)};
}

Tensor int8_product(const Int8Tensor& a, const Int8Tensor& b, const Tensor& bias, at::ScalarType dtype) {
  if (!a.codes.is_cpu()) return int8_product_generic(a, b, bias, dtype);
  return a.scale.dim() == 2 ? block_product(a, b, bias, dtype) : row_product(a, b, bias, dtype);
}

}  // namespace ulp::amp
