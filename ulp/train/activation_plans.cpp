// The room `memory` for the training loop.
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/train/components.h"

namespace ulp::train {

namespace {

constexpr ActivationPlans kActivationPlans{.checkpoint = memory::checkpoint};
const Component<ActivationPlans>::Provider kActivationPlansProvider(activation_plans, kActivationPlans);

}  // namespace

}  // namespace ulp::train
