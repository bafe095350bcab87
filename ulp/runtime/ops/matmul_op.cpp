// Products of matrices of two values, or of a value and a constant.
#include "ulp/runtime/ops/matmul_op.h"

#include "ulp/kernels/matmul/matmul.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

/// The lowest and the highest element that a side reads lie inside its item.
void check_side(const StepView& view, const char* name, const MatmulSide& side, int64_t rows, int64_t columns,
                int64_t MatmulLoop::*stride, int64_t item) {
  __int128 lowest = side.offset, highest = side.offset;
  const auto add = [&](int64_t size, int64_t step) {
    (step < 0 ? lowest : highest) += static_cast<__int128>(size - 1) * step;
  };
  add(rows, side.row);
  add(columns, side.column);
  for (const MatmulLoop& loop : view.attributes<MatmulAttributes>().loops) add(loop.size, loop.*stride);
  if (lowest < 0 || highest >= item) {
    view.fail("expected strides of '", name, "' that stay inside its ", item, " elements of an item");
  }
}

/// The constant that takes the place of a side, or null.
const Constant* constant_side(const StepView& view) {
  return view.constant("a") != nullptr ? view.constant("a") : view.constant("b");
}

void check_inputs(const StepView& view) {
  const bool a = view.constant("a") != nullptr, b = view.constant("b") != nullptr;
  if (a && b) view.fail("expected a constant for one side, got two");
  if (view.input_count() != (a || b ? 1u : 2u)) {
    view.fail("expected two inputs, or one and a constant 'a' or 'b', got ", view.input_count());
  }
  for (size_t i = 0; i < view.input_count(); ++i) {
    const DataType type = view.input(i).type;
    if (type != DataType::f32 && type != DataType::bf16) {
      view.fail("expected inputs of f32 or bf16, got ", to_string(type));
    }
    if (view.input(i).shape[0] != view.input(0).shape[0]) view.fail("expected inputs of one batch");
  }
  if (a || b) view.expect_type("a constant", constant_side(view)->type, DataType::f32);
}

/// Elements of an item of a side, or of its constant.
int64_t elements_of(const StepView& view, const char* role, size_t input) {
  const Constant* constant = view.constant(role);
  if (constant == nullptr) return item_elements(view.input(view.input_count() == 1 ? 0 : input));
  return static_cast<int64_t>(constant->bytes.size()) / element_bytes(constant->type);
}

std::vector<int64_t> infer_matmul(const StepView& view) {
  check_inputs(view);
  const auto& own = view.attributes<MatmulAttributes>();
  constexpr size_t kMostLoops = 8;
  if (own.loops.size() > kMostLoops) view.fail("expected at most ", kMostLoops, " loops");
  check_side(view, "a", own.a, own.rows, own.inner, &MatmulLoop::a, elements_of(view, "a", 0));
  check_side(view, "b", own.b, own.inner, own.columns, &MatmulLoop::b, elements_of(view, "b", 1));
  std::vector<int64_t> made = {own.rows, own.columns}, wanted, shape = {view.input().shape[0]};
  for (const MatmulLoop& loop : own.loops) made.push_back(loop.size);
  for (const ItemSize& size : own.shape) wanted.push_back(size.size);
  const int64_t elements = checked_elements(wanted);
  if (elements < 0 || checked_elements(made) != elements) {
    view.fail("expected a shape of as many elements as the loops make, got ", shape_text(wanted));
  }
  shape.insert(shape.end(), wanted.begin(), wanted.end());
  return shape;
}

void check_matmul_output(const StepView& view) {
  view.expect_plain_numbers_output();
}

class MatmulRunner final : public Runner {
 public:
  MatmulRunner(const StepView& view, kernels::Isa isa) : info_(view.output()), isa_(isa) {
    const auto& own = view.attributes<MatmulAttributes>();
    shape_ = {.rows = own.rows,
              .inner = own.inner,
              .columns = own.columns,
              .dimensions = {},
              .a = {},
              .b = {},
              .output = format_of(info_)};
    for (const MatmulLoop& loop : own.loops) shape_.dimensions.push_back({loop.size, loop.a, loop.b});
    const bool a = view.constant("a") != nullptr, b = view.constant("b") != nullptr;
    shape_.a = {own.a.offset, own.a.row, own.a.column, a ? 0 : item_elements(view.input())};
    const TensorInfo& right = view.input(view.input_count() - 1);
    shape_.b = {own.b.offset, own.b.row, own.b.column, b ? 0 : item_elements(right)};
    if (a || b) constant_ = floats_of(*constant_side(view));
    if (!a) a_ = {0, view.input().type};
    if (!b) b_ = {static_cast<int>(view.input_count()) - 1, right.type};
  }
  size_t workspace_bytes(int64_t, int workers) const override {
    return kernels::matmul_workspace_bytes(shape_, workers);
  }
  void run(const RunArgs& args) const override {
    const auto data = [&](const Side& side) {
      return side.input < 0 ? static_cast<const void*>(constant_.data())
                            : args.inputs[static_cast<size_t>(side.input)];
    };
    kernels::matmul(shape_, a_.type, data(a_), b_.type, data(b_), args.output, first_size(info_, args.batch),
                    args.workspace, isa_, args.parallel);
  }
  std::string kernel() const override { return std::string("matmul_") + kernels::to_string(isa_); }

 private:
  /// Where a side comes from; -1: the constant.
  struct Side {
    int input = -1;
    DataType type = DataType::f32;
  };
  TensorInfo info_;
  kernels::Isa isa_;
  kernels::MatmulShape shape_;
  std::vector<float> constant_;
  Side a_, b_;
};

StepWork matmul_work(const StepView& view, int64_t batch) {
  return product_work(view, batch, static_cast<double>(view.attributes<MatmulAttributes>().inner));
}

}  // namespace

const OpDef ops::matmul = {.min_inputs = 1,
                           .max_inputs = 2,
                           .roles = {"a", "b"},
                           .infer = infer_matmul,
                           .check_output = check_matmul_output,
                           .work = matmul_work,
                           .prepare = make_runner<MatmulRunner>};

}  // namespace ulp::runtime
