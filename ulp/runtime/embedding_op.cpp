// Rows of a table by their ids. The engine refuses ids outside the table before any step runs.
#include <algorithm>
#include <cstring>

#include "ulp/runtime/ids.h"
#include "ulp/runtime/kernel_args.h"
#include "ulp/runtime/op.h"
#include "ulp/runtime/verify.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  view.expect_ids();
  const Constant* weight = view.constant("weight");
  if (weight == nullptr || weight->type != DataType::f32 || weight->shape.size() != 2) {
    view.fail("expected a constant 'weight' of type f32 and 2 dimensions");
  }
  std::vector<int64_t> shape = view.input().shape;
  shape.push_back(weight->shape[1]);
  if (checked_elements(shape) < 0) view.fail("the result is too large");
  return shape;
}

void check_output(const StepView& view) {
  view.expect_plain_f32_output();
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

}  // namespace

extern const OpDef kEmbeddingOp;
const OpDef kEmbeddingOp = {.op = Op::embedding,
                            .name = "embedding",
                            .roles = {"weight"},
                            .infer = infer,
                            .check_output = check_output,
                            .prepare = make_runner<EmbeddingRunner>};

}  // namespace ulp::runtime
