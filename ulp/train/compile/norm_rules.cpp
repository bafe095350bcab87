// Batch norm, whose running statistics a step moves when nothing can fail any more.
#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// Operands of a batch norm.
struct NormOperands {
  int x = -1, weight = -1, bias = -1, mean = -1, variance = -1;
  int norm = -1;  ///< its statistics
  RowCount parts;
  bool batch = false;  ///< its own statistics are used
};

/// A matrix of doubles: two for each channel.
int make_moments(Builder& builder, RowCount parts, int64_t channels) {
  constexpr int64_t kLanes = 16, kFloats = 4;
  return builder.make(parts, (channels + kLanes - 1) / kLanes * kLanes * kFloats);
}

/// A parameter or buffer of one number a channel; -1 for none.
int channel_row(Builder& builder, const graph::Node& node, std::string_view argument, int64_t channels) {
  const int row = builder.outside(node, argument);
  if (row >= 0 && !(builder.at(row).rows == RowCount{} && builder.at(row).width == channels))
    builder.refuse(node, "expected '", argument, "' of ", channels, " numbers, got others");
  return row;
}

void add_norm_gradients(Builder& builder, const NormOperands& of, kernels::NormFinish finish, int gradient) {
  const int64_t channels = builder.at(of.x).width;
  const bool x_needs = builder.needs_gradient(of.x);
  int sums = -1;
  if (builder.needs_gradient(of.weight) || builder.needs_gradient(of.bias) || (of.batch && x_needs)) {
    const int parts = make_moments(builder, of.parts, channels);
    builder.emit({.op = Op::norm_gradient_sums,
                  .out = parts,
                  .a = gradient,
                  .b = of.x,
                  .c = of.norm,
                  .norm_finish = finish});
    sums = builder.make({0, 1, 2}, channels);
    Instruction join{.op = Op::norm_gradient_join, .out = sums, .a = parts, .b = of.x, .c = of.norm};
    builder.contribute(of.weight, true, [&](int out, bool adds) {
      join.d = out;
      join.adds = adds;
    });
    builder.contribute(of.bias, true, [&](int out, bool adds) {
      join.e = out;
      join.second_adds = adds;
    });
    builder.emit(join);
  }
  builder.contribute(of.x, false, [&](int out, bool) {
    builder.emit({.op = Op::norm_gradient,
                  .out = out,
                  .a = gradient,
                  .b = of.x,
                  .c = of.norm,
                  .d = of.batch ? sums : -1,
                  .norm_finish = finish});
  });
}

/// The statistics that the values are computed by.
void add_statistics(Builder& builder, const graph::Node& node, NormOperands& of) {
  const int64_t channels = builder.at(of.x).width;
  const auto epsilon = static_cast<float>(builder.number(node, "eps"));
  of.norm = builder.make({0, 1, kernels::StepNormRows::kRows}, channels);
  if (!of.batch) {
    builder.emit({.op = Op::norm_given,
                  .out = of.norm,
                  .a = of.mean,
                  .b = of.variance,
                  .c = of.weight,
                  .d = of.bias,
                  .p = {epsilon}});
    return;
  }
  const int moments = make_moments(builder, of.parts, channels);
  builder.emit({.op = Op::norm_moments, .out = moments, .a = of.x});
  builder.emit({.op = Op::norm_join,
                .out = of.norm,
                .a = moments,
                .b = of.weight,
                .c = of.bias,
                .d = of.x,
                .p = {epsilon}});
  if (of.mean < 0) return;
  const auto momentum = static_cast<float>(builder.number(node, "momentum"));
  builder.add_update({.op = Op::norm_update, .a = of.norm, .b = of.mean, .c = of.variance, .p = {momentum}});
}

void add_batch_norm(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "input");
  if (sizes.size() != 4 && sizes.size() != 2)
    builder.refuse(node, "expected [N, C] or [N, C, H, W], got ", sizes.size(), " dimensions");
  NormOperands of;
  of.x = sizes.size() == 4 ? builder.pixels(node, "input") : builder.padded(node, "input");
  const int64_t channels = builder.at(of.x).width;
  of.weight = channel_row(builder, node, "weight", channels);
  of.bias = channel_row(builder, node, "bias", channels);
  of.mean = channel_row(builder, node, "running_mean", channels);
  of.variance = channel_row(builder, node, "running_var", channels);
  of.batch = builder.flag(node, "training");
  if ((of.mean < 0) != (of.variance < 0) || (of.mean < 0 && !of.batch))
    builder.refuse(node, "expected a running mean and a running variance, got one of them or none");
  const ImageSize* image = builder.image_of(of.x);
  of.parts =
      image != nullptr && image->height * image->width > 1 ? builder.rows_of_batch(node, sizes) : RowCount{};
  if (of.batch) builder.add_least_rows(node, builder.at(of.x).rows);
  add_statistics(builder, node, of);
  const int y = builder.make_as(node, *node.output(), of.x);
  builder.emit({.op = Op::norm_apply, .out = y, .a = of.x, .b = of.norm});
  builder.set_needs_gradient(y, builder.needs_gradient(of.x) || builder.needs_gradient(of.weight) ||
                                    builder.needs_gradient(of.bias));
  builder.set(*node.output(), y);
  const std::shared_ptr<kernels::NormFinish> finish = builder.add_norm_end(y);
  builder.on_backward(
      y, [&builder, of, finish](int gradient) { add_norm_gradients(builder, of, *finish, gradient); });
}

/// num_batches_tracked += 1.
void add_count(Builder& builder, const graph::Node& node) {
  builder.add_counter(node, node.arg("self"), builder.constant(node, "other"));
}

}  // namespace

/// Running statistics move at the end of a step, where LibTorch's batch norm moves them at once: refuses a node that would
/// read them in between, or a view of them.
void Builder::check_running_statistics() const {
  std::set<int> statistics, moved;
  for (const Instruction& one : updates_) statistics.insert({one.b, one.c});
  for (const auto& node : graph_.nodes()) {
    if (training_ ? node->eval_only : node->train_only) continue;
    const bool norm = node->target() == "aten::batch_norm";
    const bool moves = norm && flag(*node, "training");
    for (const graph::Value* read : node->reads()) {
      const auto found = matrices_.find(read);
      if (found == matrices_.end() || !statistics.contains(found->second)) continue;
      if (!norm || (!moves && moved.contains(found->second)))
        refuse(*node, "expected nobody to read the running statistics '", read->name,
               "' that batch norm moves in this step, got a reader");
      if (moves) moved.insert(found->second);
    }
  }
}

std::vector<OpRow> norm_rules() {
  return {{"aten::batch_norm", add_batch_norm},
          {"aten::add_.Scalar", add_count},
          {"aten::add_.Tensor", add_count}};
}

}  // namespace ulp::train::compiled
