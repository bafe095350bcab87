#include "ulp/distill/losses/float_loss.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"

namespace ulp::distill {

at::Tensor FloatLoss::forward(const LossInput& input) {
  check(input);
  const amp::Autocast off(input.student[0].device().type(), at::kBFloat16, /*enabled=*/false);
  const auto is_double = [](const at::Tensor& value) { return value.scalar_type() == at::kDouble; };
  const bool wide =
      std::ranges::any_of(input.student, is_double) || std::ranges::any_of(input.teacher, is_double);
  const at::ScalarType type = wide ? at::kDouble : at::kFloat;
  LossInput values = input;
  for (at::Tensor& value : values.student) value = value.to(type);
  for (at::Tensor& value : values.teacher) value = value.detach().to(type);
  return compute(values);
}

void FloatLoss::check(const LossInput& input) const {
  const size_t count = places().size();
  for (const auto& [whose, values] :
       {std::pair("student", &input.student), std::pair("teacher", &input.teacher)}) {
    if (values->size() != count)
      fail(where(), "expected ", count, " of the ", whose, "'s values, got ", values->size());
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor& value = (*values)[i];
      const std::string what = std::string("the ") + whose + "'s " + places()[i];
      if (!value.defined()) fail(where(), "expected ", what, ", got an undefined tensor");
      if (!value.is_floating_point())
        fail(where(), "expected ", what, " of a floating type, got ", value.scalar_type());
      if (value.dim() == 0 || value.numel() == 0)
        fail(where(), "expected ", what, " to hold samples, got the shape ", value.sizes());
      const at::Tensor& first = input.student[0];
      if (value.size(0) != first.size(0))
        fail(where(), "expected ", first.size(0), " samples in ", what, ", got ", value.size(0));
      if (value.device() != first.device())
        fail(where(), "expected ", what, " on ", first.device(), ", got ", value.device());
    }
  }
}

void FloatLoss::require_same_shape(const LossInput& input) const {
  const auto student = input.student[0].sizes(), teacher = input.teacher[0].sizes();
  if (student != teacher) fail(where(), "expected the teacher's shape ", teacher, ", got ", student);
}

void FloatLoss::require_dims(const LossInput& input, int64_t least, int64_t most, const char* shape) const {
  for (const auto* values : {&input.student, &input.teacher}) {
    for (const at::Tensor& value : *values) {
      if (value.dim() < least || value.dim() > most)
        fail(where(), "expected values ", shape, ", got the shape ", value.sizes());
    }
  }
}

void FloatLoss::require_logits(const LossInput& input) const {
  require_dims(input, 2, 3, "(N, C) or (N, T, C)");
  require_same_shape(input);
}

void FloatLoss::require_classes(const LossInput& input) const {
  require_logits(input);
  if (input.student[0].size(-1) < 2)
    fail(where(), "expected logits of 2 classes or more, got the shape ", input.student[0].sizes(),
         ": one number has no distribution; 'logits' and 'mse' compare such results");
}

}  // namespace ulp::distill
