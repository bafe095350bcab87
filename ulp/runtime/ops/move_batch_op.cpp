// Steps have the batch first; callers may have it elsewhere, as [steps, batch, features].
#include "ulp/runtime/ops/move_batch_op.h"

#include <algorithm>
#include <cstring>

#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_move_batch(const StepView& view) {
  const TensorInfo& x = view.input();
  const std::optional<size_t> from = batch_dimension(x);
  const auto to = static_cast<size_t>(view.attributes<MoveBatchAttributes>().to);
  if (!from || x.layout != Layout::plain) view.fail("expected an input of layout plain with a batch");
  if ((*from == 0) == (to == 0) || to >= x.shape.size()) {
    view.fail("expected to move the batch from another dimension to the first, or back, got dimension ",
              *from, " to ", to, " of ", shape_text(x.shape));
  }
  std::vector<int64_t> shape = x.shape;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(*from));
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(to), kBatch);
  return shape;
}

void check_move_batch_output(const StepView& view) {
  view.expect_copied(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

class MoveBatchRunner final : public Runner {
 public:
  MoveBatchRunner(const StepView& view, kernels::Isa)
      : to_first_(view.attributes<MoveBatchAttributes>().to == 0) {
    const TensorInfo& apart = to_first_ ? view.input() : view.output();
    const size_t batch = *batch_dimension(apart);
    for (size_t d = 0; d < batch; ++d) before_ *= apart.shape[d];
    run_bytes_ = byte_count(apart, 1) / static_cast<size_t>(before_);
  }
  void run(const RunArgs& args) const override {
    const auto* from = static_cast<const std::byte*>(args.inputs[0]);
    auto* to = static_cast<std::byte*>(args.output);
    const auto at = [&](int64_t item, int64_t before, bool first) {
      return static_cast<size_t>(first ? item * before_ + before : before * args.batch + item) * run_bytes_;
    };
    args.parallel.run((args.batch + kItems - 1) / kItems, [&](int64_t block, int) {
      const int64_t begin = block * kItems, end = std::min(args.batch, begin + kItems);
      for (int64_t i = 0; i < before_; ++i) {
        for (int64_t item = begin; item < end; ++item)
          copy(to + at(item, i, to_first_), from + at(item, i, !to_first_));
      }
    });
  }
  std::string kernel() const override { return "copy"; }

 private:
  static constexpr int64_t kItems = 16;  ///< at a time: a line of the cache where each has one number

  void copy(std::byte* to, const std::byte* from) const {
    if (run_bytes_ == sizeof(float)) {
      std::memcpy(to, from, sizeof(float));  // one instruction
    } else {
      std::memcpy(to, from, run_bytes_);
    }
  }

  bool to_first_;
  int64_t before_ = 1;    ///< elements of the dimensions before the batch, where it is not the first
  size_t run_bytes_ = 0;  ///< of what stands behind the batch
};

}  // namespace

const OpDef ops::move_batch = {.infer = infer_move_batch,
                               .check_output = check_move_batch_output,
                               .work = copied_work,
                               .prepare = make_runner<MoveBatchRunner>};

}  // namespace ulp::runtime
