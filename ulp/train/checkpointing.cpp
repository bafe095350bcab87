#include "ulp/train/checkpointing.h"

#include "ulp/base/interrupt.h"

namespace ulp::train {

void resume_from(Trainer& trainer, const Checkpointing& saving) {
  if (const auto file = saving.resumed(); !file.empty()) trainer.resume(file);
}

void run_to_end(Trainer& trainer, const Checkpointing& saving,
                const std::function<void(const StepInfo& info)>& on_step) {
  const int64_t every = saving.every > 0 ? saving.every : trainer.steps_per_epoch();
  const PollsInterrupts polls;
  while (!trainer.done()) {
    const StepInfo info = trainer.step();
    on_step(info);
    const bool stop = info.stop;
    if (!saving.path.empty() && (stop || trainer.done() || trainer.next_step() % every == 0)) {
      if (saving.before) saving.before();
      trainer.save(saving.path, saving.in_shares);
    }
    if (stop) throw Interrupted();
  }
}

}  // namespace ulp::train
