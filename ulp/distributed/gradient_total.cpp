#include "ulp/distributed/gradient_total.h"

#include <ATen/Functions.h>

namespace ulp::distributed {

amp::GradientTotal total_gradients(ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const at::Tensor sums = at::empty({2}, at::kDouble);
  sums[0] = amp::gradient_square_sum(gradients);
  sums[1] = static_cast<double>(gradients.size());
  group.all_reduce(sums).wait();
  return {sums[0].item<double>(), static_cast<int64_t>(sums[1].item<double>())};
}

}  // namespace ulp::distributed
