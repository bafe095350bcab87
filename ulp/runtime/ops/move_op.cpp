// A strided copy of each item.
#include "ulp/runtime/ops/move_op.h"

#include "ulp/kernels/move/move.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

template <typename Sizes>
int64_t elements_of(const StepView& view, const char* what, const Sizes& sizes) {
  std::vector<int64_t> list;
  for (const auto& one : sizes) list.push_back(one.size);
  const int64_t elements = checked_elements(list);
  if (elements < 0) view.fail("expected ", what, " of at most ", kMaxElements, " elements in all");
  return elements;
}

/// Every element that is read lies inside the input's item.
void check_addresses(const StepView& view, const MoveAttributes& attributes, int64_t item) {
  constexpr size_t kMostDimensions = 16;
  if (attributes.strides.size() > kMostDimensions) {
    view.fail("expected at most ", kMostDimensions, " strides, got ", attributes.strides.size());
  }
  // 16 products of numbers up to 2^31 do not overflow where the sizes' own product is bounded.
  __int128 lowest = attributes.offset, highest = attributes.offset;
  for (const MoveStride& d : attributes.strides) {
    (d.stride < 0 ? lowest : highest) += static_cast<__int128>(d.size - 1) * d.stride;
  }
  if (lowest < 0 || highest >= item) {
    view.fail("expected strides that stay inside the ", item, " elements of an item");
  }
}

std::vector<int64_t> infer_move(const StepView& view) {
  const TensorInfo& x = view.input();
  const auto& attributes = view.attributes<MoveAttributes>();
  const int64_t moved = elements_of(view, "strides", attributes.strides);
  const int64_t made = elements_of(view, "a shape", attributes.shape);
  if (moved != made) view.fail("expected strides for ", made, " elements, got them for ", moved);
  check_addresses(view, attributes, item_elements(x));
  std::vector<int64_t> shape = {x.shape[0]};
  for (const ItemSize& size : attributes.shape) shape.push_back(size.size);
  return shape;
}

void check_move_output(const StepView& view) {
  view.expect_copied(view.input());
  view.expect_same_numbers(view.input());
}

std::vector<kernels::MoveDimension> move_dimensions(const MoveAttributes& attributes) {
  std::vector<kernels::MoveDimension> dimensions;
  for (const MoveStride& d : attributes.strides) dimensions.push_back({d.size, d.stride});
  return dimensions;
}

Sharing move_sharing(const StepView& view) {
  const auto& attributes = view.attributes<MoveAttributes>();
  const int64_t item = item_elements(view.input());
  const std::vector<kernels::MoveDimension> all = kernels::joined(move_dimensions(attributes));
  const bool whole = all.empty() ? item == 1 : all.size() == 1 && all[0].stride == 1 && all[0].size == item;
  return whole ? Sharing::alias : Sharing::none;
}

class MoveRunner final : public Runner {
 public:
  MoveRunner(const StepView& view, kernels::Isa)
      : info_(view.output()),
        move_(element_bytes(info_.type), move_dimensions(view.attributes<MoveAttributes>()),
              view.attributes<MoveAttributes>().offset, item_elements(view.input())) {}
  void run(const RunArgs& args) const override {
    move_.run(args.inputs[0], args.output, first_size(info_, args.batch), args.parallel);
  }
  std::string kernel() const override { return move_.kernel(); }

 private:
  TensorInfo info_;
  kernels::Move move_;
};

}  // namespace

const OpDef ops::move = {.infer = infer_move,
                         .check_output = check_move_output,
                         .sharing = move_sharing,
                         .work = copied_work,
                         .prepare = make_runner<MoveRunner>};

}  // namespace ulp::runtime
