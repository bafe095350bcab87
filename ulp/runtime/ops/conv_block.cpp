#include "ulp/runtime/ops/conv_block.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>
#include <utility>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/runtime/ops/autotuner.h"
#include "ulp/runtime/ops/conv_op.h"
#include "ulp/runtime/ops/conv_runner.h"

namespace ulp::runtime {
namespace {

using kernels::BlockLayer;
using kernels::Conv;

// Times are those of one image. With several ones a block saves more, and it saves memory: it has to be slower than this
// not to be taken.
constexpr double kSlower = 0.95;
constexpr int64_t kImages = 4;  // that usually pass through the layers together
constexpr int kTurns = 3;

/// An image convolution of free batch.
const ConvAttributes* image_conv(const Plan& plan, const Step& step) {
  if (step.op != Op::conv) return nullptr;
  const TensorInfo& x = plan.tensors[static_cast<size_t>(step.inputs[0])];
  return x.shape.size() == 4 && x.shape[0] == kBatch ? &step.get<ConvAttributes>() : nullptr;
}

bool is_plain_1x1(const Plan& plan, const Step& step) {
  const ConvAttributes* conv = image_conv(plan, step);
  if (conv == nullptr || conv->groups != 1) return false;
  const Window& w = conv->window;
  return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.pad_h == 0 &&
         w.pad_w == 0;
}

enum class Middle : uint8_t { depthwise, dense };

/// Whether the step may be in the middle of a block: depthwise, or without groups and more than a product for each pixel.
bool is_middle(const Plan& plan, const Step& step, Middle kind) {
  const ConvAttributes* conv = image_conv(plan, step);
  if (conv == nullptr || step.inputs.size() > 1) return false;
  if (kind == Middle::dense)
    return conv->groups == 1 && (conv->window.kernel_h > 1 || conv->window.kernel_w > 1);
  const int64_t in = plan.tensors[static_cast<size_t>(step.inputs[0])].shape[1];
  return conv->groups > 1 && conv->groups == in &&
         conv->groups == plan.tensors[static_cast<size_t>(step.output)].shape[1];
}

/// How many steps read each tensor; what the caller sees counts as read.
std::vector<int> readers_of(const Plan& plan) {
  std::vector<int> readers(plan.tensors.size(), 0);
  for (const Step& step : plan.steps) {
    for (const int32_t t : step.inputs) ++readers[static_cast<size_t>(t)];
  }
  for (const int32_t t : plan.outputs) ++readers[static_cast<size_t>(t)];
  return readers;
}

/// Bytes between the layers, of one image.
int64_t bytes_between(std::span<const BlockLayer> layers) {
  int64_t most = 0;
  for (const BlockLayer& layer : layers.subspan(1)) {
    const kernels::ConvShape& s = layer.config.shape;
    most = std::max(most, s.in_h * s.in_w * s.in_channels * element_bytes(layer.config.input));
  }
  return most;
}

/// What Autotuner looks at: input of the first layer, residual and output of the last one.
kernels::ConvConfig buffers_of(std::span<const BlockLayer> layers) {
  const kernels::ConvConfig &first = layers.front().config, &last = layers.back().config;
  kernels::ConvConfig buffers = last;
  buffers.input = first.input;
  buffers.shape.in_h = first.shape.in_h;
  buffers.shape.in_w = first.shape.in_w;
  buffers.shape.in_channels = first.shape.in_channels;
  // The window that takes this input to that output.
  buffers.shape.kernel_h = first.shape.in_h - last.shape.out_h() + 1;
  buffers.shape.kernel_w = first.shape.in_w - last.shape.out_w() + 1;
  return buffers;
}

/// All that the times depend on.
std::string key_of(std::span<const BlockLayer> layers, const Conv& block) {
  std::ostringstream key;
  key << measuring_machine() << ": " << block.name();
  for (const BlockLayer& layer : layers) {
    const kernels::ConvShape& s = layer.config.shape;
    key << ", " << s.in_h << 'x' << s.in_w << 'x' << s.in_channels << " -> " << s.out_h() << 'x' << s.out_w()
        << 'x' << s.out_channels << ' ' << to_string(layer.config.output) << ' '
        << enum_name(layer.config.activation);
  }
  if (layers.back().config.residual) key << ", residual " << to_string(layers.back().config.residual_type);
  return std::move(key).str();
}

/// Times both ways for one image; without a kernel where there is no memory or no time to find out.
FormFinding time_both(TimingCache& table, std::span<const BlockLayer> layers, const Conv& block,
                      kernels::Isa isa) {
  if (!table.has_time()) return {};
  try {
    const std::unique_ptr<Conv> apart = kernels::make_layers_apart(layers, isa);
    const Conv* both[] = {apart.get(), &block};
    Autotuner timer(buffers_of(layers), false);
    if (timer.bytes(both, 1) > table.most_bytes()) return {};
    const std::vector<double> seconds = timer.seconds(both, 1, kTurns);
    table.spend(timer.spent());
    return {1, block.name(), std::clamp(seconds[0] / seconds[1], 1 / kLargestRatio, kLargestRatio)};
  } catch (const std::bad_alloc&) {
    return {};  // the layers themselves may find the memory that both ways together do not
  }
}

FormFinding look_up(TimingCache& table, std::span<const BlockLayer> layers, const Conv& block,
                    kernels::Isa isa) {
  const std::string key = key_of(layers, block);
  const auto* known = table.find(key);
  if (known != nullptr && known->size() == 1 && known->front().kernel == block.name()) return known->front();
  const FormFinding found = time_both(table, layers, block, isa);
  if (!found.kernel.empty()) table.put(key, {found});
  return found;
}

class BlockRunner final : public Runner {
 public:
  BlockRunner(std::unique_ptr<const Conv> block, std::string note)
      : block_(std::move(block)), note_(std::move(note)) {}

  size_t workspace_bytes(int64_t batch, int workers) const override {
    return block_->workspace_bytes(batch, workers);
  }
  void run(const RunArgs& args) const override {
    block_->run(args.batch, args.inputs[0], args.inputs.size() == 2 ? args.inputs[1] : nullptr, args.output,
                args.workspace, args.parallel);
  }
  std::string kernel() const override { return block_->name(); }
  std::string note() const override { return note_; }

 private:
  std::unique_ptr<const Conv> block_;
  std::string note_;
};

/// "3 layers by rows", with what was measured, if it was: "3 layers by rows: 1.46x faster for one image"
std::string note_of(size_t layers, double faster) {
  char text[64] = "";
  if (faster > 0)
    std::snprintf(text, sizeof(text), ": %.2fx %s for one image", std::max(faster, 1 / faster),
                  faster >= 1 ? "faster" : "slower");
  return std::to_string(layers) + " layers by rows" + text;
}

}  // namespace

std::vector<StepRange> find_conv_blocks(const Plan& plan) {
  const std::vector<int> readers = readers_of(plan);
  // Whether the step reads what the one before it writes, and is the only one that does.
  const auto follows = [&](size_t s) {
    const int32_t before = plan.steps[s - 1].output;
    return plan.steps[s].inputs[0] == before && readers[static_cast<size_t>(before)] == 1;
  };
  std::vector<StepRange> found;
  std::vector<bool> taken(plan.steps.size(), false);
  // Depthwise ones first, which gain more.
  for (const Middle kind : {Middle::depthwise, Middle::dense}) {
    for (size_t s = 0; s + 1 < plan.steps.size(); ++s) {
      if (taken[s] || taken[s + 1] || !is_middle(plan, plan.steps[s], kind) ||
          !is_plain_1x1(plan, plan.steps[s + 1]) || !follows(s + 1)) {
        continue;
      }
      const bool with_first = s > 0 && !taken[s - 1] && is_plain_1x1(plan, plan.steps[s - 1]) &&
                              plan.steps[s - 1].inputs.size() == 1 && follows(s);
      found.push_back({with_first ? s - 1 : s, s + 1});
      for (size_t i = found.back().first; i <= found.back().last; ++i) taken[i] = true;
    }
  }
  std::ranges::sort(found, {}, &StepRange::first);
  return found;
}

std::unique_ptr<Runner> prepare_conv_block(std::span<const StepView> views, kernels::Isa isa) {
  const PackRules rules = rules_of(views[0]);
  if (rules.blocks == DepthFirst::never || rules.sizes_vary) return nullptr;
  const bool always = rules.blocks == DepthFirst::always;
  // A dense layer computes much for each number: a block saves 4 % of the time of one thread, and with two threads on one
  // image it costs as much.
  if (!always && views[views.size() - 2].attributes<ConvAttributes>().groups == 1) return nullptr;
  std::vector<BlockLayer> layers;
  for (const StepView& view : views) layers.push_back(conv_layer(view));
  const auto has_zeros = [&](const BlockLayer& layer) {
    return may_leave_zeros_out(layer.config, layer.weights, rules);
  };
  if (std::ranges::any_of(layers, has_zeros)) return nullptr;  // left out one by one
  const int64_t between = bytes_between(layers), cache = kernels::second_level_cache();
  if (!always && 2 * kImages * between < cache) return nullptr;  // it stays in the cache anyway
  std::unique_ptr<const Conv> block = kernels::make_conv_block(layers, isa);
  if (block == nullptr) return nullptr;
  double faster = 0;
  if (!always && between < 2 * cache) {
    faster = look_up(*rules.measured, layers, *block, isa).faster;
    if (faster < kSlower) return nullptr;
  }
  return std::make_unique<BlockRunner>(std::move(block), note_of(layers.size(), faster));
}

}  // namespace ulp::runtime
