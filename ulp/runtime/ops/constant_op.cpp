// A tensor stored with the plan, once for every item: a class token that is joined to every text or image.
#include "ulp/runtime/ops/constant_op.h"

#include <cstring>

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_constant(const StepView& view) {
  const Constant* value = view.constant("value");
  const int64_t rows = view.attributes<ConstantAttributes>().rows;
  if (value == nullptr) view.fail("expected a constant 'value', got none");
  if (value->type == DataType::u8 || value->type == DataType::i8) {
    view.fail("expected constant 'value' to be f32, bf16, i32 or i64, got ", to_string(value->type));
  }
  std::vector<int64_t> shape = {view.input().shape[0]};
  shape.insert(shape.end(), value->shape.begin(), value->shape.end());
  if (rows > 0) {
    if (value->shape.empty() || rows > value->shape[0])
      view.fail("expected at most the rows of 'value' ", shape_text(value->shape), ", got ", rows);
    shape[1] = rows;
  }
  return shape;
}

void check_constant_output(const StepView& view) {
  view.expect_type("an output", view.output().type, view.constant("value")->type);
  if (view.output().layout != Layout::plain) view.fail("expected an output of layout plain");
}

std::optional<Kept> kept(const StepView& view) {
  const int64_t rows = view.attributes<ConstantAttributes>().rows;
  if (rows == 0) return std::nullopt;
  return Kept{.item_bytes = 0, .rows = rows, .capacity = view.constant("value")->shape[0]};
}

class ConstantRunner final : public Runner {
 public:
  ConstantRunner(const StepView& view, kernels::Isa)
      : info_(view.output()),
        bytes_(view.constant("value")->bytes),
        item_(byte_count(info_, 1) / static_cast<size_t>(first_size(info_, 1))),
        row_(item_ /
             static_cast<size_t>(view.attributes<ConstantAttributes>().rows > 0 ? info_.shape[1] : 1)),
        moves_(view.attributes<ConstantAttributes>().rows > 0) {}
  void run(const RunArgs& args) const override {
    auto* to = static_cast<std::byte*>(args.output);
    const std::byte* from = bytes_.data() + (moves_ ? static_cast<size_t>(args.memory.position) * row_ : 0);
    for (int64_t i = 0; i < first_size(info_, args.batch); ++i, to += item_) std::memcpy(to, from, item_);
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo info_;
  SharedBytes bytes_;
  size_t item_, row_;  ///< bytes
  bool moves_;         ///< with the position
};

/// The input is looked at for its batch alone.
StepWork constant_work(const StepView& view, int64_t batch) {
  return picked_work(view, batch, 0, 0);
}

}  // namespace

const OpDef ops::constant = {.roles = {"value"},
                             .infer = infer_constant,
                             .check_output = check_constant_output,
                             .kept = kept,
                             .work = constant_work,
                             .prepare = make_runner<ConstantRunner>};

}  // namespace ulp::runtime
