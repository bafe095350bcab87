// A tensor stored with the plan, once for every item: a class token that is joined to every text or image.
#include <cstring>

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer(const StepView& view) {
  const Constant* value = view.constant("value");
  if (value == nullptr) view.fail("expected a constant 'value', got none");
  if (value->type == DataType::u8 || value->type == DataType::i8) {
    view.fail("expected constant 'value' to be f32, bf16, i32 or i64, got ", to_string(value->type));
  }
  std::vector<int64_t> shape = {view.input().shape[0]};
  shape.insert(shape.end(), value->shape.begin(), value->shape.end());
  return shape;
}

void check_output(const StepView& view) {
  view.expect_type("an output", view.output().type, view.constant("value")->type);
  if (view.output().layout != Layout::plain) view.fail("expected an output of layout plain");
}

class ConstantRunner final : public Runner {
 public:
  ConstantRunner(const StepView& view, kernels::Isa)
      : info_(view.output()), bytes_(view.constant("value")->bytes) {}
  void run(const RunArgs& args) const override {
    auto* to = static_cast<std::byte*>(args.output);
    for (int64_t i = 0; i < first_size(info_, args.batch); ++i, to += bytes_.size()) {
      std::memcpy(to, bytes_.data(), bytes_.size());
    }
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo info_;
  std::vector<std::byte> bytes_;
};

}  // namespace

const OpDef ops::constant = {
    .roles = {"value"}, .infer = infer, .check_output = check_output, .prepare = make_runner<ConstantRunner>};

}  // namespace ulp::runtime
