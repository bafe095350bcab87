#include "ulp/train/components.h"

#include "ulp/train/model_part.h"

namespace ulp::train {

constinit Component<SeveralProcesses> several_processes("distributed");
constinit Component<Fp8Training> fp8_training("fp8");
constinit Component<Int8Training> int8_training("int8");
constinit Component<BinaryTraining> binary_training("binary");
constinit Component<CompiledTraining> compiled_training("compiled training");
constinit Component<ActivationPlans> activation_plans("memory");

ShardedModel::~ShardedModel() = default;

}  // namespace ulp::train
