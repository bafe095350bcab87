// One recorded run of a model that leaves no trace in the model.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

namespace {

/// Gives the mode, the buffers' contents and the random state back on destruction.
class Restorer {
 public:
  explicit Restorer(const Subject& subject) : subject_(subject) {
    generators_.push_back(at::detail::getDefaultCPUGenerator());
    if (at::hasCUDA()) {
      for (size_t i = 0; i < at::getNumGPUs(); ++i) {
        generators_.push_back(
            at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i))));
      }
    }
    for (const at::Generator& generator : generators_) states_.push_back(generator.get_state());
    at::NoGradGuard no_grad;
    for (const auto& [name, attribute] : subject.attributes) {
      bool buffer = attribute.kind == Attribute::Kind::buffer;
      saved_.push_back(buffer ? attribute.tensor.clone() : at::Tensor());
    }
  }

  ~Restorer() {
    try {
      at::NoGradGuard no_grad;
      for (size_t i = 0; i < saved_.size(); ++i) {
        if (saved_[i].defined()) subject_.attributes[i].second.tensor.copy_(saved_[i]);
      }
      for (size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(states_[i]);
      subject_.restore_mode();
    } catch (const std::exception&) {
      // Nothing sensible is left to do for a model whose own buffers cannot be written.
    }
  }

 private:
  const Subject& subject_;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_, saved_;
};

}  // namespace

Trace trace(const Subject& subject, const std::vector<at::Tensor>& inputs, int64_t batch, bool training) {
  Trace result;
  result.inputs = inputs;
  result.batch = batch;
  result.training = training;
  Restorer restorer(subject);
  subject.train(training);
  // The graph must come out the same under a caller's autocast or NoGradGuard, and must serve both.
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  at::AutoGradMode grad(true);
  try {
    Recorder recorder(result);
    result.result = subject.forward(inputs);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::string what = error.what();
    what = what.substr(0, what.find("\nException raised from"));
    if (training) {
      fail("graph.capture", "forward cannot run in train mode, which is needed to record both modes: ", what);
    }
    if (result.calls.empty()) fail("graph.capture", "forward failed: ", what);
    fail("graph.capture", "forward failed in or after ", result.calls.back().target, " at batch size ", batch,
         ": ", what);
  }
  return result;
}

}  // namespace ulp::graph
