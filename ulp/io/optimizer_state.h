// The state of LibTorch's optimizers and of FusedOptimizer as named tensors and JSON; not installed.
#pragma once

#include <functional>
#include <string>

#include "ulp/io/safetensors.h"

namespace torch::optim {
class Optimizer;
}

namespace ulp::io {

/// "SGD", "Adam", "AdamW" or "ulp::amp::FusedOptimizer"; throws Error for any other.
std::string optimizer_kind(const torch::optim::Optimizer& optimizer);

/// Options of each group and step counts as JSON; buffers go to `tensors` as <prefix><parameter>.<buffer>,
/// where the parameters of all groups are counted through.
std::string export_optimizer(const torch::optim::Optimizer& optimizer, const std::string& prefix,
                             NamedTensors& tensors);

/// Checks text and tensors against the optimizer and returns what will apply them. Throws FileError on any
/// difference.
std::function<void()> import_optimizer(torch::optim::Optimizer& optimizer, const std::string& text,
                                       const std::string& prefix, const TensorFile& file,
                                       const std::string& source);

}  // namespace ulp::io
