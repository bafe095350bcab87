// What fp8 layers do to their tensors in the sampled steps of a watch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ulp/amp/fp8/fp8_sink.h"
#include "ulp/amp/watch/watch_summary.h"

namespace ulp::amp {

/// Counts what saturates and what becomes zero, and keeps the scales; set as the sink while a step is looked at.
class Fp8Watch final : public Fp8Sink {
 public:
  /// Adds to `tensors`, which must outlive it.
  explicit Fp8Watch(std::vector<Fp8TensorStats>& tensors) : tensors_(tensors) {}
  ~Fp8Watch() override { stop(); }
  Fp8Watch(const Fp8Watch&) = delete;
  Fp8Watch& operator=(const Fp8Watch&) = delete;

  void start(int64_t step);
  void stop();
  void quantized(const std::string& layer, Fp8Role role, const at::Tensor& source,
                 const Fp8Tensor& made) override;

 private:
  std::vector<Fp8TensorStats>& tensors_;
  std::map<std::pair<std::string, Fp8Role>, size_t> index_;  ///< in tensors_
  int64_t step_ = 0;
  bool on_ = false;
};

}  // namespace ulp::amp
