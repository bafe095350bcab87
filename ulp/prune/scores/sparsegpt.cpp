#include "ulp/prune/scores/sparsegpt.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/scores/layer_inputs.h"

namespace ulp::prune {
namespace {

constexpr const char* kSparsegptWhere = "prune.sparsegpt";

void check(const SparseGptOptions& options) {
  options.pattern.validate();
  if (!(options.sparsity >= 0 && options.sparsity <= 1))
    fail(kSparsegptWhere, "expected a sparsity in [0, 1], got ", options.sparsity);
  if (!(options.damp > 0)) fail(kSparsegptWhere, "expected damp > 0, got ", options.damp);
  if (options.block < 1) fail(kSparsegptWhere, "expected block >= 1, got ", options.block);
  const bool n_m = options.pattern.kind == PatternKind::n_m;
  if (!n_m && options.pattern.kind != PatternKind::free)
    fail(kSparsegptWhere, "expected the pattern free or n_m, got ", enum_name(options.pattern.kind));
  if (n_m && options.block % options.pattern.m != 0)
    fail(kSparsegptWhere, "expected block in a multiple of m = ", options.pattern.m, ", got ", options.block);
}

at::Tensor cholesky_factor(const at::Tensor& matrix, bool upper) {
  const auto [factor, info] = at::linalg_cholesky_ex(matrix, upper);
  if (info.item<int>() != 0) {
    fail(kSparsegptWhere,
         "expected inputs whose second moments are positive definite after damping, got none at column ",
         info.item<int>() - 1);
  }
  return factor;
}

/// One layer on its way.
class ReconstructedLayer {
 public:
  ReconstructedLayer(const at::Tensor& weight, at::Tensor hessian, const SparseGptOptions& options,
                     const at::Tensor& keep)
      : options_(options), weight_(weight.detach().flatten(1).to(at::kDouble).clone()) {
    const at::Tensor dead = hessian.diagonal().eq(0);
    hessian = hessian.clone();
    hessian.diagonal().masked_fill_(dead, 1);
    weight_.masked_fill_(dead, 0);
    if (keep.defined()) {
      before_ = keep.flatten(1).logical_not();
      weight_.masked_fill_(before_, 0);
    }
    hessian.diagonal().add_(options.damp * hessian.diagonal().mean());
    upper_ = cholesky_factor(at::cholesky_inverse(cholesky_factor(hessian, false)), true);
    pruned_ = at::zeros(weight_.sizes(), at::kBool);
  }

  SparseGptResult run() {
    const int64_t columns = weight_.size(1);
    for (int64_t begin = 0; begin < columns; begin += options_.block)
      run_block(begin, std::min(begin + options_.block, columns));
    return {weight_, pruned_.logical_not()};
  }

 private:
  /// w^2 / U_jj^2 of the columns; what is pruned already comes first.
  at::Tensor scores(const at::Tensor& weight, int64_t begin, int64_t end) const {
    at::Tensor made = (weight / upper_.diagonal().slice(0, begin, end)).square();
    if (before_.defined()) made.masked_fill_(before_.slice(1, begin, end), -1);
    return made;
  }

  /// The lowest of a [rows, columns] table.
  static at::Tensor lowest(const at::Tensor& scores, int64_t count) {
    at::Tensor chosen = at::zeros({scores.numel()}, at::kBool);
    const at::Tensor order = std::get<1>(
        scores.flatten().sort(/*stable=*/std::optional<bool>(true), /*dim=*/0, /*descending=*/false));
    chosen.index_fill_(0, order.slice(0, 0, count), 1);
    return chosen.view(scores.sizes());
  }

  void choose_free(int64_t begin, int64_t end) {
    const int64_t rows = weight_.size(0);
    const auto until = [&](int64_t column) {
      return static_cast<int64_t>(options_.sparsity * static_cast<double>(rows * column));
    };
    const at::Tensor own = scores(weight_.slice(1, begin, end), begin, end);
    pruned_.slice(1, begin, end).copy_(lowest(own, until(end) - until(begin)));
  }

  void choose_group(int64_t begin) {
    const int64_t end = begin + options_.pattern.m;
    const at::Tensor own = scores(weight_.slice(1, begin, end), begin, end);
    const at::Tensor order = std::get<1>(own.sort(std::optional<bool>(true), 1, false));
    pruned_.slice(1, begin, end).scatter_(1, order.slice(1, 0, options_.pattern.m - options_.pattern.n), 1);
  }

  void run_block(int64_t begin, int64_t end) {
    const bool n_m = options_.pattern.kind == PatternKind::n_m;
    if (!n_m) choose_free(begin, end);
    if (before_.defined()) pruned_.slice(1, begin, end).logical_or_(before_.slice(1, begin, end));
    at::Tensor errors = at::zeros({weight_.size(0), end - begin}, at::kDouble);
    for (int64_t j = begin; j < end; ++j) {
      if (n_m && j % options_.pattern.m == 0) choose_group(j);
      at::Tensor column = weight_.select(1, j);
      const at::Tensor error =
          (column * pruned_.select(1, j)) / upper_.select(0, j).select(0, j);  // (w - q) / U_jj
      weight_.slice(1, j + 1, end).sub_(error.unsqueeze(1) * upper_.select(0, j).slice(0, j + 1, end));
      column.masked_fill_(pruned_.select(1, j), 0);
      errors.select(1, j - begin).copy_(error);
    }
    weight_.slice(1, end).sub_(errors.matmul(upper_.slice(0, begin, end).slice(1, end)));
  }

  const SparseGptOptions& options_;
  at::Tensor weight_, upper_, pruned_, before_;
};

/// A parameter as it was.
struct Before {
  std::string name;
  at::Tensor weight, keep;
  bool dense_gradient = false;
};

Before state_of(const graph::GraphModule& module, const std::string& name) {
  Before before{name, module.named_parameters()[name].clone(), find_mask(module.graph(), name)};
  for (const ParameterMask& mask : masks(module.graph())) {
    if (mask.dense.is_same(module.graph().find_attribute(name)->tensor))
      before.dense_gradient = mask.dense_gradient;
  }
  return before;
}

void restore(graph::GraphModule& module, const std::vector<Before>& before) {
  for (const Before& each : before) {
    at::Tensor weight = module.named_parameters()[each.name];
    weight.copy_(each.weight);
    if (each.keep.defined()) {
      set_mask(module, each.name, each.keep, each.dense_gradient);
    } else if (find_mask(module.graph(), each.name).defined()) {
      remove_mask(module, each.name);
    }
  }
}

}  // namespace

SparseGptResult sparsegpt(const at::Tensor& weight, const at::Tensor& products,
                          const SparseGptOptions& options, const at::Tensor& keep) {
  check(options);
  const at::NoGradGuard no_grad;
  if (!weight.defined() || weight.dim() < 2 || !weight.is_floating_point())
    fail(kSparsegptWhere, "expected a weight of at least two dimensions");
  const int64_t columns = weight.numel() / std::max<int64_t>(1, weight.size(0));
  if (!products.defined() || products.sizes() != at::IntArrayRef({columns, columns})) {
    fail(kSparsegptWhere, "expected products of sizes [", columns, ", ", columns, "], got ",
         products.defined() ? products.sizes() : at::IntArrayRef());
  }
  if (!weight.isfinite().all().item<bool>())
    fail(kSparsegptWhere, "expected a weight of finite numbers, got one that is not");
  if (keep.defined() && (keep.scalar_type() != at::kBool || keep.sizes() != weight.sizes()))
    fail(kSparsegptWhere, "expected a mask of bools of sizes ", weight.sizes(), ", got ", keep.dtype(), ' ',
         keep.sizes());
  if (options.pattern.kind == PatternKind::n_m && columns % options.pattern.m != 0)
    fail(kSparsegptWhere, "expected columns in a multiple of ", options.pattern.m, ", got ", columns);
  if (options.pattern.kind == PatternKind::n_m && weight.dim() != 2)
    fail(kSparsegptWhere, "expected the weight of a linear layer for n_m, got sizes ", weight.sizes());
  const SparseGptResult made = ReconstructedLayer(weight, products.to(at::kDouble), options, keep).run();
  return {made.weight.view(weight.sizes()).to(weight.scalar_type()), made.keep.view(weight.sizes())};
}

void prune_sparsegpt(graph::GraphModule& module, const std::vector<std::string>& parameters,
                     const std::vector<std::vector<at::Tensor>>& inputs, const SparseGptOptions& options) {
  check(options);
  if (inputs.empty()) fail(kSparsegptWhere, "expected inputs to calibrate with, got none");
  layer_inputs(module, parameters, {}, false);  // throws for names that it does not know
  const at::NoGradGuard no_grad;
  std::vector<Before> before;
  for (const std::string& name : parameters) {
    try {
      at::Tensor weight = module.named_parameters()[name];
      before.push_back(state_of(module, name));
      const InputSums sums = layer_inputs(module, {name}, inputs, /*products=*/true)[0];
      const SparseGptResult result = sparsegpt(weight, sums.products, options, before.back().keep);
      weight.copy_(result.weight);
      set_mask(module, name, result.keep, before.back().dense_gradient);
    } catch (const std::exception& error) {
      restore(module, before);
      fail(kSparsegptWhere, "'", name, "': ", error.what());
    }
  }
}

}  // namespace ulp::prune
