// Training checkpoints: everything needed to continue bit for bit, in one safetensors file, written
// atomically.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "ulp/base/export.h"
#include "ulp/io/safetensors.h"

namespace torch::optim {
class Optimizer;
}

namespace ulp::io {

/// The parts of a training run. What is null or empty is left out of the file on saving; on loading, the
/// pointers say what to fill in, and a part that is asked for must be in the file.
struct CheckpointParts {
  torch::nn::Module* model = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;  ///< SGD, Adam, AdamW or FusedOptimizer
  std::map<std::string, double> scaler = {};     ///< a GradScaler's state
  std::map<std::string, double> schedule = {};   ///< a LearningRateSchedule's state
  std::string loader = {};                       ///< BatchLoader::state()
  int64_t step = 0;                              ///< >= 0
  int64_t epoch = 0;                             ///< >= 0
  std::string config = {};                       ///< free text, usually JSON: how the run was set up
  bool random_state = true;                      ///< the default CPU generator's state
  NamedTensors extra = {};  ///< anything else, e.g. master weights or an average of the weights
};

/// The facts of a checkpoint that need no model.
struct CheckpointInfo {
  int64_t step = 0;
  int64_t epoch = 0;
  std::string config = {};
  std::string optimizer;  ///< "SGD", "Adam", "AdamW", "ulp::amp::FusedOptimizer", or empty
};

/// Writes the parts. Throws Error for an optimizer of another kind, numbers that load_checkpoint() would refuse,
/// or an I/O failure; a file of that name stays whole.
ULP_API void save_checkpoint(const std::filesystem::path& path, const CheckpointParts& parts);

/// Fills in the parts. Everything is checked before anything is changed: throws FileError for a file that is
/// no checkpoint, is of a newer version, is damaged (numbers out of range, too: a negative epoch, beta1 = 2), or
/// does not fit the model or the optimizer, naming what differs.
ULP_API void load_checkpoint(const std::filesystem::path& path, CheckpointParts& parts);

/// Reads the header alone. Throws FileError as load_checkpoint does.
ULP_API CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace ulp::io
