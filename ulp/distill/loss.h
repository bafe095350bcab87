// The interface of distillation losses, which compare values of a student with those of its teacher.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/libtorch/keeps_float.h"

namespace ulp::distill {

/// The values that a loss compares in one batch.
struct LossInput {
  /// The values that it joins, as many as places() says; the teacher's are taken without gradient.
  std::vector<at::Tensor> student = {}, teacher = {};
  /// Classes, int64 (N) or (N, T), kUnlabelled (learner.h) where nobody knows them; undefined where the data have none.
  at::Tensor targets = {};
  at::Tensor samples = {};  ///< their numbers, int64 (N), for losses with a memory; undefined otherwise
  double progress = 0;      ///< epochs so far, with fractions: for schedules
};

/// A loss of distillation. Parameters and buffers of the module are its own, in fp32 also where the networks' are not: a checkpoint
/// holds them.
class ULP_API Loss : public torch::nn::Module, public libtorch::KeepsFloat {
 public:
  ~Loss() override;

  /// The name in the registry (losses/registry.h), such as "kd".
  virtual std::string name() const = 0;
  /// A scalar in fp32 (fp64 for fp64 values), with gradients to the student's values and the loss's own
  /// parameters. 16-bit values are computed in fp32, also under autocast. Throws ulp::Error for shapes that
  /// the loss does not compare, and where targets or samples are missing that it needs.
  virtual at::Tensor forward(const LossInput& input) = 0;
  /// Names of what it joins: {"value"} unless the loss says otherwise.
  virtual const std::vector<std::string>& places() const;
  /// Whether both values must have one shape: an adapter is needed where they differ.
  virtual bool same_width() const;
  /// Call once before training, with one batch and the number of samples in the data set: makes parameters
  /// and memories whose sizes follow from them. Nothing for most losses.
  virtual void prepare(const LossInput& example, int64_t samples);
  /// Sets the temperature, > 0, of a loss that has one; false for others.
  virtual bool set_temperature(double temperature);
};

}  // namespace ulp::distill
