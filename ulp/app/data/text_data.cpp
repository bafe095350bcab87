// Text as data: bytes or tokens to predict, and labelled lines.
#include <torch/types.h>

#include "ulp/app/data/data_forms.h"
#include "ulp/base/error.h"
#include "ulp/io/text_dataset.h"

namespace ulp::app {

namespace {

/// Batches of these samples of the texts.
std::unique_ptr<train::BatchStream> text_stream(const io::TextDataset& texts, const at::Tensor& samples,
                                                const train::StreamOptions& options) {
  const auto gather = [texts, samples](std::span<const int64_t> places) {
    std::vector<int64_t> chosen;
    for (int64_t place : places) chosen.push_back(samples.const_data_ptr<int64_t>()[place]);
    io::TextBatch batch = texts.gather(chosen);
    return train::TaskBatch{std::move(batch.tokens), std::move(batch.targets)};
  };
  return train::sample_stream(samples.numel(), gather, options);
}

}  // namespace

TaskData language_data(const std::filesystem::path& path, int64_t length, const TokenizerPointer& tokenizer) {
  const io::TextDataset windows = io::load_text(path, length, /*stride=*/0, tokenizer.get());
  const int64_t test = windows.size() / kHoldout;
  if (test < 1) {
    fail_file("app.load_data", "expected a text of at least ", kHoldout, " windows of ", length,
              tokenizer ? " tokens, got " : " bytes, got ", windows.size(), " in '", path.string(),
              "'; a smaller length may help");
  }
  const at::Tensor samples = torch::arange(windows.size(), torch::kLong);
  TaskData data{.spec = {.kind = NetworkKind::language, .max_length = length, .tokenizer = tokenizer},
                .unit = "window",
                .stream = {}};
  data.spec.num_classes = data.spec.vocab_size();
  data.stream = [=](io::Split split, const train::StreamOptions& options) {
    const int64_t border = windows.size() - test;
    const bool train = split == io::Split::train;
    return text_stream(windows, train ? samples.slice(0, 0, border) : samples.slice(0, border), options);
  };
  return data;
}

TaskData labelled_text_data(const std::filesystem::path& path, int64_t length, const ModelSpec* model,
                            const TokenizerPointer& tokenizer) {
  const io::TextDataset texts = io::load_labelled_text(
      path, length, model ? model->class_names : std::vector<std::string>{}, tokenizer.get());
  if (texts.size() < kHoldout) {
    fail_file("app.load_data", "expected at least ", kHoldout, " labelled lines in '", path.string(),
              "', got ", texts.size());
  }
  TaskData data{.spec = {.kind = NetworkKind::text,
                         .num_classes = static_cast<int64_t>(texts.class_names.size()),
                         .max_length = length,
                         .class_names = texts.class_names,
                         .tokenizer = tokenizer},
                .unit = "line",
                .stream = {}};
  data.stream = [=](io::Split split, const train::StreamOptions& options) {
    return text_stream(texts, holdout(texts.size(), split), options);
  };
  return data;
}

}  // namespace ulp::app
