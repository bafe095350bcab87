#include "ulp/app/distill/distill.h"

#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "ulp/app/distill/distill_metrics.h"
#include "ulp/app/model_io/checksum.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/early_exits.h"
#include "ulp/distill/layer_init.h"
#include "ulp/distill/mutual.h"
#include "ulp/distill/soft_labels.h"
#include "ulp/distill/teacher_cache.h"
#include "ulp/train/learning.h"

namespace ulp::app {

namespace {

constexpr const char* kRunDistillWhere = "app.run_distill";
constexpr int64_t kLabelBatch = 250;  // of passes through the teacher alone

class DistillRunner {
 public:
  explicit DistillRunner(const DistillRequest& request)
      : request_(request), figures_(request, run_.outcome) {}

  DistillRun run() {
    check();
    describe();
    switch (request_.scheme) {
      case DistillScheme::offline:
        offline();
        break;
      case DistillScheme::mutual:
        mutual();
        break;
      case DistillScheme::self:
        self();
        break;
    }
    if (request_.latency) figures_.measure_latency();
    return std::move(run_);
  }

 private:
  const train::TrainOptions& options() const { return request_.recipe.training.options; }

  void check() const {
    request_.recipe.validate();
    if (!request_.train_batches) fail(kRunDistillWhere, "expected data to train on, got none");
    const bool offline = request_.scheme == DistillScheme::offline;
    if (offline == request_.teachers.empty())
      fail(kRunDistillWhere,
           offline ? "expected a teacher, got none" : "expected no teacher where networks teach themselves");
    if (request_.scheme == DistillScheme::mutual && request_.peers.empty())
      fail(kRunDistillWhere, "expected a peer of the student, got none");
    if (request_.generations < 1)
      fail(kRunDistillWhere, "expected generations >= 1, got ", request_.generations);
    for (const InferenceModel& teacher : request_.teachers) {
      if (teacher.spec.num_classes != request_.spec.num_classes)
        fail(kRunDistillWhere, "expected a teacher of ", request_.spec.num_classes, " classes, got ",
             teacher.spec.num_classes);
    }
    for (const InferenceModel& teacher : request_.teachers) {
      if (teacher.spec.mean != request_.spec.mean || teacher.spec.std != request_.spec.std)
        fail(kRunDistillWhere, "expected teachers of one normalisation of the data, got '", teacher.spec.name,
             "' with another one");
      if (!same_tokens(teacher.spec, request_.spec))
        fail(kRunDistillWhere, "expected teachers of one tokenizer, got '", teacher.spec.name,
             "' with another one");
    }
    if (request_.top > 0 && request_.unlabelled_batches)
      fail(kRunDistillWhere,
           "expected a teacher that is asked each time for data without labels, got one that is asked once");
    if (request_.hard_labels && request_.labelled == 1)
      fail(kRunDistillWhere,
           "expected labels in part for the teacher's classes in their place, got all of them");
    if (!request_.teacher_cache.empty() && options().augment)
      fail(kRunDistillWhere, "expected data without augmentation for a teacher that is asked once a sample");
    if (request_.top > 0 && distill::teacher_places(request_.recipe.recipe) != std::vector<std::string>{""})
      fail(kRunDistillWhere, "expected one loss of the output with stored labels");
    if (offline) return;
    if (request_.labelled < 1 || request_.hard_labels || request_.top > 0 || request_.unlabelled_batches)
      fail(kRunDistillWhere, "expected labels of all data without a teacher");
  }

  void describe() {
    DistillOutcome& outcome = run_.outcome;
    outcome.title = request_.student.name;
    if (request_.scheme == DistillScheme::offline) {
      outcome.title += " from ";
      for (const InferenceModel& teacher : request_.teachers)
        outcome.title += (&teacher == request_.teachers.data() ? "" : " + ") + teacher.spec.name;
      const distill::Recipe& recipe = request_.recipe.recipe;
      if (recipe.labels > 0)
        outcome.learns.push_back("labels x " + distill::WeightSchedule::constant(recipe.labels).text());
      for (const distill::Term& term : recipe.terms) outcome.learns.push_back(term.describe());
      return;
    }
    outcome.title += request_.scheme == DistillScheme::mutual ? " and its peers" : " from itself";
  }

  /// Once, however many students it is true of.
  void note(const std::string& text) {
    std::vector<std::string>& notes = run_.outcome.notes;
    if (std::ranges::find(notes, text) == notes.end()) notes.push_back(text);
  }

  // Data.

  std::unique_ptr<train::BatchStream> batches(bool training) const {
    const train::TrainOptions& how = options();
    return request_.train_batches(training ? train::StreamOptions::training(how.batch, how.seed, how.augment)
                                           : train::StreamOptions{.batch = kLabelBatch});
  }

  /// The labels that the student is given: those of the data, less those that are held back, and the
  /// teacher's in their place.
  at::Tensor labels(distill::Teacher* teacher) {
    const auto stream = batches(false);
    at::Tensor labels = at::full({stream->samples()}, distill::kUnlabelled, at::kLong);
    while (const auto batch = stream->next()) {
      if (!batch->samples.defined() || batch->targets.dim() != 1)
        fail(kRunDistillWhere, "expected data of numbered samples with one class each, to leave labels out");
      labels.index_copy_(0, batch->samples, batch->targets);
    }
    const at::Tensor kept = train::labelled_share(labels.size(0), request_.labelled, options().seed);
    const at::Tensor others = request_.hard_labels && teacher != nullptr
                                  ? soft_labels(*teacher).hard(*request_.hard_labels)
                                  : at::full_like(labels, distill::kUnlabelled);
    std::string used = std::to_string(kept.sum().item<int64_t>()) + " of " + std::to_string(labels.size(0)) +
                       " labels are used";
    if (request_.hard_labels && teacher != nullptr) {
      const at::Tensor told = others.masked_select(kept.logical_not()).ne(distill::kUnlabelled);
      used += ", and the teacher's class of " + std::to_string(told.sum().item<int64_t>()) + " samples";
    }
    note(used);
    return at::where(kept, labels, others);
  }

  /// What the teacher's logits say of the training data as it is.
  const distill::SoftLabels& soft_labels(distill::Teacher& teacher) {
    if (soft_) return *soft_;
    const auto stream = batches(false);
    distill::SoftLabeller labeller(stream->samples(), std::max<int64_t>(request_.top, 1));
    int64_t done = 0;
    while (const auto batch = stream->next()) {
      labeller.add(teacher.values({{batch->inputs}, batch->samples}).at(0), batch->samples);
      figures_.show(
          {"label by the teacher", request_.unit, done += batch->inputs.size(0), stream->samples()});
    }
    return soft_.emplace(labeller.finish());
  }

  /// The stream that a student learns from; without `teacher` only what has labels counts.
  std::unique_ptr<train::BatchStream> learning_batches(distill::Teacher* logits) {
    std::unique_ptr<train::BatchStream> stream = batches(true);
    if (request_.labelled < 1) stream = train::relabelled(std::move(stream), labels(logits));
    if (logits != nullptr && request_.unlabelled_batches) {
      const train::TrainOptions& how = options();
      stream = train::joined(std::move(stream), request_.unlabelled_batches(train::StreamOptions::training(
                                                    how.batch, how.seed, how.augment)));
    }
    return stream;
  }

  // Networks.

  std::shared_ptr<distill::Teacher> teacher_of(const InferenceModel& teacher,
                                               const std::vector<std::string>& places) const {
    if (teacher.engine) return distill::engine_teacher(teacher.engine, places);
    return distill::graph_teacher(*teacher.graph, places, request_.teacher_precision);
  }

  /// The given teachers as one, at these places.
  std::shared_ptr<distill::Teacher> given_teacher(const std::vector<std::string>& places) const {
    if (request_.teachers.size() == 1) return teacher_of(request_.teachers[0], places);
    if (std::ranges::any_of(places, [](const std::string& place) { return !place.empty(); }))
      fail(kRunDistillWhere, "expected losses of the output alone from several teachers");
    std::vector<std::shared_ptr<distill::Teacher>> members;
    for (const InferenceModel& teacher : request_.teachers) members.push_back(teacher_of(teacher, {""}));
    return distill::ensemble(std::move(members), request_.teacher_weights, 1);
  }

  /// A network and its graph, which share their tensors.
  struct Started {
    Network network;
    std::shared_ptr<graph::GraphModule> graph;
    train::Forward forward;  // of the graph
  };
  Started start(const StudentSource& source) const {
    Started started{.network = source.make(), .graph = nullptr, .forward = {}};
    Network graph = captured(started.network, request_.spec);
    started.graph = std::static_pointer_cast<graph::GraphModule>(graph.module);
    started.forward = std::move(graph.forward);
    return started;
  }

  void finish(const Started& started, const std::string& name, const std::string& network) {
    started.graph->eval();
    started.network.module->eval();
    figures_.add(name, network, *started.graph, started.forward);
  }

  /// What init_from() did, if that was asked for.
  std::optional<distill::InitReport> init_student(graph::GraphModule& student) const {
    if (!request_.init && request_.init_layers.empty()) return std::nullopt;
    const InferenceModel& teacher = request_.teachers.front();
    if (teacher.graph == nullptr)
      fail(kRunDistillWhere, "expected a teacher with tensors to start from, got an engine");
    return distill::init_from(student, *teacher.graph, request_.init_layers);
  }

  /// What tells the samples from others.
  const std::string& data_mark() {
    if (!data_mark_.empty()) return data_mark_;
    data_mark_ = "data " + std::to_string(checksum_of(*batches(false)));
    if (request_.unlabelled_batches)
      data_mark_ += ", " + std::to_string(checksum_of(*request_.unlabelled_batches({.batch = kLabelBatch})));
    return data_mark_;
  }

  /// Reads the file where there is one.
  std::shared_ptr<distill::TeacherCache> cached(std::shared_ptr<distill::Teacher> teacher, int64_t samples) {
    std::string of = request_.teacher_marks + data_mark();
    for (const app::InferenceModel& one : request_.teachers) of += " " + one.spec.name;
    for (const double weight : request_.teacher_weights) of += " " + std::to_string(weight);
    of += " in " + request_.teacher_precision.name() + " at";
    for (const std::string& place : distill::teacher_places(request_.recipe.recipe))
      of += " " + (place.empty() ? "output" : place);
    return std::make_shared<distill::TeacherCache>(
        std::move(teacher),
        distill::CacheOptions{.samples = samples, .path = request_.teacher_cache, .of = of});
  }

  /// Trains; `suffix` is of its checkpoint, `identity` of what else a resumed run must share.
  void train(train::Task task, const distill::DistillationTask* learner, const std::string& name,
             const std::string& suffix, const std::string& identity,
             const std::shared_ptr<distill::TeacherCache>& cache = nullptr) {
    task.description = request_.spec.to_json() + name + identity + learned_from();
    train::Trainer trainer(std::move(task), options());
    train::Checkpointing saving = request_.saving;
    if (!saving.path.empty()) saving.path += suffix;
    if (cache) saving.before = [cache] { cache->save(); };
    train::resume_from(trainer, saving);
    CurveRecorder curve(name, trainer.total_steps());
    train::run_to_end(trainer, saving, [&](const train::StepInfo& info) {
      curve.add(info, learner);
      figures_.show({"train " + name, "step", info.step + 1, trainer.total_steps()});
    });
    run_.outcome.curves.push_back(curve.take());
  }

  /// What else decides how a student trains.
  std::string learned_from() const {
    std::string text = request_.teacher_marks;
    const auto add = [&](const char* what, double value) {
      text += std::string(", ") + what + ' ' + std::to_string(value);
    };
    add("labelled", request_.labelled);
    add("hard labels", request_.hard_labels.value_or(-1));
    add("top", static_cast<double>(request_.top));
    add("noise", request_.input_noise);
    add("peer weight", request_.peer_weight);
    add("unlabelled", request_.unlabelled_batches ? 1 : 0);
    for (const std::string& place : request_.exits) text += ", exit " + place;
    return text + ", features " + request_.exit_features + (request_.init ? ", from the teacher" : "") +
           request_.init_layers;
  }

  /// By labels alone.
  void train_alone(const StudentSource& source) {
    const Started student = start(source);
    auto stream = learning_batches(nullptr);
    distill::DistillerSetup setup = train::distillation_setup(*stream, options());
    setup.student = student.graph;
    setup.recipe = {.terms = {}, .labels = 1};
    setup.input_noise = request_.input_noise;
    auto learner = std::make_shared<distill::Distiller>(std::move(setup));
    train(train::learning_task(learner, std::move(stream)), learner.get(), "student alone", ".alone", "");
    finish(student, "student alone", source.name);
  }

  // Schemes.

  /// Finds what is wrong with the losses for these networks before anything is measured.
  void try_losses(const StudentSource& source) {
    const distill::Recipe& recipe = request_.recipe.recipe;
    const auto stream = batches(true);
    distill::DistillerSetup setup = train::distillation_setup(*stream, options());
    setup.student = start(source).graph;
    if (request_.assistants.empty() && request_.generations == 1) init_student(*setup.student);
    setup.teacher = given_teacher(distill::teacher_places(recipe));
    if (!request_.teacher_cache.empty()) cached(setup.teacher, setup.samples);
    for (const InferenceModel& teacher : request_.teachers) {
      const int64_t classes = teacher.forward(setup.example.inputs.at(0)).size(-1);
      if (classes != request_.spec.num_classes)
        fail(kRunDistillWhere, "expected a teacher of ", request_.spec.num_classes, " classes, got ",
             classes);
    }
    setup.recipe = recipe;
    distill::Distiller(std::move(setup));
  }

  void offline() {
    try_losses(request_.assistants.empty() ? request_.student : request_.assistants.front());
    for (const InferenceModel& teacher : request_.teachers)
      figures_.add_teacher(request_.teachers.size() == 1 ? "teacher" : "teacher " + teacher.spec.name,
                           teacher);
    if (request_.alone) train_alone(request_.student);
    std::vector<StudentSource> chain = request_.assistants;
    for (int64_t i = 0; i < request_.generations; ++i) chain.push_back(request_.student);
    std::shared_ptr<graph::GraphModule> before;
    for (size_t i = 0; i < chain.size(); ++i) {
      const bool last = i + 1 == chain.size();
      std::string name = "student taught";
      if (i < request_.assistants.size())
        name = "assistant " + chain[i].name;
      else if (!last)
        name = "generation " + std::to_string(i + 1 - request_.assistants.size());
      before = teach(chain[i], before, name, last ? "" : "." + std::to_string(i + 1));
    }
  }

  std::shared_ptr<graph::GraphModule> teach(const StudentSource& source,
                                            const std::shared_ptr<graph::GraphModule>& before,
                                            const std::string& name, const std::string& suffix) {
    const Started student = start(source);
    if (suffix.empty()) {
      if (const auto report = init_student(*student.graph))
        run_.outcome.notes.push_back(std::to_string(report->copied.size()) +
                                     " tensors were taken from the teacher, " +
                                     std::to_string(report->left.size()) + " were not");
    }
    const distill::Recipe& recipe = request_.recipe.recipe;
    const std::vector<std::string> places = distill::teacher_places(recipe);
    const auto made = [&](const std::vector<std::string>& at) {
      return before ? distill::graph_teacher(*before, at, request_.teacher_precision) : given_teacher(at);
    };
    soft_.reset();
    std::shared_ptr<distill::Teacher> teacher;
    const bool needs_logits = request_.hard_labels.has_value() || request_.top > 0;
    const std::shared_ptr<distill::Teacher> logits = needs_logits ? made({""}) : nullptr;
    if (request_.top > 0) {
      teacher = distill::stored_teacher(soft_labels(*logits));
    } else {
      teacher = made(places);
    }
    std::shared_ptr<distill::TeacherCache> cache;
    auto stream = learning_batches(logits ? logits.get() : teacher.get());
    if (!request_.teacher_cache.empty() && !before) {
      cache = cached(teacher, stream->samples());
      teacher = cache;
    }
    distill::DistillerSetup setup = train::distillation_setup(*stream, options());
    setup.student = student.graph;
    setup.teacher = teacher;
    setup.recipe = recipe;
    setup.input_noise = request_.input_noise;
    auto learner = std::make_shared<distill::Distiller>(std::move(setup));
    try {
      train(train::learning_task(learner, std::move(stream)), learner.get(), name, suffix, recipe.to_json(),
            cache);
    } catch (const Interrupted&) {
      if (cache) cache->save();
      throw;
    }
    if (cache) cache->save();
    finish(student, name, source.name);
    run_.student = student.network;
    return student.graph;
  }

  void mutual() {
    if (request_.alone) train_alone(request_.student);
    std::vector<StudentSource> sources = {request_.student};
    sources.insert(sources.end(), request_.peers.begin(), request_.peers.end());
    std::vector<Started> started;
    std::vector<std::shared_ptr<graph::GraphModule>> peers;
    for (const StudentSource& source : sources) {
      started.push_back(start(source));
      peers.push_back(started.back().graph);
    }
    auto learner = std::make_shared<distill::MutualDistillation>(
        peers, distill::MutualOptions{.weight = request_.peer_weight});
    train(train::learning_task(learner, learning_batches(nullptr)), learner.get(), "student taught", "", "");
    for (size_t i = 0; i < started.size(); ++i)
      finish(started[i], i == 0 ? "student taught" : "peer " + std::to_string(i), sources[i].name);
    run_.student = started.front().network;
  }

  void self() {
    const distill::ExitOptions exits{.places = request_.exits, .features = request_.exit_features};
    const distill::Batch example = train::distillation_batch(train::example_batch(*batches(true)));
    distill::SelfDistillation(start(request_.student).graph, exits,
                              example);  // throws before anything is trained
    if (request_.alone) train_alone(request_.student);
    const Started student = start(request_.student);
    auto learner = std::make_shared<distill::SelfDistillation>(student.graph, exits, example);
    train(train::learning_task(learner, learning_batches(nullptr)), learner.get(), "student taught", "", "");
    finish(student, "student taught", request_.student.name);
    run_.student = student.network;
  }

  const DistillRequest& request_;
  DistillRun run_;
  DistillFigures figures_;
  std::optional<distill::SoftLabels> soft_;  // of the present teacher
  std::string data_mark_;
};

}  // namespace

DistillRun run_distill(const DistillRequest& request) {
  return DistillRunner(request).run();
}

}  // namespace ulp::app
