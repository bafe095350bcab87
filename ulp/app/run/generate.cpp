#include "ulp/app/run/generate.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "ulp/app/model_io/inference_model.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/base/error.h"
#include "ulp/base/seconds_since.h"
#include "ulp/io/text_dataset.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

namespace {

constexpr const char* kGenerateWhere = "app.generate";

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

  /// The logits behind these tokens, which follow those read before. Valid until the next call.
  std::span<const float> read(std::span<const int64_t> ids) {
    const auto count = static_cast<int64_t>(ids.size());
    engine_.set_sizes({{name_, count}});
    const std::vector<int64_t> read = {runtime::kBatch, count}, said = {runtime::kBatch, count, vocabulary_};
    if (engine_.inputs()[0].shape != read || engine_.outputs()[0].shape != said)
      fail_file(kGenerateWhere,
                "expected an engine that reads and says so many tokens as the dimension's size, ", count);
    logits_.resize(static_cast<size_t>(count * vocabulary_));
    const std::array<const void*, 1> in = {ids.data()};
    const std::array<void*, 1> out = {logits_.data()};
    engine_.run(1, in, out);
    return std::span<const float>(logits_).last(static_cast<size_t>(vocabulary_));
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
  std::vector<float> logits_;
};

/// Texts that end another one.
class StopTexts {
 public:
  explicit StopTexts(const std::vector<std::string>& texts) : texts_(texts) {
    for (const std::string& text : texts) {
      if (text.empty()) fail(ErrorCode::bad_option, kGenerateWhere, "expected stop texts that are not empty");
    }
  }

  /// Where the first of them begins from `start` on, and which it is; nothing for none.
  std::optional<std::pair<size_t, std::string>> found(const std::string& text, size_t start) const {
    std::optional<std::pair<size_t, std::string>> first;
    for (const std::string& one : texts_) {
      const size_t at = text.find(one, start);
      if (at != std::string::npos && (!first || at < first->first)) first = {at, one};
    }
    return first;
  }

  /// How many bytes at the end may begin one of them: they are not yet shown.
  size_t begun(const std::string& text, size_t start) const {
    size_t most = 0;
    for (const std::string& one : texts_) {
      for (size_t count = std::min(one.size() - 1, text.size() - start); count > most; --count) {
        if (text.ends_with(std::string_view(one).substr(0, count))) most = count;
      }
    }
    return most;
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace

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
  runtime::Sampler sampler(options.sampling);
  const StopTexts stops(options.stop);
  GenerateOutcome outcome;
  auto start = std::chrono::steady_clock::now();
  std::span<const float> logits = writer.read(ids);
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
    ids.push_back(sampler.next(logits, ids));
    const std::string text = alphabet.text(ids);
    if (const auto stop = stops.found(text, prompt)) {
      show(text, stop->first);
      outcome.stopped = stop->second;
      break;
    }
    show(text, text.size() - std::max(alphabet.unfinished(text), stops.begun(text, prompt)));
    if (steps + 1 == options.count) break;
    if (writer.left() == 0) {
      outcome.full = true;
      break;
    }
    logits = writer.read(std::span(ids).last(1));
  }
  if (const std::string text = alphabet.text(ids); outcome.stopped.empty()) show(text, text.size());
  if (steps > 0) outcome.seconds_per_token = seconds_since(start) / static_cast<double>(steps);
  return outcome;
}

}  // namespace ulp::app
