// Rows of a table by their ids. The engine refuses ids outside the table before any step runs.
#include <algorithm>
#include <cstring>

#include "ulp/runtime/ops/coded_matrix.h"
#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  view.expect_ids();
  const Constant* weight = view.constant("weight");
  std::vector<int64_t> shape = view.input().shape;
  if (has_coded_weight(view)) {
    shape.push_back(coded_matrix(view, 0).columns);
    if (checked_elements(shape) < 0) view.fail("the result is too large");
    return shape;
  }
  if (view.constant("weight_scale") != nullptr || view.constant("weight_zero") != nullptr) {
    view.fail("scales and zero points are for a coded 'weight'");
  }
  if (weight == nullptr || weight->type != DataType::f32 || weight->shape.size() != 2) {
    view.fail("expected a constant 'weight' of type f32 and 2 dimensions");
  }
  shape.push_back(weight->shape[1]);
  if (checked_elements(shape) < 0) view.fail("the result is too large");
  return shape;
}

void check_output(const StepView& view) {
  view.expect_plain_f32_output();
}

int64_t table_rows(const StepView& view) {
  return view.constant("weight")->shape[0];
}

class EmbeddingRunner final : public Runner {
 public:
  EmbeddingRunner(const StepView& view, kernels::Isa)
      : ids_(view.input()),
        width_(view.constant("weight")->shape[1]),
        table_(floats_of(*view.constant("weight"))) {}
  void run(const RunArgs& args) const override {
    const int64_t count = element_count(ids_, args.batch);
    const int64_t per_task = std::max<int64_t>(1, 16384 / width_);
    args.parallel.run((count + per_task - 1) / per_task, [&](int64_t task, int) {
      const int64_t end = std::min(count, (task + 1) * per_task);
      for (int64_t i = task * per_task; i < end; ++i) {
        std::memcpy(static_cast<float*>(args.output) + i * width_,
                    table_.data() + id_at(ids_.type, args.inputs[0], i) * width_,
                    static_cast<size_t>(width_) * sizeof(float));
      }
    });
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo ids_;
  int64_t width_;
  std::vector<float> table_;
};

/// Unpacks the rows it reads.
class CodedEmbeddingRunner final : public Runner {
 public:
  CodedEmbeddingRunner(const StepView& view, kernels::Isa)
      : ids_(view.input()), table_(coded_matrix_with_scales(view, 0)) {
    const Constant& weight = *view.constant("weight");
    codes_.assign(table_.codes, table_.codes + weight.bytes.size());
    zero_.assign(table_.scale.size(), table_.bits == 4 ? 8.0F : 0.0F);
    for (size_t i = 0; table_.zero != nullptr && i < zero_.size(); ++i) zero_[i] = table_.zero[i];
  }
  void run(const RunArgs& args) const override {
    const int64_t count = element_count(ids_, args.batch);
    const int64_t per_task = std::max<int64_t>(1, 16384 / table_.columns);
    args.parallel.run((count + per_task - 1) / per_task, [&](int64_t task, int) {
      const int64_t end = std::min(count, (task + 1) * per_task);
      for (int64_t i = task * per_task; i < end; ++i) {
        unpack(id_at(ids_.type, args.inputs[0], i), static_cast<float*>(args.output) + i * table_.columns);
      }
    });
  }
  std::string kernel() const override { return "unpack" + std::to_string(table_.bits); }

 private:
  void unpack(int64_t row, float* to) const {
    for (int64_t g = 0; g < table_.groups; ++g) {
      const auto part = static_cast<size_t>(row * table_.groups + g);
      const float zero = zero_[part], scale = table_.scale[part];
      const int64_t first = row * table_.columns + g * table_.group;
      for (int64_t k = 0; k < table_.group; ++k) {
        to[g * table_.group + k] = (static_cast<float>(code(first + k)) - zero) * scale;
      }
    }
  }
  int32_t code(int64_t i) const {
    if (table_.bits == 8) return static_cast<int8_t>(codes_[static_cast<size_t>(i)]);
    const uint8_t pair = codes_[static_cast<size_t>(i / 2)];
    return i % 2 == 0 ? pair & 15 : pair >> 4;
  }

  TensorInfo ids_;
  CodedMatrix table_;
  std::vector<uint8_t> codes_;
  std::vector<float> zero_;  ///< one for each scale
};

std::unique_ptr<Runner> prepare(const StepView& view, kernels::Isa isa) {
  if (has_coded_weight(view)) return std::make_unique<CodedEmbeddingRunner>(view, isa);
  return std::make_unique<EmbeddingRunner>(view, isa);
}

}  // namespace

const OpDef ops::embedding = {.roles = {"weight", "weight_scale", "weight_zero"},
                              .infer = infer,
                              .check_output = check_output,
                              .table_rows = table_rows,
                              .prepare = prepare};

}  // namespace ulp::runtime
