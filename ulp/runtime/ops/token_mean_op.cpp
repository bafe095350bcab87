// The mean over the steps of a sequence, without those that hold the padding token.
#include <algorithm>

#include "ulp/runtime/engine/arena.h"
#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_token_mean(const StepView& view) {
  view.expect_plain_floats(0, 3);
  const std::vector<int64_t>& x = view.input().shape;
  if (x.size() != 3) view.fail("expected an input [N, steps, features], got ", shape_text(x));
  if (view.input_count() == 2) {
    view.expect_ids(1);
    const std::vector<int64_t> expected = {x[0], x[1]};
    if (view.input(1).shape != expected) {
      view.fail("expected ids ", shape_text(expected), ", got ", shape_text(view.input(1).shape));
    }
  } else if (view.attributes<TokenAttributes>().token != 0) {
    view.fail("a token is for ids, got none");
  }
  return {x[0], x[2]};
}

void check_token_mean_output(const StepView& view) {
  view.expect_plain_numbers_output();
}

class TokenMeanRunner final : public Runner {
 public:
  TokenMeanRunner(const StepView& view, kernels::Isa isa)
      : x_(view.input()),
        ids_(view.input_count() == 2 ? view.input(1).type : DataType::i64),
        token_(view.attributes<TokenAttributes>().token),
        input_("runtime.token_mean", format_of(x_), isa),
        output_("runtime.token_mean", format_of(view.output()), isa) {}
  size_t workspace_bytes(int64_t, int workers) const override {
    return static_cast<size_t>(workers) * 2 * row_bytes();
  }
  void run(const RunArgs& args) const override {
    args.parallel.run(first_size(x_, args.batch), [&](int64_t item, int worker) {
      const int64_t steps = x_.shape[1], width = x_.shape[2];
      std::byte* scratch =
          static_cast<std::byte*>(args.workspace) + static_cast<size_t>(worker) * 2 * row_bytes();
      float* row = reinterpret_cast<float*>(scratch);
      float* sums = reinterpret_cast<float*>(scratch + row_bytes());
      std::fill_n(sums, width, 0.0F);
      int64_t count = 0;
      for (int64_t t = 0; t < steps; ++t) {
        if (args.inputs.size() == 2 && id_at(ids_, args.inputs[1], item * steps + t) == token_) continue;
        const float* x = input_.read(args.inputs[0], (item * steps + t) * width, width, row);
        for (int64_t i = 0; i < width; ++i) sums[i] += x[i];
        ++count;
      }
      float* y = output_.target(args.output, item * width, sums);
      for (int64_t i = 0; i < width; ++i) y[i] = sums[i] / static_cast<float>(std::max<int64_t>(1, count));
      output_.write(y, args.output, item * width, width);
    });
  }
  std::string kernel() const override { return "token_mean"; }

 private:
  TensorInfo x_;
  DataType ids_;
  int64_t token_;
  kernels::TypedRows input_, output_;

  size_t row_bytes() const { return align_up(static_cast<size_t>(x_.shape[2]) * sizeof(float)); }
};

StepWork token_mean_work(const StepView& view, int64_t batch) {
  return reduced_work(view, batch, 1);
}

}  // namespace

const OpDef ops::token_mean = {.max_inputs = 2,
                               .infer = infer_token_mean,
                               .check_output = check_token_mean_output,
                               .work = token_mean_work,
                               .prepare = make_runner<TokenMeanRunner>};

}  // namespace ulp::runtime
