#include "ulp/memory/checkpoint/executor.h"

#include <ATen/core/grad_mode.h>

#include "ulp/memory/checkpoint/record.h"

namespace ulp::memory {
namespace {

using graph::Program;

/// Steps in order; segments open and close on the way.
void run_steps(const std::shared_ptr<const Layout>& layout, Program::Frame& frame) {
  const Program& program = *layout->program;
  const auto run = std::make_shared<Run>(layout, frame);
  std::vector<std::shared_ptr<Record>> open;
  size_t next = 0;
  const auto close = [&](size_t step) {
    while (!open.empty() && open.back()->end() == step) {
      open.back()->leave();
      open.pop_back();
      if (open.size() <= 1) run->settle(step - 1);
    }
  };
  for (size_t step = 0; step < program.step_count(); ++step) {
    close(step);
    for (; next < layout->regions.size() && layout->regions[next].begin == step; ++next) {
      open.push_back(std::make_shared<Record>(run, next, open.empty() ? nullptr : open.back()));
      open.back()->enter(frame);
    }
    if (program.is_left_out(step, frame)) continue;
    if (!open.empty()) {
      open.back()->run_step(step, frame);
      if (open.size() == 1) run->settle(step);
      continue;
    }
    program.load_arguments(step, frame);
    program.call(step, frame);
    program.store(step, frame);
  }
  close(program.step_count());
}

}  // namespace

CheckpointExecutor::CheckpointExecutor(CheckpointPlan plan) : plan_(std::move(plan)) {
  if (plan_.saved.active() || !plan_.formats.empty())
    packer_ = std::make_shared<Packer>(plan_.saved, plan_.draws);
}

CheckpointExecutor::~CheckpointExecutor() = default;

void CheckpointExecutor::prepare(std::shared_ptr<const graph::Graph> graph,
                                 std::shared_ptr<const Program> program) {
  auto layout = std::make_shared<Layout>(std::move(graph), std::move(program), plan_, packer_);
  if (layout_) layout_->stale = true;
  layout_ = std::move(layout);
}

c10::IValue CheckpointExecutor::run(const std::vector<at::Tensor>& inputs, bool training) {
  if (!at::GradMode::is_enabled()) return layout_->program->run(inputs, training);
  const std::shared_ptr<const Layout> layout = layout_;
  return layout->program->run(inputs, training, [&](Program::Frame& frame) { run_steps(layout, frame); });
}

}  // namespace ulp::memory
