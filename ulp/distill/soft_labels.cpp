#include "ulp/distill/soft_labels.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/distill/distillation_task.h"
#include "ulp/io/safetensors.h"

namespace ulp::distill {

namespace {

constexpr const char* kSoftLabelsKey = "ulp.soft_labels";
constexpr double kLeast = 1e-30;  // of a probability, so that its logarithm is finite

void check_samples(const char* where, const at::Tensor& samples, int64_t count) {
  if (!samples.defined()) fail(where, "expected numbers of the samples, got none");
  if (samples.dim() != 1 || samples.scalar_type() != at::kLong)
    fail(where, "expected numbers of the samples of type i64 and one dimension, got ", samples.sizes());
  if (samples.numel() == 0) return;
  const auto low = samples.min().item<int64_t>(), high = samples.max().item<int64_t>();
  if (low < 0 || high >= count)
    fail(where, "expected samples 0 to ", count - 1, ", got ", low < 0 ? low : high);
}

class StoredTeacher final : public Teacher {
 public:
  explicit StoredTeacher(SoftLabels labels) : labels_(std::move(labels)) {}
  std::vector<at::Tensor> values(const TeacherBatch& batch) override {
    return {labels_.logits(batch.samples)};
  }
  size_t count() const override { return 1; }
  std::string description() const override {
    return "stored labels, top " + std::to_string(labels_.ids.size(1));
  }

 private:
  SoftLabels labels_;
};

}  // namespace

at::Tensor SoftLabels::logits(const at::Tensor& of) const {
  check_samples("distill.SoftLabels", of, samples());
  const at::Tensor top_ids = ids.index_select(0, of).to(torch::kLong);
  const at::Tensor top = log_probability.index_select(0, of).to(torch::kDouble);
  const int64_t others = classes - ids.size(1);
  at::Tensor rest = (1 - top.exp().sum(1, /*keepdim=*/true)).clamp_min(0);
  if (others > 0) rest = rest / static_cast<double>(others);
  at::Tensor all = rest.clamp_min(kLeast).log().expand({of.size(0), classes}).clone();
  return all.scatter_(1, top_ids, top).to(torch::kFloat);
}

at::Tensor SoftLabels::hard(double threshold) const {
  const auto [best, place] = log_probability.max(1);
  const at::Tensor found = ids.gather(1, place.unsqueeze(1)).squeeze(1).to(torch::kLong);
  return at::where(best.exp().ge(threshold), found, at::full_like(found, kUnlabelled));
}

void SoftLabels::save(const std::filesystem::path& path) const {
  io::save_tensors(path, {{"ids", ids}, {"log_probability", log_probability}},
                   {{kSoftLabelsKey, std::to_string(classes)}});
}

SoftLabels SoftLabels::load(const std::filesystem::path& path) {
  constexpr const char* kWhere = "distill.SoftLabels";
  const io::TensorFile file = io::load_tensors(path);
  const at::Tensor* ids = file.find("ids");
  const at::Tensor* values = file.find("log_probability");
  const auto classes = file.metadata.find(kSoftLabelsKey);
  SoftLabels labels;
  const bool kinds = classes != file.metadata.end() && ids != nullptr && values != nullptr &&
                     ids->dim() == 2 && ids->scalar_type() == at::kInt &&
                     values->scalar_type() == at::kFloat && ids->sizes() == values->sizes() &&
                     ids->numel() > 0;
  if (kinds) labels = {std::atoll(classes->second.c_str()), *ids, *values};
  if (!kinds || labels.classes < ids->size(1) || ids->min().item<int>() < 0 ||
      ids->max().item<int>() >= labels.classes || !values->le(1e-3).all().item<bool>())
    fail_file(kWhere, "expected a teacher's labels in '", path.string(), "', got other tensors");
  return labels;
}

SoftLabeller::SoftLabeller(int64_t samples, int64_t k) : k_(k) {
  if (samples < 1 || k < 1)
    fail("distill.SoftLabeller", "expected samples and k >= 1, got ", samples, " and ", k);
  known_ = at::zeros({samples}, at::kBool);
}

void SoftLabeller::add(const at::Tensor& logits, const at::Tensor& samples) {
  constexpr const char* kWhere = "distill.SoftLabeller";
  const at::NoGradGuard no_grad;
  check_samples(kWhere, samples, known_.size(0));
  if (logits.dim() != 2 || logits.size(0) != samples.size(0) || logits.size(1) < 1 ||
      (labels_.classes != 0 && labels_.classes != logits.size(1)))
    fail(kWhere, "expected logits (", samples.size(0), ", classes), got ", logits.sizes());
  if (labels_.classes == 0) {
    labels_.classes = logits.size(1);
    const int64_t k = std::min(k_, labels_.classes);
    labels_.ids = at::zeros({known_.size(0), k}, at::kInt);
    labels_.log_probability = at::zeros({known_.size(0), k}, at::kFloat);
  }
  const auto [top, ids] = at::log_softmax(logits.to(torch::kFloat), 1).topk(labels_.ids.size(1), 1);
  labels_.ids.index_copy_(0, samples, ids.to(at::kInt));
  labels_.log_probability.index_copy_(0, samples, top);
  known_.index_fill_(0, samples, 1);
}

SoftLabels SoftLabeller::finish() const {
  const at::Tensor missing = at::nonzero(known_.logical_not());
  if (missing.size(0) > 0)
    fail("distill.SoftLabeller", "expected labels of every sample, got none of sample ",
         missing[0].item<int64_t>());
  return labels_;
}

std::shared_ptr<Teacher> stored_teacher(SoftLabels labels) {
  if (labels.samples() == 0) fail("distill.stored_teacher", "expected labels, got none");
  return std::make_shared<StoredTeacher>(std::move(labels));
}

}  // namespace ulp::distill
