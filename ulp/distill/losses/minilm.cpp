#include "ulp/distill/losses/minilm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distill/losses/parts.h"

namespace ulp::distill {

namespace {

/// Log-probabilities (N, heads, T, T).
at::Tensor relation(const at::Tensor& x, const at::Tensor& y) {
  return log_probabilities(x.matmul(y.transpose(-1, -2)), std::sqrt(static_cast<double>(x.size(-1))));
}

}  // namespace

void MiniLmOptions::visit_fields(FieldVisitor& visit) {
  visit({"version", "Which relations are compared"}, version);
  visit({.name = "heads", .help = "Relation heads; 0: the values' own", .min = 0, .below_max = true}, heads);
}

MiniLm::MiniLm(const MiniLmOptions& options) : FloatLoss("minilm"), options_(options) {
  check_limits(where(), options_);
}

const std::vector<std::string>& MiniLm::places() const {
  static const std::vector<std::string> three = {"queries", "keys", "values"};
  return three;
}

at::Tensor MiniLm::in_heads(const at::Tensor& value) const {
  if (options_.heads == 0) {
    if (value.dim() != 4)
      fail(where(), "expected values (N, heads, T, d), or the option heads for fused ones, got the shape ",
           value.sizes());
    return value;
  }
  const at::Tensor fused = value.dim() == 4 ? value.transpose(1, 2).flatten(2) : value;
  const int64_t width = fused.size(2);
  if (width % options_.heads != 0)
    fail(where(), "expected a width that ", options_.heads, " heads divide, got ", width);
  return fused.unflatten(2, {options_.heads, width / options_.heads}).transpose(1, 2);
}

std::vector<at::Tensor> MiniLm::relations(const std::vector<at::Tensor>& values) const {
  const at::Tensor q = in_heads(values[0]), k = in_heads(values[1]), v = in_heads(values[2]);
  if (q.sizes() != k.sizes() || v.sizes().slice(0, 3) != q.sizes().slice(0, 3))
    fail(where(), "expected queries, keys and values of one shape, got ", q.sizes(), ", ", k.sizes(), " and ",
         v.sizes());
  if (options_.version == MiniLmVersion::v1) return {relation(q, k), relation(v, v)};
  return {relation(q, q), relation(k, k), relation(v, v)};
}

at::Tensor MiniLm::compute(const LossInput& input) {
  require_dims(input, 3, 4, "(N, heads, T, d) or (N, T, D)");
  const std::vector<at::Tensor> student = relations(input.student), teacher = relations(input.teacher);
  if (student[0].sizes() != teacher[0].sizes())
    fail(where(), "expected the teacher's relations ", teacher[0].sizes(), ", got ", student[0].sizes(),
         ": the option heads makes the numbers of heads equal");
  at::Tensor loss = kl_divergence(teacher[0], student[0]).mean();
  for (size_t i = 1; i < student.size(); ++i) loss = loss + kl_divergence(teacher[i], student[i]).mean();
  return loss;
}

}  // namespace ulp::distill
