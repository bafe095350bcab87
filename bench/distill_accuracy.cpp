// What a student gains by a teacher, on Fashion-MNIST and on generated text. Prints Markdown rows.
//
//   distill_accuracy taught teacher=FILE student=lenet5 loss=kd:T=4,alpha=0.1 epochs=5 seeds=3
//   distill_accuracy mutual student=lenet5 peer=lenet5 epochs=5 seeds=3
//   distill_accuracy withheld teacher=FILE student=lenet5 class=8 loss=kd:T=4,alpha=0.1 epochs=5 seeds=3
//   distill_accuracy binary float=lenet5 student=binary_lenet5 epochs=5 seeds=3
//   distill_accuracy bert layers=4 steps=400 seeds=3
//   distill_accuracy language layers=4 steps=400 seeds=3
//
// Other words: threads; of images images=N (the first N of them), lr, batch, decay, optimizer and augment; of `taught` labels (the share that is used), top (stored classes of
// each sample; 0 asks the teacher each time) and with=LOSS (one more); of `binary` float_epochs, float_lr and alone=0. Teachers are model
// files or engines.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "bench/words.h"
#include "tests/train/text_proof.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/app/data/data.h"
#include "ulp/app/distill/distill.h"
#include "ulp/base/error.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/layer_init.h"
#include "ulp/io/dataset.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"

namespace {

using namespace ulp;
using namespace ulp::test;
using bench::Given;

/// A table whose last rows are means and standard deviations of the columns.
class Table {
 public:
  explicit Table(const std::vector<std::string>& columns) : values_(columns.size()) {
    std::cout << "| seed |";
    for (const std::string& column : columns) std::cout << ' ' << column << " |";
    std::cout << "\n|---:|";
    for (size_t i = 0; i < columns.size(); ++i) std::cout << "---:|";
    std::cout << std::endl;
  }
  void row(const std::string& name, const std::vector<double>& values) {
    print(name, values);
    for (size_t i = 0; i < values.size(); ++i) values_[i].push_back(values[i]);
  }
  void summary() {
    std::vector<double> means, deviations;
    for (const std::vector<double>& column : values_) {
      double mean = 0, squares = 0;
      for (const double value : column) mean += value / static_cast<double>(column.size());
      for (const double value : column) squares += (value - mean) * (value - mean);
      means.push_back(mean);
      deviations.push_back(column.size() > 1 ? std::sqrt(squares / static_cast<double>(column.size() - 1))
                                             : 0);
    }
    print("mean", means);
    print("+-", deviations);
  }

 private:
  static void print(const std::string& name, const std::vector<double>& values) {
    std::cout << "| " << name << " |";
    for (const double value : values) std::printf(" %.2f |", value), std::fflush(stdout);
    std::cout << std::endl;
  }
  std::vector<std::vector<double>> values_;
};

// Images.

app::DistillRequest request_for(Given& words, const app::ModelSpec& spec, int64_t seed) {
  app::DistillRequest request;
  train::TrainOptions& options = request.recipe.training.options;
  options.epochs = words.integer("epochs", 5);
  options.batch = words.integer("batch", 128);
  const bool adam = words.text("optimizer", "sgd") == "adam";
  options.optimizer = adam ? train::Optimizer::adam : train::Optimizer::sgd;
  options.learning_rate = words.number("lr", adam ? 0.001 : 0.05);
  options.weight_decay = words.number("decay", adam ? 0 : 5e-4);
  options.augment = words.integer("augment", 0) != 0;
  options.seed = static_cast<uint64_t>(seed);
  const std::string name = words.text("student", "lenet5");
  request.spec = spec;
  request.spec.name = name;
  request.student = {name, [spec = request.spec, seed] {
                       torch::manual_seed(seed);
                       return app::make_network(spec);
                     }};
  request.latency = false;
  request.top = words.integer("top", spec.num_classes);
  request.labelled = words.number("labels", 1);
  std::vector<std::string> losses = {words.text("loss", "kd:T=4,alpha=0.1")};
  if (const std::string more = words.text("with", ""); !more.empty()) losses.push_back(more);
  request.recipe.recipe = distill::Recipe::from_terms(losses);
  return request;
}

/// Fashion-MNIST, the first `images` of the training part, as a network of this kind takes it.
struct Data {
  Data(Given& words, const app::ModelSpec& spec)
      : train(app::load_images("fashion-mnist", io::Split::train, spec)),
        test(app::load_images("fashion-mnist", io::Split::test, spec)) {
    train = io::slice(train, 0, std::min(words.integer("images", train.size()), train.size()));
  }
  std::unique_ptr<train::BatchStream> batches(const train::StreamOptions& options) const {
    return train::image_stream(train, options);
  }
  io::ImageDataset train, test;
};

void use_data(app::DistillRequest& request, const Data& data) {
  request.train_batches = [&data](const train::StreamOptions& options) { return data.batches(options); };
  request.test_batches = [&data] { return train::image_stream(data.test, {.batch = 250}); };
}

double accuracy_in(const app::DistillRun& run, const std::string& name) {
  for (const app::DistillationState& state : run.outcome.states) {
    if (state.name == name) return state.accuracy->percent();
  }
  fail("distill_accuracy", "expected a network ", name);
}

void run_taught(Given& words) {
  const app::InferenceModel teacher = app::load_inference_model(words.text("teacher", "teacher.safetensors"));
  const Data data(words, teacher.spec);
  const int64_t seeds = words.integer("seeds", 3);
  Table table({"teacher", "alone", "taught", "gain"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Given again = words;
    app::DistillRequest request = request_for(again, teacher.spec, seed);
    again.expect_all_used();
    request.teachers = {teacher};
    use_data(request, data);
    const app::DistillRun run = app::run_distill(request);
    const double alone = accuracy_in(run, "student alone"), taught = accuracy_in(run, "student taught");
    table.row(std::to_string(seed), {accuracy_in(run, "teacher"), alone, taught, taught - alone});
  }
  table.summary();
}

void run_mutual(Given& words) {
  const Data data(words, {});
  const int64_t seeds = words.integer("seeds", 3);
  const std::string peer = words.text("peer", "lenet5");
  Table table({"first alone", "first of two", "second alone", "second of two"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Given again = words;
    app::DistillRequest request = request_for(again, {}, seed);
    again.expect_all_used();
    request.scheme = app::DistillScheme::mutual;
    request.top = 0;
    app::ModelSpec spec;
    spec.name = peer;
    const app::StudentSource other{peer, [spec, seed] {
                                     torch::manual_seed(seed + 1000);
                                     return app::make_network(spec);
                                   }};
    request.peers = {other};
    use_data(request, data);
    const app::DistillRun run = app::run_distill(request);
    std::swap(request.student, request.peers[0]);
    std::swap(request.spec.name, spec.name);
    const app::DistillRun turned = app::run_distill(request);  // the second one alone
    table.row(std::to_string(seed), {accuracy_in(run, "student alone"), accuracy_in(run, "student taught"),
                                     accuracy_in(turned, "student alone"), accuracy_in(run, "peer 1")});
  }
  table.summary();
}

/// A reference network, trained by labels.
app::InferenceModel trained(const std::string& name, const Data& data, const train::TrainOptions& options) {
  app::InferenceModel made{.kind = "LibTorch", .spec = {}, .forward = {}, .engine = {}, .graph = {}};
  made.spec.name = name;
  torch::manual_seed(static_cast<int64_t>(options.seed));
  const app::Network network = app::captured(app::make_network(made.spec), made.spec);
  train::Trainer trainer(
      {.model = network.module,
       .forward = network.forward,
       .batches = data.batches(train::StreamOptions::training(options.batch, options.seed, options.augment))},
      options);
  while (!trainer.done()) trainer.step();
  network.module->eval();
  made.graph = std::static_pointer_cast<graph::GraphModule>(network.module);
  made.forward = [network](const at::Tensor& images) {
    return network.forward({.inputs = images, .targets = {}});
  };
  return made;
}

/// A float network, and one of signs by labels alone and with the float one as its teacher.
void run_binary(Given& words) {
  const Data data(words, {});
  const int64_t seeds = words.integer("seeds", 3);
  const std::string name = words.text("float", "lenet5");
  const int64_t epochs = words.integer("float_epochs", 5);
  const double rate = words.number("float_lr", 0.05);
  const bool alone = words.integer("alone", 1) != 0;
  std::vector<std::string> columns = {"float", "binary, taught", "lost, taught"};
  if (alone) columns.emplace_back("binary, alone");
  Table table(columns);
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Given again = words;
    app::DistillRequest request = request_for(again, {}, seed);
    again.expect_all_used();
    train::TrainOptions options;
    options.epochs = epochs;
    options.learning_rate = rate;
    options.augment = request.recipe.training.options.augment;
    options.seed = static_cast<uint64_t>(seed);
    request.teachers = {trained(name, data, options)};
    request.alone = alone;
    use_data(request, data);
    const app::DistillRun run = app::run_distill(request);
    const double teacher = accuracy_in(run, "teacher"), taught = accuracy_in(run, "student taught");
    std::vector<double> row = {teacher, taught, teacher - taught};
    if (alone) row.push_back(accuracy_in(run, "student alone"));
    table.row(std::to_string(seed), row);
  }
  table.summary();
}

/// The images whose class is the one, or is not.
io::ImageDataset of_class(const io::ImageDataset& data, int64_t one, bool is) {
  io::ImageDataset part = data;
  const at::Tensor chosen = (is ? data.labels.eq(one) : data.labels.ne(one)).nonzero().flatten();
  part.images = data.images.index_select(0, chosen);
  part.labels = data.labels.index_select(0, chosen);
  return part;
}

at::Tensor logits_of(const app::Network& network, const io::ImageDataset& images) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  const auto stream = train::image_stream(images, {.batch = 500});
  while (const auto batch = stream->next()) all.push_back(network.forward(*batch));
  return at::cat(all);
}

double share_right(const at::Tensor& logits, const at::Tensor& labels) {
  return 100 * logits.argmax(1).eq(labels).to(torch::kDouble).mean().item<double>();
}

/// Hinton et al. 2015, section 3: the student never sees a class. What its bias lacks is found on 5,000 training images.
void run_withheld(Given& words) {
  const app::InferenceModel teacher = app::load_inference_model(words.text("teacher", "teacher.safetensors"));
  const int64_t seeds = words.integer("seeds", 3), one = words.integer("class", 8);
  const Data data(words, teacher.spec);
  const io::ImageDataset &all = data.train, &test = data.test;
  const io::ImageDataset seen = of_class(io::slice(all, 0, all.size() - 5000), one, false),
                         held = io::slice(all, all.size() - 5000, all.size()),
                         withheld = of_class(test, one, true);
  Table table({"all test images", "of the class", "bias", "all, corrected", "of the class, corrected"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Given again = words;
    app::DistillRequest request = request_for(again, teacher.spec, seed);
    again.expect_all_used();
    request.teachers = {teacher};
    request.alone = false;
    request.train_batches = [&](const train::StreamOptions& options) {
      return train::image_stream(seen, options);
    };
    const app::DistillRun run = app::run_distill(request);
    const at::Tensor on_held = logits_of(run.student, held), on_test = logits_of(run.student, test),
                     on_class = logits_of(run.student, withheld);
    const auto with = [&](const at::Tensor& logits, double bias) {
      at::Tensor changed = logits.clone();
      changed.select(1, one) += bias;
      return changed;
    };
    double best = 0, bias = 0;
    for (double tried = 0; tried <= 20; tried += 0.1) {
      const double right = share_right(with(on_held, tried), held.labels);
      if (right > best) best = right, bias = tried;
    }
    table.row(
        std::to_string(seed),
        {share_right(on_test, test.labels), share_right(on_class, withheld.labels), bias,
         share_right(with(on_test, bias), test.labels), share_right(with(on_class, bias), withheld.labels)});
  }
  table.summary();
}

// Text.

using Captured = std::shared_ptr<graph::GraphModule>;

/// Adam on random batches of 32, by labels and what the teacher says.
void train_taught(const Captured& student, const Captured& teacher, const std::vector<std::string>& losses,
                  const io::TextDataset& data, int64_t steps, double rate) {
  const distill::Recipe recipe = distill::Recipe::from_terms(losses);
  const auto batch_of = [&] {
    const at::Tensor index = torch::randint(data.size(), {32}, torch::kLong);
    const io::TextBatch batch = data.gather({index.const_data_ptr<int64_t>(), 32});
    return distill::Batch{{batch.tokens}, batch.targets};
  };
  distill::Distiller learner({.student = student,
                              .teacher = distill::graph_teacher(*teacher, distill::teacher_places(recipe)),
                              .recipe = recipe,
                              .example = batch_of(),
                              .batches = steps});
  learner.train();
  torch::optim::Adam optimizer(learner.parameters(), torch::optim::AdamOptions(rate));
  for (int64_t step = 0; step < steps; ++step) {
    const distill::Batch batch = batch_of();
    optimizer.zero_grad();
    learner.forward(batch);
    learner.loss(batch).backward();
    torch::nn::utils::clip_grad_norm_(student->parameters(), 1.0);
    optimizer.step();
  }
  student->eval();
}

TextScore score(const Captured& model, const io::TextDataset& test) {
  return score_text([&](const at::Tensor& tokens) { return model->forward(tokens); }, test);
}

/// A BERT, one of half its layers alone, and one that takes every second layer and learns logits, hidden states and attention.
void run_bert(Given& words) {
  const int64_t seeds = words.integer("seeds", 3), steps = words.integer("steps", 400),
                layers = words.integer("layers", 4);
  words.expect_all_used();
  const io::TextDataset data = labelled_sentences(20000, 64, 3), test = labelled_sentences(4000, 64, 4);
  const auto make = [&](int64_t depth, int64_t seed) {
    torch::manual_seed(seed);
    models::BertConfig config = models::BertConfig::tiny();
    config.layers = depth;
    config.heads = 4;
    config.num_classes = Grammar::kTopics;
    config.padding_token = io::kTextPadding;
    const auto model = models::make_bert(config);
    return capture(*model, {data.gather(std::vector<int64_t>{0, 1}).tokens});
  };
  const std::string last = std::to_string(layers - 1), half = std::to_string(layers / 2 - 1);
  const std::string student_layer = "bert.encoder.layer." + half,
                    teacher_layer = "bert.encoder.layer." + last;
  const std::vector<std::string> losses = {
      "kd:5,T=2", "cosine:1@" + student_layer + "=" + teacher_layer,
      "minilm:1@" + student_layer + ".attention.self=" + teacher_layer + ".attention.self"};
  Table table({"teacher", "half, alone", "half, taught", "of the teacher's, %"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const Captured teacher = make(layers, seed), alone = make(layers / 2, seed + 100),
                   taught = make(layers / 2, seed + 100);
    train_text(*teacher, data, steps, 1e-3);
    train_text(*alone, data, steps, 1e-3);
    distill::init_from(*taught, *teacher, "bert.encoder.layer");
    train_taught(taught, teacher, losses, data, steps, 1e-3);
    const double of_teacher = 100 * score(teacher, test).accuracy, own = 100 * score(taught, test).accuracy;
    table.row(std::to_string(seed),
              {of_teacher, 100 * score(alone, test).accuracy, own, 100 * own / of_teacher});
  }
  table.summary();
}

/// Pre-trained distillation of a small GPT-2: by language modelling alone, and with the teacher's soft labels.
void run_language(Given& words) {
  const int64_t seeds = words.integer("seeds", 3), steps = words.integer("steps", 400),
                layers = words.integer("layers", 4);
  words.expect_all_used();
  const io::TextDataset data = running_text(4000, 64, 3), test = running_text(500, 64, 4);
  const auto make = [&](int64_t depth, int64_t seed) {
    torch::manual_seed(seed);
    models::Gpt2Config config = models::Gpt2Config::tiny();
    config.layers = depth;
    const auto model = models::make_gpt2(config);
    return capture(*model, {data.gather(std::vector<int64_t>{0, 1}).tokens});
  };
  Table table({"teacher, nats", "half, alone", "half, taught"});
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    const Captured teacher = make(layers, seed), alone = make(layers / 2, seed + 100),
                   taught = make(layers / 2, seed + 100);
    train_text(*teacher, data, steps, 1e-3);
    train_text(*alone, data, steps, 1e-3);
    train_taught(taught, teacher, {"kd:T=1,alpha=0.5"}, data, steps, 1e-3);
    table.row(std::to_string(seed),
              {score(teacher, test).loss, score(alone, test).loss, score(taught, test).loss});
  }
  table.summary();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    amp::prepare_training_memory();
    Given words("distill_accuracy", argc, argv);
    const std::string what = argc > 1 ? argv[1] : "";
    if (const int64_t threads = words.integer("threads", 0); threads > 0)
      at::set_num_threads(static_cast<int>(threads));
    if (what == "taught") {
      run_taught(words);
    } else if (what == "mutual") {
      run_mutual(words);
    } else if (what == "withheld") {
      run_withheld(words);
    } else if (what == "binary") {
      run_binary(words);
    } else if (what == "bert") {
      run_bert(words);
    } else if (what == "language") {
      run_language(words);
    } else {
      fail("distill_accuracy", "expected taught, mutual, withheld, binary, bert or language, got '", what,
           "'");
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
