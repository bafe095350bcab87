// Stores a teacher's labels of unlabelled data: the largest logits of each sample, or its class where it is
// sure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/distill/teacher.h"

namespace ulp::distill {

/// The `k` most likely classes of each sample with the logarithms of their probabilities, and what is left over for the others.
struct SoftLabels {
  int64_t classes = 0;
  at::Tensor ids;              ///< int32 (samples, k)
  at::Tensor log_probability;  ///< float (samples, k)

  int64_t samples() const { return ids.defined() ? ids.size(0) : 0; }
  /// (rows, classes) logarithms of probabilities: those that are kept, and the rest of the probability in equal parts.
  ULP_API at::Tensor logits(const at::Tensor& samples) const;
  /// The classes whose probability is at least `threshold`, kUnlabelled (learner.h) elsewhere; int64 (samples).
  ULP_API at::Tensor hard(double threshold) const;

  /// A safetensors file, atomically.
  ULP_API void save(const std::filesystem::path& path) const;
  /// Throws FileError for a damaged file or one of other tensors.
  ULP_API static SoftLabels load(const std::filesystem::path& path);
};

/// Collects SoftLabels batch by batch.
class ULP_API SoftLabeller {
 public:
  /// Throws ulp::Error for samples or k below 1.
  SoftLabeller(int64_t samples, int64_t k = 20);
  /// Logits (N, classes) of the samples with these numbers. Throws ulp::Error for numbers outside and other classes.
  void add(const at::Tensor& logits, const at::Tensor& samples);
  /// Throws ulp::Error naming the first sample that nobody has labelled.
  SoftLabels finish() const;

 private:
  int64_t k_;
  at::Tensor known_;
  SoftLabels labels_;
};

/// A teacher that says what was kept. Throws ulp::Error for batches without numbers of samples, or with others.
ULP_API std::shared_ptr<Teacher> stored_teacher(SoftLabels labels);

}  // namespace ulp::distill
