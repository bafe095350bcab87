#include "ulp/distributed/tensor_parallel_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Group = std::shared_ptr<ProcessGroup>;

/// A group in the context of an autograd function.
struct KeptGroup final : torch::CustomClassHolder {
  explicit KeptGroup(Group group) : group(std::move(group)) {}
  Group group;
};

void keep(AutogradContext* context, const Group& group) {
  context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<KeptGroup>(group));
}

ProcessGroup& kept(AutogradContext* context) {
  return *static_cast<KeptGroup*>(context->saved_data["group"].toCapsule().get())->group;
}

at::Tensor summed(ProcessGroup& group, const at::Tensor& x, ReduceOp op = ReduceOp::sum) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum, op).wait();
  return sum;
}

struct Enter : torch::autograd::Function<Enter> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Group& group) {
    keep(context, group);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {summed(kept(context), gradients[0]), {}};
  }
};

struct Sum : torch::autograd::Function<Sum> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& part, const Group& group) {
    return summed(*group, part);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], {}}; }
};

struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& part, const Split& split,
                            const Group& group) {
    keep(context, group);
    context->saved_data["split"] = std::vector<int64_t>{split.dim, split.outer, split.units, split.inner};
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.back() = split.size();
    // Parts may differ in size: each is put where it belongs among zeros, and the sum is the whole.
    at::Tensor whole = at::zeros(sizes, part.options());
    split.put_part(whole, part, group->rank(), group->size());
    group->all_reduce(whole).wait();
    return whole;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto numbers = context->saved_data["split"].toIntVector();
    const Split split{numbers[0], numbers[1], numbers[2], numbers[3]};
    const ProcessGroup& group = kept(context);
    return {split.part_of(gradients[0], group.rank(), group.size()), {}, {}};
  }
};

/// Throws ulp::Error unless the last dimension has the rank's units.
void check_part(const char* where, const at::Tensor& part, const Split& split, const ProcessGroup& group) {
  const int64_t own = split.outer * split.units_of(group.rank(), group.size()) * split.inner;
  if (part.dim() < 1 || part.size(-1) != own)
    fail(where, "expected a part whose last dimension has ", own, " of ", split.size(), ", got sizes ",
         part.sizes());
}

}  // namespace

at::Tensor enter_ranks(const at::Tensor& x, const Group& group) {
  return Enter::apply(x, group);
}

at::Tensor sum_over_ranks(const at::Tensor& part, const Group& group) {
  return Sum::apply(part, group);
}

at::Tensor gather_from_ranks(const at::Tensor& part, const Split& split, const Group& group) {
  check_part("distributed.gather_from_ranks", part, split, *group);
  Split last = split;
  last.dim = part.dim() - 1;
  return Gather::apply(part, last, group);
}

at::Tensor split_cross_entropy(const at::Tensor& part, const at::Tensor& targets, const Split& split,
                               const Group& group) {
  constexpr const char* kWhere = "distributed.split_cross_entropy";
  constexpr int64_t kLeftOut = -100;
  check_part(kWhere, part, split, *group);
  if (split.outer != 1) fail(kWhere, "expected classes that follow one another, got outer ", split.outer);
  if (targets.scalar_type() != at::kLong || targets.sizes() != part.sizes().slice(0, part.dim() - 1))
    fail(kWhere, "expected int64 classes of sizes ", part.sizes().slice(0, part.dim() - 1), ", got ",
         targets.toString(), " of ", targets.sizes());
  const int64_t begin = split.begin(group->rank(), group->size()) * split.inner;
  const at::Tensor logits = part.to(at::kFloat);
  at::Tensor most;
  {
    const at::NoGradGuard no_grad;
    most = summed(*group, logits.amax(-1, /*keepdim=*/true), ReduceOp::max);
  }
  const at::Tensor shifted = logits - most;
  const at::Tensor own = targets - begin;
  const at::Tensor elsewhere = own.lt(0).logical_or(own.ge(part.size(-1)));
  const at::Tensor hit = shifted.gather(-1, own.masked_fill(elsewhere, 0).unsqueeze(-1)).squeeze(-1);
  const at::Tensor exponentials = sum_over_ranks(shifted.exp().sum(-1), group);
  const at::Tensor of_target = sum_over_ranks(hit.masked_fill(elsewhere, 0), group);
  const at::Tensor counts = targets.ne(kLeftOut);
  const auto rows = counts.sum().item<int64_t>();
  if (rows == 0) fail(kWhere, "expected a target that counts, got none but ", kLeftOut);
  return (exponentials.log() - of_target).masked_fill(counts.logical_not(), 0).sum() /
         static_cast<double>(rows);
}

}  // namespace ulp::distributed
