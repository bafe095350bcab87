// Some of the channels, and all of them in another order: bytes move, numbers stay.
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/channels.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_slice(const StepView& view) {
  std::vector<int64_t> shape = view.input().shape;
  int64_t& channels = shape[channel_axis(view, view.input())];
  const Step& step = view.step();
  if (step.begin < 0 || step.length < 1 || step.begin >= channels || step.length > channels - step.begin) {
    view.fail("expected a range inside the ", channels, " channels, got ", step.length, " from ", step.begin);
  }
  channels = step.length;
  return shape;
}

std::vector<int64_t> infer_shuffle(const StepView& view) {
  const TensorInfo& x = view.input();
  const int64_t channels = x.shape[channel_axis(view, x)];
  if (channels % view.step().groups != 0) {
    view.fail("expected groups that divide the ", channels, " channels, got ", view.step().groups);
  }
  return x.shape;
}

void check_output(const StepView& view) {
  view.expect_activation_type(view.input());
  view.expect_same_numbers(view.input());
  view.expect_same_layout(view.input());
}

/// What both know of their input.
struct Rows {
  explicit Rows(const StepView& view)
      : x(view.input()),
        channels(x.shape[channel_axis(view, x)]),
        size(static_cast<int64_t>(element_size(x.type))) {}
  int64_t count(int64_t batch) const { return element_count(x, batch) / channels; }
  TensorInfo x;
  int64_t channels, size;
};

class SliceRunner final : public Runner {
 public:
  SliceRunner(const StepView& view, kernels::Isa)
      : rows_(view), begin_(view.step().begin), length_(view.step().length) {}
  void run(const RunArgs& args) const override {
    kernels::slice_channels(rows_.size, args.inputs[0], args.output, rows_.count(args.batch), length_,
                            rows_.channels, begin_, args.parallel);
  }
  std::string kernel() const override { return "copy"; }

 private:
  Rows rows_;
  int64_t begin_, length_;
};

class ShuffleRunner final : public Runner {
 public:
  ShuffleRunner(const StepView& view, kernels::Isa) : rows_(view), groups_(view.step().groups) {}
  void run(const RunArgs& args) const override {
    kernels::shuffle_channels(rows_.size, args.inputs[0], args.output, rows_.count(args.batch),
                              rows_.channels, groups_, args.parallel);
  }
  std::string kernel() const override { return "shuffle"; }

 private:
  Rows rows_;
  int64_t groups_;
};

}  // namespace

extern const OpDef kSliceOp, kChannelShuffleOp;
const OpDef kSliceOp = {.op = Op::slice,
                        .name = "slice",
                        .uses = {.range = true},
                        .infer = infer_slice,
                        .check_output = check_output,
                        .prepare = make_runner<SliceRunner>};
const OpDef kChannelShuffleOp = {.op = Op::channel_shuffle,
                                 .name = "channel_shuffle",
                                 .uses = {.groups = true},
                                 .infer = infer_shuffle,
                                 .check_output = check_output,
                                 .prepare = make_runner<ShuffleRunner>};

}  // namespace ulp::runtime
