// The channels in another order: bytes move, numbers stay.
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/channels.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_channel_shuffle(const StepView& view) {
  const TensorInfo& x = view.input();
  const int64_t channels = x.shape[channel_axis(view, x)];
  const int64_t groups = view.attributes<ShuffleAttributes>().groups;
  if (channels % groups != 0) {
    view.fail("expected groups that divide the ", channels, " channels, got ", groups);
  }
  return x.shape;
}

class ShuffleRunner final : public Runner {
 public:
  ShuffleRunner(const StepView& view, kernels::Isa)
      : rows_(view), groups_(view.attributes<ShuffleAttributes>().groups) {}
  void run(const RunArgs& args) const override {
    kernels::shuffle_channels(rows_.size, args.inputs[0], args.output, rows_.count(args.batch),
                              rows_.channels, groups_, args.parallel);
  }
  std::string kernel() const override { return "shuffle"; }

 private:
  ChannelRows rows_;
  int64_t groups_;
};

}  // namespace

const OpDef ops::channel_shuffle = {.infer = infer_channel_shuffle,
                                    .check_output = check_moved,
                                    .work = copied_work,
                                    .prepare = make_runner<ShuffleRunner>};

}  // namespace ulp::runtime
