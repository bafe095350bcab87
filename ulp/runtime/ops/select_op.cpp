// One index of dimension 1, as in the first token of every text.
#include <cstring>

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_select(const StepView& view) {
  const TensorInfo& x = view.input();
  if (x.shape.size() < 3 || x.layout != Layout::plain) {
    view.fail("expected an input of at least 3 dimensions and layout plain, got ", shape_text(x.shape), " ",
              to_string(x.layout));
  }
  const int64_t index = view.attributes<SelectAttributes>().begin;
  if (index >= x.shape[1]) view.fail("expected an index in [0, ", x.shape[1], "), got ", index);
  std::vector<int64_t> shape = x.shape;
  shape.erase(shape.begin() + 1);
  return shape;
}

void check_select_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class SelectRunner final : public Runner {
 public:
  SelectRunner(const StepView& view, kernels::Isa)
      : x_(view.input()), y_(view.output()), begin_(view.attributes<SelectAttributes>().begin) {}
  void run(const RunArgs& args) const override {
    const auto size = static_cast<size_t>(element_bytes(x_.type));
    const size_t from = static_cast<size_t>(item_elements(x_)) * size;
    const size_t to = static_cast<size_t>(item_elements(y_)) * size;
    for (size_t n = 0; n < static_cast<size_t>(first_size(x_, args.batch)); ++n) {
      std::memcpy(static_cast<std::byte*>(args.output) + n * to,
                  static_cast<const std::byte*>(args.inputs[0]) + n * from + static_cast<size_t>(begin_) * to,
                  to);
    }
  }
  std::string kernel() const override { return "copy"; }

 private:
  TensorInfo x_, y_;
  int64_t begin_;
};

}  // namespace

const OpDef ops::select = {.infer = infer_select,
                           .check_output = check_select_output,
                           .work = copied_work,
                           .prepare = make_runner<SelectRunner>};

}  // namespace ulp::runtime
