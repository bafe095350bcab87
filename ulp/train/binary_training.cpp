// Binary layers for the training loop.
#include "ulp/quant/binary/binary_weights.h"
#include "ulp/train/components.h"

namespace ulp::train {

namespace {

constexpr BinaryTraining kBinaryTraining{.latent_weights = quant::latent_weights};
const Component<BinaryTraining>::Provider kBinaryProvider(binary_training, kBinaryTraining);

}  // namespace

}  // namespace ulp::train
