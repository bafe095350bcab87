// Networks for which `ulp memory` and `ulp roofline` make data: by name or from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/app/model_io/model_file.h"
#include "ulp/app/train/training_probe.h"
#include "ulp/base/export.h"

namespace ulp::app {

/// The sizes that a network's name does not say.
struct ModelShape {
  std::vector<int64_t> image = {3, 32, 32};  ///< channels, height, width
  bool given = false;                        ///< somebody asked for it: a file of other sizes is refused
  int64_t classes = 10;
  int64_t length = 128;  ///< texts: the longest; the published sizes have their own
};

/// A network, and how to train it on data of the right shape.
struct Workload {
  std::string name = {};
  NetworkKind kind = NetworkKind::image;
  std::function<Network()> make = {};
  std::function<train::TaskBatch(memory::RunSize size)> draw = {};  ///< a random batch
  int64_t max_length = 0;                                           ///< of texts; 0 for images
  std::string foreign_file = {};  ///< of another writer, who may have written anything; else empty

  /// Throws FileError, which names the file of another writer, unless what make() gave can be trained: it has
  /// one input, and the logits of classes as its result.
  ULP_API void expect_trains(const torch::nn::Module& module) const;
  /// The network with an endless stream of drawn batches.
  ULP_API train::Task task(memory::RunSize size) const;
};

/// Tokens in a text where nobody says how many: 128, or what the network takes at most; 0 for images.
ULP_API int64_t usual_length(const Workload& model);

/// The names that find_workload() knows, sorted.
ULP_API std::vector<std::string> workload_names();

/// A reference network at the sizes of `shape`, one of the published sizes (bert-base, ...), or a model file
/// of `ulp train` or TorchScript. Throws ulp::Error for sizes that the network cannot have, FileError as
/// load_model_file() does.
ULP_API Workload find_workload(const std::string& name_or_file, const ModelShape& shape);

}  // namespace ulp::app
