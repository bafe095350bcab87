#include "ulp/app/generate.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

namespace {

constexpr const char* kWhere = "app.generate";
constexpr int64_t kBytes = 256;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Chooses bytes by their logits.
class Sampler {
 public:
  explicit Sampler(const Sampling& options)
      : options_(options), random_(static_cast<uint64_t>(options.seed)) {}

  int64_t choose(const at::Tensor& logits) {
    if (options_.temperature == 0 || !torch::isfinite(logits).all().item<bool>())
      return logits.argmax().item<int64_t>();
    at::Tensor scaled = logits.to(at::kDouble) / options_.temperature;
    if (options_.top_k > 0 && options_.top_k < kBytes) {
      const at::Tensor least = std::get<0>(scaled.topk(options_.top_k)).min();
      scaled = scaled.masked_fill(scaled < least, -std::numeric_limits<double>::infinity());
    }
    const at::Tensor sums = scaled.softmax(0).cumsum(0);
    const double drawn = std::uniform_real_distribution<double>(0, sums[kBytes - 1].item<double>())(random_);
    return std::min<int64_t>((sums <= drawn).sum().item<int64_t>(), kBytes - 1);
  }

 private:
  Sampling options_;
  std::mt19937_64 random_;
};

/// An engine that reads bytes and says the logits of the next one.
class Writer {
 public:
  explicit Writer(const GenerateOptions& options)
      : engine_(options.engine, {.threads = options.threads}), name_(continued_dimension(options.engine)) {
    longest_ = engine_.free()[0].max;
  }

  int64_t longest() const { return longest_; }
  int64_t left() const { return longest_ - engine_.position(); }

  /// The logits behind these bytes, which follow those read before.
  at::Tensor read(const std::string& bytes) {
    const auto count = static_cast<int64_t>(bytes.size());
    engine_.set_sizes({{name_, count}});
    const std::vector<int64_t> read = {runtime::kBatch, count}, said = {runtime::kBatch, count, kBytes};
    if (engine_.inputs()[0].shape != read || engine_.outputs()[0].shape != said)
      fail_file(kWhere, "expected an engine that reads and says so many bytes as the dimension's size, ",
                count);
    std::vector<int64_t> ids;
    for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
    const at::Tensor logits = torch::empty({count, kBytes});
    const std::array<const void*, 1> in = {ids.data()};
    const std::array<void*, 1> out = {logits.mutable_data_ptr()};
    engine_.run(1, in, out);
    return logits[count - 1];
  }

 private:
  /// Refuses engines that do something else.
  std::string continued_dimension(const std::string& path) const {
    const auto &inputs = engine_.inputs(), &outputs = engine_.outputs();
    const bool continued = engine_.free().size() == 1 && engine_.continued() == engine_.free()[0].name;
    if (!continued) {
      fail_file(kWhere,
                "expected an engine whose runs continue each other (ulp lower --continued time), got '", path,
                "'");
    }
    const bool bytes =
        inputs.size() == 1 && inputs[0].type == runtime::DataType::i64 && inputs[0].shape.size() == 2 &&
        outputs.size() == 1 && outputs[0].type == runtime::DataType::f32 && outputs[0].shape.size() == 3 &&
        outputs[0].shape[2] == kBytes && engine_.free()[0].min == 1 && engine_.free()[0].multiple == 1;
    if (!bytes)
      fail_file(kWhere, "expected an engine from ids of bytes to logits of ", kBytes, " bytes, got '", path,
                "'");
    return engine_.continued();
  }

  runtime::Engine engine_;
  std::string name_;
  int64_t longest_ = 0;
};

}  // namespace

void Sampling::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "temperature",
           .help = "Logits are divided by it before the softmax; 0: always the likeliest byte",
           .min = 0,
           .max = 1e6},
          temperature);
  visitor({.name = "top_k", .help = "Only so many of the likeliest bytes; 0: all", .min = 0, .max = kBytes},
          top_k);
  visitor({.name = "seed", .help = "Of the random numbers", .min = 0}, seed);
}

GenerateOutcome generate(const GenerateOptions& options, const std::function<void(char)>& written) {
  if (options.prompt.empty()) fail(kWhere, "expected a prompt of at least one byte, got none");
  Writer writer(options);
  if (static_cast<int64_t>(options.prompt.size()) > writer.longest())
    fail(kWhere, "expected a prompt of at most ", writer.longest(),
         " bytes, the longest text of the engine, got ", options.prompt.size());
  Sampler sampler(options.sampling);
  GenerateOutcome outcome;
  auto start = std::chrono::steady_clock::now();
  at::Tensor logits = writer.read(options.prompt);
  outcome.prompt_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.count; ++i) {
    outcome.text.push_back(static_cast<char>(sampler.choose(logits)));
    written(outcome.text.back());
    if (i + 1 == options.count) break;
    if (writer.left() == 0) {
      outcome.full = true;
      break;
    }
    logits = writer.read(outcome.text.substr(outcome.text.size() - 1));
  }
  const auto steps = static_cast<double>(outcome.text.size()) - 1;
  if (steps > 0) outcome.seconds_per_token = seconds_since(start) / steps;
  return outcome;
}

}  // namespace ulp::app
