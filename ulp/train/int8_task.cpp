#include "ulp/train/int8_task.h"

#include "ulp/amp/int8/to_int8.h"
#include "ulp/train/captured_task.h"
#include "ulp/train/components.h"

namespace ulp::train {

namespace {

Task named_int8_task(Task task, std::string_view precision) {
  return int8_task(std::move(task), amp::Int8Recipe::named(precision));
}

constexpr Int8Training kInt8Training{.task = named_int8_task};
const Component<Int8Training>::Provider kInt8Provider(int8_training, kInt8Training);

}  // namespace

Task int8_task(Task task, const amp::Int8Recipe& recipe, graph::PassReport* report) {
  if (amp::has_int8_layers(*task.model)) return task;
  return captured_task(std::move(task), "train.int8_task",
                       [&](const auto& captured) { return amp::to_int8(captured, recipe, report); });
}

}  // namespace ulp::train
