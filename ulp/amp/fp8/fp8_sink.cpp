#include "ulp/amp/fp8/fp8_sink.h"

#include <ATen/record_function.h>

#include <atomic>
#include <mutex>

namespace ulp::amp {

namespace {

std::atomic<Fp8Sink*> current_sink{nullptr};
std::mutex telling;

}  // namespace

void set_fp8_sink(Fp8Sink* sink) {
  const std::scoped_lock lock(telling);
  current_sink = sink;
}

void tell_fp8_sink(const std::string& layer, Fp8Role role, const at::Tensor& source, const Fp8Tensor& made) {
  if (current_sink.load() == nullptr) return;
  const at::DisableRecordFunctionGuard unseen;  // what the sink computes is none of the model's
  const std::scoped_lock lock(telling);
  if (Fp8Sink* sink = current_sink) sink->quantized(layer, role, source, made);
}

}  // namespace ulp::amp
