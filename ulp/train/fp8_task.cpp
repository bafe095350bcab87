#include "ulp/train/fp8_task.h"

#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/components.h"

namespace ulp::train {

namespace {

Task named_fp8_task(Task task, std::string_view precision) {
  return fp8_task(std::move(task), amp::Fp8Recipe::named(precision));
}

constexpr Fp8Training kFp8Training{.task = named_fp8_task, .update = amp::update_fp8};
const Component<Fp8Training>::Provider kFp8Provider(fp8_training, kFp8Training);

}  // namespace

Task fp8_task(Task task, const amp::Fp8Recipe& recipe, graph::PassReport* report) {
  if (amp::has_fp8_layers(*task.model)) return task;
  return captured_task(std::move(task), "train.fp8_task",
                       [&](const auto& captured) { return amp::to_fp8(captured, recipe, report); });
}

}  // namespace ulp::train
