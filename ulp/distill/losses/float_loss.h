// The base of the losses: it checks what they are given and hands it on in fp32 or fp64.
#pragma once

#include <string>

#include "ulp/base/export.h"
#include "ulp/distill/loss.h"

namespace ulp::distill {

/// forward() throws ulp::Error unless there are as many values as places, all floating, on one device and
/// with the same number of samples (the first axis). compute() runs with autocast off on values of one
/// type: fp64 if one of them is, else fp32; the teacher's are detached.
class ULP_API FloatLoss : public Loss {
 public:
  std::string name() const final { return name_; }
  at::Tensor forward(const LossInput& input) final;

 protected:
  explicit FloatLoss(const std::string& name) : name_(name), where_("distill." + name) {}

  virtual at::Tensor compute(const LossInput& input) = 0;

  /// For messages: "distill.kd".
  const char* where() const { return where_.c_str(); }
  /// Throws unless the first values of student and teacher have one shape.
  void require_same_shape(const LossInput& input) const;
  /// Throws unless all values have so many dimensions; `shape` says which: "(N, C, H, W)".
  void require_dims(const LossInput& input, int64_t least, int64_t most, const char* shape) const;
  /// Throws unless the first values are logits (N, C) or (N, T, C) of one shape.
  void require_logits(const LossInput& input) const;
  /// Throws, too, where there is one number a sample: its probability is 1, whatever it is.
  void require_classes(const LossInput& input) const;

 private:
  void check(const LossInput& input) const;

  std::string name_, where_;
};

}  // namespace ulp::distill
