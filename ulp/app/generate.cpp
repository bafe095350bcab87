#include "ulp/app/generate.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <span>
#include <vector>

#include "ulp/app/inference_model.h"
#include "ulp/app/model_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/seconds_since.h"
#include "ulp/io/text_dataset.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

namespace {

constexpr const char* kGenerateWhere = "app.generate";
/// Chooses tokens by their logits.
class Sampler {
 public:
  explicit Sampler(const Sampling& options)
      : options_(options), random_(static_cast<uint64_t>(options.seed)) {}

  int64_t choose(const at::Tensor& logits) {
    if (options_.temperature == 0 || !torch::isfinite(logits).all().item<bool>())
      return logits.argmax().item<int64_t>();
    at::Tensor scaled = logits.to(at::kDouble) / options_.temperature;
    const int64_t count = logits.numel();
    if (options_.top_k > 0 && options_.top_k < count) {
      const at::Tensor least = std::get<0>(scaled.topk(options_.top_k)).min();
      scaled = scaled.masked_fill(scaled < least, -std::numeric_limits<double>::infinity());
    }
    const at::Tensor sums = scaled.softmax(0).cumsum(0);
    const double drawn = std::uniform_real_distribution<double>(0, sums[count - 1].item<double>())(random_);
    return std::min<int64_t>((sums <= drawn).sum().item<int64_t>(), count - 1);
  }

 private:
  Sampling options_;
  std::mt19937_64 random_;
};

/// What texts and ids are to each other: bytes, or the tokens of a tokenizer.
class Alphabet {
 public:
  /// The plan's tokenizer, or the one that was asked for where it has none.
  Alphabet(const GenerateOptions& options, const runtime::Plan& plan) {
    const auto found = plan.metadata.find(kModelSpecKey);
    ModelSpec spec, given;
    if (found != plan.metadata.end()) spec = ModelSpec::from_json(found->second);
    tokenizer_ = spec.tokenizer;
    if (options.tokenizer.empty()) return;
    given.tokenizer = std::make_shared<const io::Tokenizer>(io::Tokenizer::load(options.tokenizer));
    if (!same_tokens(spec, given))
      fail_file(kGenerateWhere,
                "expected the tokenizer that the model was trained with and holds, got another one in '",
                options.tokenizer, "'");
    tokenizer_ = given.tokenizer;
  }

  int64_t size() const { return tokenizer_ ? tokenizer_->vocab_size() : io::kByteVocabulary; }
  const char* unit() const { return tokenizer_ ? "tokens" : "bytes"; }

  std::vector<int64_t> ids(const std::string& text) const {
    if (tokenizer_) return tokenizer_->encode(text, /*special=*/false).ids;
    std::vector<int64_t> ids;
    for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
    return ids;
  }

  std::string text(std::span<const int64_t> ids) const {
    if (tokenizer_) return tokenizer_->decode(ids);
    std::string text;
    for (const int64_t id : ids) text.push_back(static_cast<char>(id));
    return text;
  }

  /// How much of a text is not yet to be shown: characters at its end whose bytes have not all come.
  size_t unfinished(const std::string& text) const {
    constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
    size_t end = text.size();
    while (tokenizer_ && std::string_view(text).substr(0, end).ends_with(kReplacement))
      end -= kReplacement.size();
    return text.size() - end;
  }

 private:
  std::shared_ptr<const io::Tokenizer> tokenizer_;
};

/// An engine that reads tokens and says the logits of the next one.
class TextWriter {
 public:
  TextWriter(const GenerateOptions& options, const runtime::Plan& plan, const Alphabet& alphabet)
      : engine_(plan, {.threads = options.threads}),
        name_(continued_dimension(options.engine, alphabet)),
        vocabulary_(alphabet.size()) {
    longest_ = engine_.free()[0].max;
  }

  int64_t longest() const { return longest_; }
  int64_t left() const { return longest_ - engine_.position(); }

  /// The logits behind these tokens, which follow those read before.
  at::Tensor read(std::span<const int64_t> ids) {
    const auto count = static_cast<int64_t>(ids.size());
    engine_.set_sizes({{name_, count}});
    const std::vector<int64_t> read = {runtime::kBatch, count}, said = {runtime::kBatch, count, vocabulary_};
    if (engine_.inputs()[0].shape != read || engine_.outputs()[0].shape != said)
      fail_file(kGenerateWhere,
                "expected an engine that reads and says so many tokens as the dimension's size, ", count);
    const at::Tensor logits = torch::empty({count, vocabulary_});
    const std::array<const void*, 1> in = {ids.data()};
    const std::array<void*, 1> out = {logits.mutable_data_ptr()};
    engine_.run(1, in, out);
    return logits[count - 1];
  }

 private:
  /// Refuses engines that do something else.
  std::string continued_dimension(const std::string& path, const Alphabet& alphabet) const {
    const auto &inputs = engine_.inputs(), &outputs = engine_.outputs();
    const bool continued =
        engine_.free().size() == 1 && engine_.decoding_dimension() == engine_.free()[0].name;
    if (!continued) {
      fail_file(kGenerateWhere,
                "expected an engine whose runs continue each other (ulp lower --continued time), got '", path,
                "'");
    }
    const bool tokens = inputs.size() == 1 && inputs[0].type == runtime::DataType::i64 &&
                        inputs[0].shape.size() == 2 && outputs.size() == 1 &&
                        outputs[0].type == runtime::DataType::f32 && outputs[0].shape.size() == 3 &&
                        engine_.free()[0].min == 1 && engine_.free()[0].multiple == 1;
    const int64_t said = tokens ? outputs[0].shape[2] : 0;
    if (!tokens || said != alphabet.size()) {
      fail_file(kGenerateWhere, "expected an engine from ids of ", alphabet.unit(), " to logits of ",
                alphabet.size(), ' ', alphabet.unit(), ", got '", path, "'",
                tokens ? " with " + std::to_string(said) : "",
                tokens && said > alphabet.size() ? "; --tokenizer names the file of its tokens" : "");
    }
    return engine_.decoding_dimension();
  }

  runtime::Engine engine_;
  std::string name_;
  int64_t vocabulary_ = 0, longest_ = 0;
};

}  // namespace

void Sampling::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "temperature",
           .help = "Logits are divided by it before the softmax; 0: always the likeliest token",
           .min = 0,
           .max = 1e6},
          temperature);
  visitor({.name = "top_k", .help = "Only so many of the likeliest tokens; 0: all", .min = 0}, top_k);
  visitor({.name = "seed", .help = "Of the random numbers", .min = 0}, seed);
}

GenerateOutcome generate(const GenerateOptions& options,
                         const std::function<void(std::string_view)>& written) {
  if (!is_engine_file(options.engine))
    fail_file(kGenerateWhere, "expected an engine file (ulp lower --continued time), got '", options.engine,
              "', which is none");
  const runtime::Plan plan = runtime::Plan::load(options.engine);
  const Alphabet alphabet(options, plan);
  std::vector<int64_t> ids = alphabet.ids(options.prompt);
  if (ids.empty()) fail(kGenerateWhere, "expected a prompt of at least one token, got none");
  TextWriter writer(options, plan, alphabet);
  if (static_cast<int64_t>(ids.size()) > writer.longest())
    fail(kGenerateWhere, "expected a prompt of at most ", writer.longest(), ' ', alphabet.unit(),
         ", the longest text of the engine, got ", ids.size());
  Sampler sampler(options.sampling);
  GenerateOutcome outcome;
  auto start = std::chrono::steady_clock::now();
  at::Tensor logits = writer.read(ids);
  outcome.prompt_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  const size_t prompt = alphabet.text(ids).size();
  const auto show = [&](const std::string& text, size_t end) {
    const size_t shown = prompt + outcome.text.size();
    if (end <= shown) return;
    outcome.text += text.substr(shown, end - shown);
    written(std::string_view(text).substr(shown, end - shown));
  };
  int64_t steps = 0;
  for (; steps < options.count; ++steps) {
    ids.push_back(sampler.choose(logits));
    const std::string text = alphabet.text(ids);
    show(text, text.size() - alphabet.unfinished(text));
    if (steps + 1 == options.count) break;
    if (writer.left() == 0) {
      outcome.full = true;
      break;
    }
    logits = writer.read(std::span(ids).last(1));
  }
  const std::string text = alphabet.text(ids);
  show(text, text.size());
  if (steps > 0) outcome.seconds_per_token = seconds_since(start) / static_cast<double>(steps);
  return outcome;
}

}  // namespace ulp::app
