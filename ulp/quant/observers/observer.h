// Observers watch a tensor during calibration and then choose its quantization parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ulp/base/export.h"
#include "ulp/libtorch/tensor_module.h"
#include "ulp/quant/observers/observer_registry.h"
#include "ulp/quant/recipe.h"
#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

/// Bounds of the values to represent: f32, one element, one per channel, or of the granularity's
/// scale_shape().
struct Bounds {
  at::Tensor min, max;
};

/// Returns its input unchanged and records it. Memory does not grow with the number of batches, results do
/// not depend on the number of threads, and infinite or NaN values are left out and counted. Built-in kinds
/// have a static entry(), their line in the table of observer_registry.h.
class ULP_API Observer : public libtorch::TensorModule {
 public:
  /// `label` names the observed tensor in messages.
  Observer(std::string label, Scheme scheme);

  /// Throws ulp::Error with the label for a shape that has no such channels (groups, blocks).
  at::Tensor forward(const at::Tensor& x) final;
  /// Scale and zero point for what was seen; (1, 0) and a warning with the label and why if that was nothing.
  QParams qparams() const;
  /// The bounds that qparams() represents. Throws ulp::Error when nothing was seen.
  Bounds bounds() const;
  /// Adds what another observer of the same kind and scheme has seen. Throws ulp::Error for another kind.
  void merge(const Observer& other);

  bool seen() const;  ///< a finite value, at least one
  /// Words for messages where nothing was seen(): "none", or "only 3 NaN and 2 infinite values".
  std::string why_unseen() const;
  int64_t nan_count() const;
  int64_t inf_count() const;
  const std::string& label() const { return label_; }
  const Scheme& scheme() const { return scheme_; }
  /// A disabled observer passes its input on and records nothing.
  void set_enabled(bool enabled) { enabled_ = enabled; }

 protected:
  /// `values`: f32, not empty, without history. Unless `all_finite`, some are NaN or infinite.
  virtual void record(const at::Tensor& values, bool all_finite) = 0;
  virtual Bounds compute_bounds() const = 0;
  virtual void merge_seen(const Observer& other) = 0;
  void count_dropped(int64_t nans, int64_t infinities);

  /// Buffers: [] per tensor, else of scale_shape(); +inf and -inf at first. seen() compares them, so record()
  /// and merge_seen() must set them; those of MinMaxObserver do.
  at::Tensor min_val_, max_val_;

 private:
  std::string label_;
  Scheme scheme_;
  at::Tensor dropped_;  // i64 [2]: NaN, infinite
  bool enabled_ = true;
};

/// Smallest and largest value seen in each part of the granularity. Merging is exact.
class ULP_API MinMaxObserver : public Observer {
 public:
  using Observer::Observer;
  static ObserverEntry entry();

 protected:
  void record(const at::Tensor& values, bool all_finite) override;
  Bounds compute_bounds() const override;
  void merge_seen(const Observer& other) override;
  /// min and max of one batch, shaped as the buffers; +inf and -inf where a channel has no finite value.
  Bounds batch_bounds(const at::Tensor& values, bool all_finite) const;
};

/// Averages of each batch's smallest and largest value: the first batch's, then m += c (batch - m). Depends
/// on the order of the batches, so it cannot be merged.
class ULP_API MovingAverageObserver final : public MinMaxObserver {
 public:
  MovingAverageObserver(std::string label, Scheme scheme, double averaging_constant = 0.01);
  static ObserverEntry entry();

 protected:
  void record(const at::Tensor& values, bool all_finite) override;
  void merge_seen(const Observer& other) override;

 private:
  double averaging_constant_;
};

/// Bounds that are known beforehand (a softmax ends at 1): needs no data, and counts NaN and infinite values
/// only. Per tensor. Throws ulp::Error unless min < max, both finite.
class ULP_API FixedObserver final : public Observer {
 public:
  FixedObserver(std::string label, Scheme scheme, double min, double max);
  static ObserverEntry entry();

 protected:
  void record(const at::Tensor&, bool) override {}
  Bounds compute_bounds() const override { return {min_val_.clone(), max_val_.clone()}; }
  void merge_seen(const Observer& other) override;
};

}  // namespace ulp::quant
