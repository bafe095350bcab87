// Distillation with its measurements: teachers, a student alone and taught, and what it learned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/app/distill/distill_recipe.h"
#include "ulp/app/distill/distill_report.h"
#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/quantize/quantize_run.h"
#include "ulp/base/export.h"
#include "ulp/train/checkpointing.h"
#include "ulp/train/task.h"

namespace ulp::app {

/// A network that is trained: a reference network from nothing, or one of a file.
struct StudentSource {
  std::string name;
  std::function<Network()> make;  ///< with the same weights at each call
};

/// Who teaches whom.
enum class DistillScheme {
  offline,  ///< teachers that are trained already; `assistants` between them and the student
  mutual,   ///< deep mutual learning: the student and `peers` more
  self      ///< the network's own last layer teaches classifiers behind inner ones
};

/// Options of `ulp distill`.
struct DistillRequest {
  DistillScheme scheme = DistillScheme::offline;
  std::vector<InferenceModel> teachers;       ///< several are an ensemble of averaged probabilities
  std::vector<double> teacher_weights = {};   ///< of an ensemble; empty: equal
  amp::PrecisionName teacher_precision = {};  ///< of teachers that are no engines
  /// Keeps the teacher's values by sample; needs data without augmentation. `teacher_marks`: what tells these
  /// teachers from others of the same names (checksum_of()); a cache of others, or of other data, is refused.
  std::filesystem::path teacher_cache = {};
  std::string teacher_marks = {};
  StudentSource student;
  ModelSpec spec;                              ///< the student's
  std::vector<StudentSource> assistants = {};  ///< each learns from the one before (Mirzadeh et al. 2020)
  int64_t generations = 1;                     ///< born again: so many students, each the next one's teacher
  std::vector<StudentSource> peers = {};       ///< of mutual
  double peer_weight = 1;                      ///< of what peers say against labels
  std::vector<std::string> exits = {};         ///< of self: places of the classifiers
  std::string exit_features = {};              ///< of self: the place whose features they learn, too
  std::string init_layers = {};  ///< start from layers of the teacher with this name (distill::init_from)
  bool init = false;             ///< start from the teacher's tensors of the same names
  DistillRecipe recipe;
  std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions& options)> train_batches;
  std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions& options)> unlabelled_batches =
      {};
  std::function<std::unique_ptr<train::BatchStream>()> test_batches =
      {};  ///< empty: accuracies are not measured
  const char* unit = "image";
  double labelled = 1;  ///< share of the training data whose labels are used
  std::optional<double> hard_labels =
      {};  ///< what has no label takes the teacher's class where it is this sure
  int64_t top =
      0;  ///< keep the teacher's so many largest logits of each sample and learn from these; 0: ask it
  double input_noise = 0;  ///< standard deviation of noise on the student's inputs
  bool alone = true;       ///< train the student by labels alone, too, to compare
  bool latency = true;
  int threads = 0;  ///< of the engines
  train::Checkpointing saving = {};
  std::function<void(const Stage& stage)> progress = {};
};

/// The result of `ulp distill`.
struct DistillRun {
  DistillOutcome outcome;
  Network student;  ///< in eval mode
};

/// Throws ulp::Error where the parts do, naming the loss or the place, and Interrupted on Ctrl-C, after which
/// the checkpoint continues the training that was going on.
ULP_API DistillRun run_distill(const DistillRequest& request);

}  // namespace ulp::app
