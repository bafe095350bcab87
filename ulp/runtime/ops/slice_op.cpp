// Some of the channels: bytes move, numbers stay.
#include "ulp/kernels/image/layout.h"
#include "ulp/runtime/ops/channels.h"
#include "ulp/runtime/ops/op.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_slice(const StepView& view) {
  std::vector<int64_t> shape = view.input().shape;
  int64_t& channels = shape[channel_axis(view, view.input())];
  const auto& [begin, length] = view.attributes<SliceAttributes>();
  if (begin >= channels || length > channels - begin) {
    view.fail("expected a range inside the ", channels, " channels, got ", length, " from ", begin);
  }
  channels = length;
  return shape;
}

class SliceRunner final : public Runner {
 public:
  SliceRunner(const StepView& view, kernels::Isa) : rows_(view), range_(view.attributes<SliceAttributes>()) {}
  void run(const RunArgs& args) const override {
    kernels::slice_channels(rows_.size, args.inputs[0], args.output, rows_.count(args.batch), range_.length,
                            rows_.channels, range_.begin, args.parallel);
  }
  std::string kernel() const override { return "copy"; }

 private:
  ChannelRows rows_;
  SliceAttributes range_;
};

}  // namespace

const OpDef ops::slice = {.infer = infer_slice,
                          .check_output = check_moved,
                          .work = copied_work,
                          .prepare = make_runner<SliceRunner>};

}  // namespace ulp::runtime
