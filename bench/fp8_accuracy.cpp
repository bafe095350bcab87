// What training in fp8 costs in accuracy, and what its emulation costs in time. Prints Markdown rows; each command is one row
// of the notes (bench/notes/fp8.md).
//
//   fp8_accuracy images precision=fp8:delayed seeds=3 images=10000 epochs=6     resnet20 on Fashion-MNIST
//   fp8_accuracy bert precision=fp8:delayed seeds=3 steps=400                   topics of generated sentences
//   fp8_accuracy gpt2 precision=fp8:delayed seeds=3 steps=400                   the next byte of generated text
//   fp8_accuracy speed network=gpt2 steps=10                                    seconds a step, every precision in turn
//
// Other words: threads (1), batch, lr, model (of images). Seeds choose weights and order; data are the same.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "bench/words.h"
#include "tests/train/text_proof.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/base/error.h"
#include "ulp/io/dataset.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/registry.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/trainer.h"

namespace {

using namespace ulp;
using namespace ulp::test;
using bench::Given;

/// A network, what it learns from and what it is tested with.
struct Job {
  std::shared_ptr<torch::nn::Module> model;
  train::Forward forward;
  std::function<std::unique_ptr<train::BatchStream>(const train::StreamOptions&)> training = {}, test = {};
  train::TrainOptions options = {};
  bool perplexity = false;
};

std::unique_ptr<train::BatchStream> text_stream(const io::TextDataset& data,
                                                const train::StreamOptions& options) {
  return train::sample_stream(
      data.size(),
      [data](std::span<const int64_t> samples) {
        const io::TextBatch batch = data.gather(samples);
        return train::TaskBatch{batch.tokens, batch.targets};
      },
      options);
}

Job text_job(const std::shared_ptr<models::TextModel>& model, const io::TextDataset& data,
             const io::TextDataset& test) {
  Job job{.model = model, .forward = [model](const train::TaskBatch& b) { return model->forward(b.inputs); }};
  job.training = [data](const train::StreamOptions& options) { return text_stream(data, options); };
  job.test = [test](const train::StreamOptions& options) { return text_stream(test, options); };
  job.options.optimizer = train::Optimizer::adamw;
  job.options.learning_rate = 1e-3;
  job.options.batch = 32;
  job.options.max_steps = 400;
  job.options.epochs = 1;
  return job;
}

Job bert_job() {
  models::BertConfig config = models::BertConfig::tiny();
  config.num_classes = Grammar::kTopics;
  config.padding_token = io::kTextPadding;
  return text_job(models::make_bert(config), labelled_sentences(20000, 64, 3),
                  labelled_sentences(4000, 64, 4));
}

Job gpt2_job() {
  Job job = text_job(models::make_gpt2(models::Gpt2Config::tiny()), running_text(20000, 64, 1),
                     running_text(1000, 64, 2));
  job.perplexity = true;
  return job;
}

Job image_job(Given& words) {
  const io::ImageDataset all = io::load_fashion_mnist(io::Split::train),
                         test = io::load_fashion_mnist(io::Split::test);
  const io::ImageDataset data = io::slice(all, 0, std::min(words.integer("images", 10000), all.size()));
  const auto model = models::make_model(words.text("model", "resnet20"), {1, 10, 28});
  models::to_channels_last(*model);
  Job job{.model = model, .forward = [model](const train::TaskBatch& b) { return model->forward(b.inputs); }};
  job.training = [data](const train::StreamOptions& options) { return train::image_stream(data, options); };
  job.test = [test](const train::StreamOptions& options) { return train::image_stream(test, options); };
  job.options.epochs = words.integer("epochs", 6);
  return job;
}

Job job_of(const std::string& network, Given& words, int64_t seed) {
  torch::manual_seed(seed);
  Job job = network == "images" ? image_job(words) : network == "bert" ? bert_job() : gpt2_job();
  job.options.seed = static_cast<uint64_t>(seed);
  job.options.batch = words.integer("batch", job.options.batch);
  job.options.max_steps = words.integer("steps", job.options.max_steps);
  job.options.learning_rate = words.number("lr", job.options.peak_rate());
  return job;
}

train::Trainer trainer_of(const Job& job) {
  const auto training =
      train::StreamOptions::training(job.options.batch, job.options.seed, job.options.augment);
  return {{.model = job.model, .forward = job.forward, .batches = job.training(training)}, job.options};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run_accuracy(const std::string& network, Given& words) {
  const std::string precision = words.text("precision", "bf16");
  const int64_t seeds = words.integer("seeds", 3);
  std::vector<double> scores;
  std::printf("| %s | %s |", network.c_str(), precision.c_str());
  double seconds = 0;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    Job job = job_of(network, words, seed);
    words.expect_all_used();
    job.options.precision = precision;
    train::Trainer trainer = trainer_of(job);
    const auto begin = std::chrono::steady_clock::now();
    while (!trainer.done()) trainer.step();
    seconds += seconds_since(begin) / static_cast<double>(trainer.total_steps()) / static_cast<double>(seeds);
    job.model->eval();
    const auto test = job.test({.batch = 250});
    const train::Accuracy accuracy = train::evaluate(job.forward, *test);
    scores.push_back(job.perplexity ? accuracy.perplexity() : accuracy.percent());
    std::printf(" %.4f |", scores.back());
    std::fflush(stdout);
  }
  double mean = 0;
  for (const double score : scores) mean += score / static_cast<double>(scores.size());
  std::printf(" %.4f | %.3f s |\n", mean, seconds);
}

void run_speed(Given& words) {
  const std::string network = words.text("network", "gpt2");
  const int64_t steps = words.integer("steps", 10);
  std::printf("| %s | seconds a step | against bf16 |\n|---|---:|---:|\n", network.c_str());
  double bf16 = 0;
  for (const char* precision :
       {"bf16", "fp32", "fp8:delayed", "fp8:current", "fp8:rowwise", "fp8:block", "mxfp8", "nvfp4"}) {
    Job job = job_of(network, words, 1);
    words.expect_all_used();
    job.options.precision = precision;
    train::Trainer trainer = trainer_of(job);
    trainer.step();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) trainer.step();
    const double each = seconds_since(begin) / static_cast<double>(steps);
    if (bf16 == 0) bf16 = each;
    std::printf("| %s | %.4f | %.2f |\n", precision, each, each / bf16);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    amp::prepare_training_memory();
    Given words("fp8_accuracy", argc, argv);
    at::set_num_threads(static_cast<int>(words.integer("threads", 1)));
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "speed") {
      run_speed(words);
    } else if (what == "images" || what == "bert" || what == "gpt2") {
      run_accuracy(what, words);
    } else {
      fail("fp8_accuracy", "expected images, bert, gpt2 or speed, got '", what, "'");
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
