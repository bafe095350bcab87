#include "ulp/distill/distiller.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/distill/adapter.h"
#include "ulp/distill/loss.h"

namespace ulp::distill {

namespace {

constexpr const char* kDistillerWhere = "distill.Distiller";

/// "layer" as the places of a loss that joins {"queries", "keys"}: "layer:queries", "layer:keys".
std::vector<std::string> places_of(const Loss& loss, const std::string& place) {
  const std::vector<std::string>& parts = loss.places();
  if (parts.size() == 1) return {place};
  std::vector<std::string> places;
  for (const std::string& part : parts) places.push_back(place + ':' + part);
  return places;
}

/// "layer2 and layer3", for messages.
std::string both_places(const Term& term) {
  const auto shown = [](const std::string& place) { return place.empty() ? std::string("output") : place; };
  return shown(term.student) + (term.student == term.teacher ? "" : " and " + shown(term.teacher));
}

/// One term at work.
struct RunningTerm {
  Term term;
  std::shared_ptr<Loss> loss;
  std::shared_ptr<libtorch::TensorModule> adapter;  // null where none is needed
  size_t first = 0;                                 // of its values among all
  size_t count = 1;
};

/// Values of one term out of all.
std::vector<at::Tensor> part_of(const std::vector<at::Tensor>& all, const RunningTerm& term) {
  return {all.begin() + static_cast<int64_t>(term.first),
          all.begin() + static_cast<int64_t>(term.first + term.count)};
}

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach());
  return result;
}

/// The same batch without its gradients and graphs: what a module keeps between forward and loss.
struct Seen {
  at::Tensor output;
  std::vector<at::Tensor> student, teacher;
};

/// The values of a batch, of which the model keeps nothing: in eval mode, or where it cannot run so yet, as one whose ranges are
/// still to be observed, in the mode it is in.
TappedModel::Values seen_once(const TappedModel& model, const std::vector<at::Tensor>& inputs) {
  graph::GraphModule& module = *model.module();
  const bool training = module.is_training();
  module.eval();
  try {
    const TappedModel::Values values = model.run(inputs);
    module.train(training);
    return values;
  } catch (const Error&) {
    module.train(training);
    if (!training) throw;
  }
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) buffers.push_back(buffer.clone());
  at::Generator random = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = random.get_state();
  const TappedModel::Values values = model.run(inputs);
  random.set_state(state);
  const std::vector<at::Tensor> changed = module.buffers();
  for (size_t i = 0; i < buffers.size(); ++i) changed[i].set_data(buffers[i]);
  return values;
}

}  // namespace

struct Distiller::State {
  DistillerSetup setup;
  TappedModel student;
  std::vector<RunningTerm> terms;
  at::Tensor batches_seen;
  Seen seen;
  std::vector<TermValue> values;

  explicit State(DistillerSetup given, const std::vector<std::string>& places)
      : setup(std::move(given)), student(*setup.student, places) {}

  double epochs() const {
    return setup.epoch_batches > 0
               ? static_cast<double>(batches_seen.item<int64_t>()) / static_cast<double>(setup.epoch_batches)
               : 0;
  }
  double share() const {
    return setup.batches > 0 ? std::min(1.0, static_cast<double>(batches_seen.item<int64_t>()) /
                                                 static_cast<double>(setup.batches))
                             : 0;
  }

  std::vector<at::Tensor> teach(const Batch& batch) const {
    if (terms.empty()) return {};
    return setup.teacher->values({batch.inputs, batch.samples});
  }

  LossInput input_of(const RunningTerm& term, const Batch& batch, const Seen& at) const {
    LossInput input{.student = part_of(at.student, term),
                    .teacher = part_of(at.teacher, term),
                    .targets = batch.targets,
                    .samples = batch.samples,
                    .progress = epochs()};
    if (term.loss->same_width()) {
      if (term.adapter) input.student[0] = term.adapter->forward(input.student[0]);
      input.teacher[0] = pooled_to(input.teacher[0], input.student[0]);
    }
    return input;
  }

  std::vector<at::Tensor> student_inputs(const Batch& batch, bool training) const {
    if (setup.input_noise == 0 || !training) return batch.inputs;
    std::vector<at::Tensor> noisy;
    for (const at::Tensor& input : batch.inputs)
      noisy.push_back(input.is_floating_point() ? input + at::randn_like(input) * setup.input_noise : input);
    return noisy;
  }
};

Distiller::Distiller(DistillerSetup setup) {
  if (setup.student == nullptr) fail(kDistillerWhere, "expected a student, got null");
  setup.recipe.validate();
  if (!setup.recipe.terms.empty() && setup.teacher == nullptr)
    fail(kDistillerWhere, "expected a teacher for the recipe's losses, got none");
  std::vector<std::string> places;
  std::vector<RunningTerm> terms;
  for (const Term& term : setup.recipe.terms) {
    RunningTerm running{.term = term, .loss = make_loss(term), .adapter = nullptr, .first = places.size()};
    const std::vector<std::string> own = places_of(*running.loss, term.student);
    running.count = own.size();
    places.insert(places.end(), own.begin(), own.end());
    terms.push_back(std::move(running));
  }
  if (setup.teacher != nullptr && !terms.empty() && setup.teacher->count() != places.size())
    fail(kDistillerWhere, "expected a teacher with ", places.size(), " values, got one with ",
         setup.teacher->count());
  state_ = std::make_unique<State>(std::move(setup), places);
  State& s = *state_;
  s.terms = std::move(terms);
  register_module("student", s.student.module());
  s.batches_seen = register_buffer("batches", at::zeros({}, at::kLong));

  const at::NoGradGuard no_grad;
  const TappedModel::Values values = seen_once(s.student, s.setup.example.inputs);
  const Seen seen{values.output(), values.taps, detached(s.teach(s.setup.example))};
  if (s.setup.recipe.labels > 0) labelled_cross_entropy(seen.output, s.setup.example.targets);
  for (size_t i = 0; i < s.terms.size(); ++i) {
    RunningTerm& term = s.terms[i];
    const std::string name = std::to_string(i) + '_' + term.term.loss;
    const at::Tensor& from = seen.student[term.first];
    const at::Tensor& to = seen.teacher[term.first];
    if (term.loss->same_width() && from.sizes() != pooled_to(to, from).sizes()) {
      term.adapter = make_adapter(from, to, both_places(term.term));
      register_module("adapter_" + name, term.adapter);
    }
    register_module("loss_" + name, term.loss);
    const LossInput input = s.input_of(term, s.setup.example, seen);
    try {
      term.loss->prepare(input, s.setup.samples);
      term.loss->eval();  // the example leaves memories as they are
      term.loss->forward(input);
      term.loss->train();
    } catch (const Error& error) {
      fail(kDistillerWhere, term.term.loss, " at ", both_places(term.term), ": ", error.what());
    }
  }
}

Distiller::~Distiller() = default;

at::Tensor Distiller::forward(const Batch& batch) {
  State& s = *state_;
  s.seen = {};
  s.seen.teacher = s.teach(batch);
  const TappedModel::Values values = s.student.run(s.student_inputs(batch, is_training()));
  s.seen.student = values.taps;
  s.seen.output = values.output();
  return s.seen.output;
}

at::Tensor Distiller::loss(const Batch& batch) {
  State& s = *state_;
  if (!s.seen.output.defined()) fail("distill.Distiller.loss", "expected forward() before, got none");
  const Seen seen = std::exchange(s.seen, {});
  const double share = s.share();
  s.values.clear();
  at::Tensor sum;
  const auto add = [&](const std::string& name, const at::Tensor& value, double weight) {
    s.values.push_back({name, value.item<double>(), weight});
    const at::Tensor weighted = value * weight;
    sum = sum.defined() ? sum + weighted : weighted;
  };
  if (s.setup.recipe.labels > 0)
    add("labels", labelled_cross_entropy(seen.output, batch.targets), s.setup.recipe.labels);
  for (const RunningTerm& term : s.terms) {
    if (term.term.temperature) term.loss->set_temperature(term.term.temperature->at(share));
    const double weight = term.term.weight.at(share);
    if (weight == 0) continue;
    add(term.term.loss, term.loss->forward(s.input_of(term, batch, seen)), weight);
  }
  if (!sum.defined()) sum = seen.output.sum().to(torch::kFloat) * 0;  // all weights are 0 at this time
  if (is_training()) s.batches_seen += 1;
  return sum;
}

std::vector<TermValue> Distiller::values() const {
  return state_->values;
}

const Recipe& Distiller::recipe() const {
  return state_->setup.recipe;
}

const std::shared_ptr<graph::GraphModule>& Distiller::student() const {
  return state_->setup.student;
}

graph::GraphModule& Distiller::tapped() {
  return *state_->student.module();
}

std::vector<std::string> Distiller::adapters() const {
  std::vector<std::string> names;
  for (const auto& parameter : named_parameters()) {
    if (!parameter.key().starts_with("student.")) names.push_back(parameter.key());
  }
  return names;
}

std::vector<std::string> teacher_places(const Recipe& recipe) {
  std::vector<std::string> places;
  for (const Term& term : recipe.terms) {
    const std::vector<std::string> own = places_of(*make_loss(term), term.teacher);
    places.insert(places.end(), own.begin(), own.end());
  }
  return places;
}

}  // namespace ulp::distill
