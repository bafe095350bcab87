#include "ulp/distill/losses/crd.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

void CrdOptions::visit_fields(FieldVisitor& visit) {
  visit({.name = "dim", .help = "Width of the embeddings", .min = 1, .below_max = true}, dim);
  visit({.name = "negatives", .help = "Negatives of a sample", .min = 1, .below_max = true}, negatives);
  visit({.name = "T", .help = "Temperature", .min = 0.02, .below_max = true}, temperature);
  visit({.name = "momentum",
         .help = "Share of the old embedding in a memory",
         .min = 0,
         .max = 1,
         .below_max = true},
        momentum);
  visit({"positive", "The positive entry of the memory"}, positive);
  visit({"other_classes", "Negatives are of other classes, where targets are given"}, other_classes);
}

Crd::Crd(const CrdOptions& options) : FloatLoss("crd"), options_(options) {
  check_limits(where(), options_);
}

Crd::~Crd() = default;

void Crd::prepare(const LossInput& example, int64_t samples) {
  if (z_.defined()) fail(where(), "expected one call of prepare(), got a second");
  if (samples < 2) fail(where(), "expected 2 samples or more in the data set, got ", samples);
  if (example.student.size() != 1 || example.teacher.size() != 1)
    fail(where(), "expected one value of student and teacher, got ", example.student.size(), " and ",
         example.teacher.size());
  const at::Tensor &student = example.student[0], &teacher = example.teacher[0];
  const bool wide = student.scalar_type() == at::kDouble || teacher.scalar_type() == at::kDouble;
  const auto options = student.options().dtype(wide ? at::kDouble : at::kFloat).requires_grad(false);
  const auto layer = [&](const char* name, const at::Tensor& value) {
    auto made =
        register_module(name, std::make_shared<torch::nn::LinearImpl>(value[0].numel(), options_.dim));
    made->to(options.device(), wide ? at::kDouble : at::kFloat);
    return made;
  };
  student_ = layer("student", student);
  teacher_ = layer("teacher", teacher);
  // Uniform, so that the components of an entry have the variance of a unit vector's, as the authors have it.
  const double bound = std::sqrt(3.0 / static_cast<double>(options_.dim));
  const auto memory = [&] { return at::empty({samples, options_.dim}, options).uniform_(-bound, bound); };
  student_memory_ = register_buffer("student_memory", memory());
  teacher_memory_ = register_buffer("teacher_memory", memory());
  // Samples not seen yet are each a class of their own: -1, -2, ...
  classes_ = register_buffer("classes", -1 - at::arange(samples, options.dtype(at::kLong)));
  z_ = register_buffer("z", at::zeros({2}, options));
}

void Crd::learn_classes(const LossInput& input) {
  if (!input.targets.defined()) {
    if (options_.positive == CrdPositive::same_class)
      fail(where(), "expected targets for positives of the same class, got none");
    return;
  }
  if (!options_.other_classes && options_.positive == CrdPositive::same_sample) return;
  if (input.targets.scalar_type() != at::kLong || input.targets.sizes() != input.samples.sizes())
    fail(where(), "expected targets int64 ", input.samples.sizes(), ", got ", input.targets.scalar_type(),
         " ", input.targets.sizes());
  if (!is_training()) return;
  const at::Tensor old = classes_.index_select(0, input.samples);
  classes_.index_copy_(0, input.samples, at::where(input.targets == kUnlabelled, old, input.targets));
}

/// Entries of the memories (N, 1 + m): the positive one and the negatives of each sample.
at::Tensor Crd::draw(const at::Tensor& samples) const {
  const int64_t count = classes_.size(0), negatives = std::min(options_.negatives, count - 1);
  const auto random = [&](int64_t columns) {
    return at::randint(std::numeric_limits<int64_t>::max(), {samples.size(0), columns}, classes_.options());
  };
  // Entries in the order of their classes: those of one class are neighbours, the others are around them.
  const auto [sorted, order] = classes_.sort(/*stable=*/true, 0, /*descending=*/false);
  const at::Tensor own = classes_.index_select(0, samples).unsqueeze(1);
  const at::Tensor first = at::searchsorted(sorted, own);
  const at::Tensor size = at::searchsorted(sorted, own, /*out_int32=*/false, /*right=*/true) - first;
  at::Tensor positive = samples.unsqueeze(1), outside = random(negatives);
  if (options_.other_classes) {
    if ((count - size).min().item<int64_t>() == 0)
      fail(where(), "expected samples of 2 classes or more for negatives, got one class");
    outside = outside.remainder(count - size);
    outside = order.take(outside + at::where(outside >= first, size, 0));
  } else {
    outside = outside.remainder(count - 1);
    outside = outside + (outside >= positive);
  }
  if (options_.positive == CrdPositive::same_class) positive = order.take(first + random(1).remainder(size));
  return at::cat({positive, outside}, 1);
}

at::Tensor Crd::embed(const at::Tensor& value, torch::nn::LinearImpl& layer) const {
  const at::Tensor rows = value.flatten(1);
  if (rows.size(1) != layer.options.in_features())
    fail(where(), "expected values of ", layer.options.in_features(),
         " numbers as in prepare(), got the shape ", value.sizes());
  return normalized_rows(layer.forward(rows));
}

/// The loss of embeddings of one network (N, dim) against entries of the memory of the other one.
at::Tensor Crd::direction(const at::Tensor& embedding, const at::Tensor& memory, const at::Tensor& entries,
                          int64_t z) {
  const auto count = static_cast<double>(memory.size(0)),
             negatives = static_cast<double>(entries.size(1) - 1);
  // All products and then a choice: cheaper than the rows of the entries, which are far more than the
  // memory has.
  const at::Tensor scores = embedding.mm(memory.t()).gather(1, entries) / options_.temperature;
  at::Tensor constant = z_[z];
  if (constant.item<double>() == 0) {
    constant = scores.detach().exp().mean() * count;
    if (is_training()) z_[z].copy_(constant);
  }
  const at::Tensor odds = scores - constant.log() - std::log(negatives / count);  // log(P / (m / n))
  return -(at::log_sigmoid(odds.slice(1, 0, 1)).sum() + at::log_sigmoid(-odds.slice(1, 1)).sum()) /
         static_cast<double>(entries.size(0));
}

void Crd::remember(at::Tensor& memory, const at::Tensor& samples, const at::Tensor& embedding) const {
  const at::NoGradGuard no_grad;
  const double momentum = options_.momentum;
  const at::Tensor moved = momentum * memory.index_select(0, samples) + (1 - momentum) * embedding;
  // New storage: the backward pass still reads the old.
  memory.set_data(memory.index_copy(0, samples, normalized_rows(moved)));
}

at::Tensor Crd::compute(const LossInput& input) {
  if (!z_.defined()) fail(where(), "expected prepare() to be called before, got values");
  if (!input.samples.defined()) fail(where(), "expected numbers of samples, got none");
  const int64_t batch = input.student[0].size(0), count = classes_.size(0);
  if (input.samples.scalar_type() != at::kLong || input.samples.dim() != 1 || input.samples.size(0) != batch)
    fail(where(), "expected samples int64 (", batch, "), got ", input.samples.scalar_type(), " ",
         input.samples.sizes());
  LossInput here = input;
  here.samples = input.samples.to(classes_.device());
  if (input.targets.defined()) here.targets = input.targets.to(classes_.device());
  const auto [least, most] = at::aminmax(here.samples);
  if (least.item<int64_t>() < 0 || most.item<int64_t>() >= count)
    fail(where(), "expected samples in [0, ", count - 1, "], got ", least.item<int64_t>(), " to ",
         most.item<int64_t>());
  learn_classes(here);
  const at::Tensor student = embed(input.student[0], *student_), teacher = embed(input.teacher[0], *teacher_);
  const at::Tensor entries = draw(here.samples);
  // Aliases of the memories, which remember() gives other storage.
  const at::Tensor loss = direction(student, teacher_memory_.detach(), entries, 0) +
                          direction(teacher, student_memory_.detach(), entries, 1);
  if (is_training()) {
    remember(student_memory_, here.samples, student.detach());
    remember(teacher_memory_, here.samples, teacher.detach());
  }
  return loss;
}

}  // namespace ulp::distill
