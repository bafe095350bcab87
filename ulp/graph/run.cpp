// One recorded run of a model that leaves no trace in the model.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <optional>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/graph/capture/hooks.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

namespace {

/// Gives the mode, the random state, and what the buffers and parameters held back on destruction.
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
    saved_.resize(subject.attributes.size());
    for (size_t i = 0; i < saved_.size(); ++i) {
      memory_.push_back(subject.attributes[i].second.tensor.variable_data());
      index_[subject.attributes[i].second.tensor.unsafeGetTensorImpl()] = i;
      if (subject.attributes[i].second.kind == Attribute::Kind::buffer) save(i);
    }
  }

  /// A model may put its own memory back before it returns.
  void before_read(const at::Tensor& tensor) {
    if (!tensor.defined() || was_replaced_) return;
    const auto found = index_.find(tensor.unsafeGetTensorImpl());
    if (found != index_.end() && replaced(found->second)) was_replaced_ = found->second;
  }

  /// Parameters are seldom written, and large: they are kept when a call is about to write to them.
  void before_write(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (!saved_[i].defined() && subject_.attributes[i].second.tensor.is_alias_of(tensor)) save(i);
    }
  }

  /// Throws ulp::Error naming the first attribute that has other memory now, or had it when a call read it.
  void refuse_replaced() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (!replaced(i) && was_replaced_ != i) continue;
      fail("graph.capture", "forward gives '", subject_.attributes[i].first,
           "' other memory with set_data(), which a graph would not do; write the new values into it with "
           "copy_() under torch::NoGradGuard, or, where forward sets the module up once, run one batch "
           "before capture");
    }
  }

  /// What the run has made of the buffers, and of the parameters that it wrote.
  std::map<size_t, at::Tensor> current() const {
    at::NoGradGuard no_grad;
    std::map<size_t, at::Tensor> result;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (saved_[i].defined()) result[i] = subject_.attributes[i].second.tensor.detach().clone();
    }
    return result;
  }

  ~Restorer() {
    try {
      at::NoGradGuard no_grad;
      for (size_t i = 0; i < saved_.size(); ++i) {
        if (replaced(i)) at::Tensor(subject_.attributes[i].second.tensor).set_data(memory_[i]);
        if (saved_[i].defined()) subject_.attributes[i].second.tensor.detach().copy_(saved_[i]);
      }
      for (size_t i = 0; i < generators_.size(); ++i) generators_[i].set_state(states_[i]);
      subject_.restore_mode();
    } catch (const std::exception&) {
      // Nothing sensible is left to do for a model whose own buffers cannot be written.
    }
  }

 private:
  /// Whether set_data() gave the attribute the memory, the type or the sizes of another tensor.
  bool replaced(size_t attribute) const {
    const at::Tensor &now = subject_.attributes[attribute].second.tensor, &before = memory_[attribute];
    if (!now.has_storage() || !before.has_storage()) return now.has_storage() != before.has_storage();
    return !now.is_alias_of(before) || now.scalar_type() != before.scalar_type() ||
           now.sizes() != before.sizes() || now.strides() != before.strides() ||
           now.storage_offset() != before.storage_offset();
  }

  void save(size_t attribute) {
    at::NoGradGuard no_grad;
    saved_[attribute] = subject_.attributes[attribute].second.tensor.detach().clone();
  }

  const Subject& subject_;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_, saved_;
  std::vector<at::Tensor> memory_;  ///< of each attribute before the run
  std::unordered_map<const c10::TensorImpl*, size_t> index_;
  std::optional<size_t> was_replaced_;
};

c10::IValue copy_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? tensor.detach().clone() : tensor;
  }
  if (!value.isTuple() && !value.isList()) return value;
  std::vector<c10::IValue> items;
  if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) items.push_back(copy_of(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& item : value.toListRef()) list.push_back(copy_of(item));
  return list;
}

/// An enabled autocast to a type; none without one.
class EnabledAutocast {
 public:
  EnabledAutocast(c10::DeviceType device, std::optional<at::ScalarType> type)
      : device_(device), dtype_(at::autocast::get_autocast_dtype(device)), on_(type.has_value()) {
    if (!on_) return;
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, *type);
  }
  ~EnabledAutocast() {
    if (!on_) return;
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::set_autocast_dtype(device_, dtype_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  EnabledAutocast(const EnabledAutocast&) = delete;
  EnabledAutocast& operator=(const EnabledAutocast&) = delete;

 private:
  c10::DeviceType device_;
  at::ScalarType dtype_;
  bool on_;
};

/// The gradients of a weighted sum of the results by the parameters and the inputs.
std::vector<at::Tensor> gradients_of(const Trace& run, const Subject& subject, double scale) {
  at::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/11);
  torch::autograd::variable_list results, weights, of;
  for_each_tensor(run.result, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.requires_grad()) return;
    results.push_back(tensor);
    const at::Tensor drawn = at::randn(tensor.sizes(), generator, at::kFloat) * scale;
    weights.push_back(drawn.to(tensor.options().requires_grad(false)));
  });
  for (const auto& [name, attribute] : subject.attributes) {
    if (attribute.tensor.requires_grad()) of.push_back(attribute.tensor);
  }
  for (const at::Tensor& input : run.inputs) {
    if (input.requires_grad()) of.push_back(input);
  }
  if (results.empty() || of.empty()) return {};
  return torch::autograd::grad(results, of, weights, /*retain_graph=*/false, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

}  // namespace

std::string RunSizes::text() const {
  std::string result = "batch size " + std::to_string(values.at(0));
  for (size_t i = 0; i < free_names.size(); ++i)
    result += ", " + free_names[i] + " " + std::to_string(values.at(i + 1));
  return result;
}

std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs) {
    const at::Tensor own = input.detach();
    result.push_back(own.is_floating_point() ? own.requires_grad_() : own);
  }
  return result;
}

Trace trace(const Subject& subject, const std::vector<at::Tensor>& inputs, const RunSizes& sizes,
            const TraceOptions& options) {
  Trace result;
  result.inputs = subject.differentiates_custom ? with_gradients(inputs) : inputs;
  result.sizes = sizes;
  result.training = options.training;
  result.keep = options.keep;
  Restorer restorer(subject);
  const ParameterHooks hooks(subject);
  subject.train(options.training);
  // The graph must come out the same under a caller's autocast or NoGradGuard, and must serve both.
  const c10::DeviceType device = inputs.empty() ? at::kCPU : inputs[0].device().type();
  std::optional<c10::impl::ExcludeDispatchKeyGuard> no_casts;
  if (!options.autocast || *options.autocast == at::kFloat) no_casts.emplace(c10::autocast_dispatch_keyset);
  at::AutoGradMode grad(true);
  try {
    const EnabledAutocast enabled(device, options.autocast);
    {
      Recorder recorder(result, device,
                        {.read = [&](const at::Tensor& tensor) { restorer.before_read(tensor); },
                         .write = [&](const at::Tensor& tensor) { restorer.before_write(tensor); }});
      ++*subject.runs;
      result.result = subject.forward(result.inputs);
    }
    hooks.refuse_new();
    restorer.refuse_replaced();
    result.custom_result = custom_function_behind(result.result, result);
    if (options.gradients != 0) result.gradients = gradients_of(result, subject, options.gradients);
    if (options.keep != Keep::nothing) {
      at::NoGradGuard no_grad;
      result.result_copy = copy_of(result.result);
      result.after = restorer.current();
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    std::string what = error.what();
    what = what.substr(0, what.find("\nException raised from"));
    if (options.training) {
      fail("graph.capture", "forward cannot run in train mode, which is needed to record both modes: ", what);
    }
    if (result.calls.empty()) fail("graph.capture", "forward failed: ", what);
    fail("graph.capture", "forward failed in or after ", result.calls.back().target, " at ", sizes.text(),
         ": ", what);
  }
  return result;
}

}  // namespace ulp::graph
