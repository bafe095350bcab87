#include "ulp/distill/teacher_cache.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <mutex>

#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"

namespace ulp::distill {

namespace {

constexpr const char* kTeacherCacheWhere = "distill.TeacherCache";
constexpr const char* kTeacherCacheKey = "ulp.teacher_cache";

std::string value_name(size_t i) {
  return "value." + std::to_string(i);
}

}  // namespace

struct TeacherCache::State {
  std::shared_ptr<Teacher> teacher;
  CacheOptions options;
  at::Tensor known;                // bool (samples)
  std::vector<at::Tensor> values;  // (samples, ...), empty before the first batch
  bool changed = true;             // against the file
  std::mutex mutex;

  std::string identity() const {
    return options.of + "; " + std::to_string(teacher->count()) + " values of " +
           std::to_string(options.samples) + " samples" + (options.half ? " in fp16" : "");
  }

  void read() {
    const io::TensorFile file = io::load_tensors(options.path);
    const auto of = file.metadata.find(kTeacherCacheKey);
    if (of == file.metadata.end() || of->second != identity()) {
      fail_file(kTeacherCacheWhere, "expected '", options.path.string(), "' to hold values of ", identity(),
                ", got ", of == file.metadata.end() ? "another file" : of->second);
    }
    const at::Tensor* found = file.find("known");
    bool right = found != nullptr && found->scalar_type() == at::kBool && found->dim() == 1 &&
                 found->size(0) == options.samples;
    const bool empty = right && !found->any().item<bool>();  // of a teacher that was not asked yet
    for (size_t i = 0; right && !empty && i < teacher->count(); ++i) {
      const at::Tensor* value = file.find(value_name(i));
      right = value != nullptr && value->dim() > 0 && value->size(0) == options.samples;
      if (right) values.push_back(*value);
    }
    if (!right)
      fail_file(kTeacherCacheWhere, "expected a teacher's values in '", options.path.string(),
                "', got other tensors");
    known = *found;
    changed = false;
  }

  void check(const at::Tensor& samples) const {
    if (!samples.defined())
      fail(kTeacherCacheWhere, "expected numbers of the samples, got none: this data does not number them");
    if (samples.dim() != 1 || samples.scalar_type() != at::kLong)
      fail(kTeacherCacheWhere, "expected numbers of the samples of type i64 and one dimension, got ",
           samples.sizes());
    if (samples.numel() == 0) return;
    const auto low = samples.min().item<int64_t>(), high = samples.max().item<int64_t>();
    if (low < 0 || high >= options.samples)
      fail(kTeacherCacheWhere, "expected samples 0 to ", options.samples - 1, ", got ", low < 0 ? low : high);
  }

  void keep(const at::Tensor& samples, const std::vector<at::Tensor>& fresh) {
    if (values.empty()) {
      for (const at::Tensor& value : fresh) {
        std::vector<int64_t> sizes = value.sizes().vec();
        sizes[0] = options.samples;
        const bool narrow = options.half && value.is_floating_point();
        values.push_back(at::zeros(sizes, value.options().dtype(narrow ? at::kHalf : value.scalar_type())));
      }
    }
    for (size_t i = 0; i < values.size(); ++i)
      values[i].index_copy_(0, samples, fresh[i].to(values[i].scalar_type()));
    known.index_fill_(0, samples, 1);
    changed = true;
  }
};

TeacherCache::TeacherCache(std::shared_ptr<Teacher> teacher, CacheOptions options)
    : state_(std::make_unique<State>()) {
  if (teacher == nullptr) fail(kTeacherCacheWhere, "expected a teacher, got null");
  if (options.samples < 1) fail(kTeacherCacheWhere, "expected samples >= 1, got ", options.samples);
  state_->teacher = std::move(teacher);
  state_->options = std::move(options);
  state_->known = at::zeros({state_->options.samples}, at::kBool);
  if (!state_->options.path.empty() && std::filesystem::exists(state_->options.path)) state_->read();
}

TeacherCache::~TeacherCache() = default;

std::vector<at::Tensor> TeacherCache::values(const TeacherBatch& batch) {
  const at::NoGradGuard no_grad;
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.check(batch.samples);
  const at::Tensor missing = at::nonzero(s.known.index_select(0, batch.samples).logical_not()).flatten();
  if (missing.numel() == batch.samples.numel()) {
    s.keep(batch.samples,
           s.teacher->values(batch));  // as it is, so that its values are those without a cache
  } else if (missing.numel() > 0) {
    TeacherBatch part{.inputs = {}, .samples = batch.samples.index_select(0, missing)};
    for (const at::Tensor& input : batch.inputs) {
      const at::Tensor chosen = input.index_select(0, missing);
      part.inputs.push_back(  // in the layout of the batch, by which layers round
          at::empty(chosen.sizes(), input.options(), input.suggest_memory_format()).copy_(chosen));
    }
    s.keep(part.samples, s.teacher->values(part));
  }
  std::vector<at::Tensor> found;
  for (const at::Tensor& value : s.values) {
    at::Tensor rows = value.index_select(0, batch.samples);
    found.push_back(s.options.half && rows.scalar_type() == at::kHalf ? rows.to(at::kFloat) : rows);
  }
  return found;
}

size_t TeacherCache::count() const {
  return state_->teacher->count();
}

std::string TeacherCache::description() const {
  return state_->teacher->description() + ", kept by sample";
}

int64_t TeacherCache::known() const {
  return state_->known.sum().item<int64_t>();
}

void TeacherCache::save() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.options.path.empty() || !s.changed) return;
  io::NamedTensors tensors{{"known", s.known}};
  for (size_t i = 0; i < s.values.size(); ++i) tensors.emplace_back(value_name(i), s.values[i]);
  io::save_tensors(s.options.path, tensors, {{kTeacherCacheKey, s.identity()}});
  s.changed = false;
}

}  // namespace ulp::distill
