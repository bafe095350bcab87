// Products of 16-bit operands that are computed in fp32, with gradients: the result and each gradient are
// rounded once to the type of the operands, and autograd saves the operands as they are. Internal to the
// room.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ulp::amp {

/// The products are what they are, whatever autocast would make of them.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

/// a @ b of matrices and batches of them, as at::matmul broadcasts them.
at::Tensor wide_matmul(const at::Tensor& a, const at::Tensor& b);

/// beta * c + alpha * a @ b, where c is broadcast: addmm of matrices and baddbmm of batches.
at::Tensor wide_addmm(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, double beta,
                      double alpha);

/// x [..., in] of two dimensions or more by a weight [out, in] and a bias [out], which may be absent.
at::Tensor wide_linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

/// What at::convolution takes beside tensors.
struct ConvolutionArguments final : public torch::CustomClassHolder {
  std::vector<int64_t> stride, padding, dilation, output_padding;
  bool transposed = false;
  int64_t groups = 1;
};
at::Tensor wide_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<ConvolutionArguments>& how);

/// An op with its arguments, without the tensors that gradients go to.
struct BoxedCall final : public torch::CustomClassHolder {
  BoxedCall(const c10::OperatorHandle& called, torch::jit::Stack given)
      : op(called), stack(std::move(given)) {}
  c10::OperatorHandle op;
  torch::jit::Stack stack;
  std::vector<size_t> places;  ///< of the tensors

  at::Tensor operator()(const std::vector<at::Tensor>& tensors) const {
    torch::jit::Stack filled = stack;
    for (size_t i = 0; i < places.size(); ++i) filled[places[i]] = tensors[i];
    op.callBoxed(filled);
    return filled.at(0).toTensor();
  }
};
/// Any op of one result. The backward pass computes it once more, to have its gradient: not for ops that draw
/// numbers.
at::Tensor wide_call(const std::vector<at::Tensor>& tensors, const c10::intrusive_ptr<BoxedCall>& call);

}  // namespace ulp::amp
