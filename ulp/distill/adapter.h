// Adapters: layers that bring what a student gives to the width of its teacher, trained with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/libtorch/tensor_module.h"

namespace ulp::distill {

/// A linear layer over the last dimension of (N, features) or (N, T, features), a 1x1 convolution over the channels of
/// (N, C, H, W); it is followed by adaptive average pooling where the student's image is larger than the teacher's. Computes
/// in fp32. `from` and `to` are values of one batch. Throws ulp::Error, naming the places, for values that none of these
/// joins: ranks that differ, other numbers of tokens.
ULP_API std::shared_ptr<libtorch::TensorModule> make_adapter(const at::Tensor& from, const at::Tensor& to,
                                                             const std::string& places);

/// The teacher's value made as small as the student's where its image is larger; other values as they are.
ULP_API at::Tensor pooled_to(const at::Tensor& teacher, const at::Tensor& student);

}  // namespace ulp::distill
