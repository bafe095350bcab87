// CUDA graphs, in builds against a LibTorch that has them. Elsewhere tests/cuda/stand_in gives this file the
// declarations it needs, so that it is compiled in every build.
#include "ulp/amp/optimizer/graphed_step.h"
#include "ulp/base/error.h"

#if defined(ULP_TORCH_HAS_CUDA) && __has_include(<cuda_runtime_api.h>)
#define ULP_HAS_CUDA_GRAPHS
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#endif

namespace ulp::amp {

#ifdef ULP_HAS_CUDA_GRAPHS

namespace {

class CudaGraph : public GraphRecorder {
 public:
  explicit CudaGraph(c10::Device device)
      : device_(device),
        streams_(device.type()),
        stream_(streams_.getStreamFromGlobalPool(device)) {}  // the default stream cannot be recorded

  void warm_up(const std::function<void()>& work) override {
    const c10::OptionalDeviceGuard guard(device_);
    streams_.synchronizeDevice(device_.index());
    {
      const c10::StreamGuard side(stream_);
      work();
    }
    streams_.synchronizeDevice(device_.index());
  }

  void capture(const std::function<void()>& work) override {
    const c10::OptionalDeviceGuard guard(device_);
    streams_.synchronizeDevice(device_.index());
    const c10::StreamGuard side(stream_);
    graph_.capture_begin();
    try {
      work();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override {
    const c10::OptionalDeviceGuard guard(device_);
    graph_.replay();
  }

 private:
  /// Ends a recording that has failed; what it says about that is not the reason.
  void end_quietly() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
    }
    try {
      graph_.reset();
    } catch (const std::exception&) {
    }
  }

  c10::Device device_;
  c10::impl::VirtualGuardImpl streams_;
  c10::Stream stream_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<GraphRecorder> make_cuda_graph(c10::Device device) {
  if (!device.is_cuda()) fail("amp.make_cuda_graph", "expected a CUDA device, got ", device);
  return std::make_unique<CudaGraph>(device);
}

#undef ULP_HAS_CUDA_GRAPHS
#else

std::unique_ptr<GraphRecorder> make_cuda_graph(c10::Device) {
  fail("amp.make_cuda_graph", "expected an ulp that was built with CUDA, got one without");
}

#endif

}  // namespace ulp::amp
