// Small networks trained on generated text for a few seconds, and what quantizing them costs: shared by a
// quick test and bench/text_accuracy.
#pragma once

#include <torch/torch.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/capture/capture.h"
#include "ulp/io/text_dataset.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/text_model.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

/// Sentences of a small grammar: the verb agrees with its subject in number across what stands between them,
/// and words belong to four topics.
class Grammar {
 public:
  explicit Grammar(uint64_t seed) : state_(seed * 2654435761U + 88172645463325252ULL) {}

  static constexpr int64_t kTopics = 4;

  /// One sentence. Nouns are of the topic, but for one in five.
  std::string sentence(int64_t topic) {
    const bool plural = chance(50);
    std::string text = "the ";
    text.append(pick(kAdjectives)).append(" ").append(noun(topic)).append(plural ? "s" : "");
    if (chance(50)) text.append(" near the ").append(noun(topic)).append(chance(50) ? "s" : "");
    text.append(" ").append(pick(kVerbs)).append(plural ? "" : "s").append(" the ");
    if (chance(40)) text.append(pick(kAdjectives)).append(" ");
    return text.append(noun(topic)).append(". ");
  }
  int64_t below(int64_t bound) { return static_cast<int64_t>(next() % static_cast<uint64_t>(bound)); }

 private:
  using Words = std::array<const char*, 6>;
  static constexpr Words kAdjectives = {"small", "old", "bright", "quiet", "heavy", "strange"};
  static constexpr Words kVerbs = {"follow", "see", "hear", "pass", "meet", "find"};
  static constexpr std::array<Words, kTopics> kNouns = {
      {{"boat", "river", "sailor", "wave", "harbor", "net"},
       {"engine", "driver", "road", "wheel", "bridge", "lamp"},
       {"doctor", "patient", "ward", "nurse", "letter", "bed"},
       {"farmer", "field", "plow", "barn", "seed", "hen"}}};

  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  bool chance(int64_t percent) { return below(100) < percent; }
  const char* pick(const Words& words) { return words[static_cast<size_t>(below(6))]; }
  const char* noun(int64_t topic) {
    return pick(kNouns[static_cast<size_t>(chance(20) ? below(kTopics) : topic)]);
  }
  uint64_t state_;
};

/// Windows of running text: the next byte is to be predicted.
inline io::TextDataset running_text(int64_t windows, int64_t length, uint64_t seed) {
  Grammar grammar(seed);
  std::string text;
  while (static_cast<int64_t>(text.size()) < windows * (length + 1)) {
    text += grammar.sentence(grammar.below(Grammar::kTopics));
  }
  io::TextDataset data;
  data.tokens = torch::from_blob(text.data(), {windows, length + 1}, torch::kByte).clone();
  return data;
}

/// Sentences cut to `length` bytes or padded, labelled with their topic.
inline io::TextDataset labelled_sentences(int64_t count, int64_t length, uint64_t seed) {
  Grammar grammar(seed);
  io::TextDataset data;
  data.tokens = torch::full({count, length}, io::kTextPadding, torch::kByte);
  data.labels = torch::empty({count}, torch::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t topic = grammar.below(Grammar::kTopics);
    const std::string text = grammar.sentence(topic);
    const int64_t kept = std::min<int64_t>(length, static_cast<int64_t>(text.size()));
    std::copy_n(text.data(), kept, data.tokens[i].mutable_data_ptr<uint8_t>());
    data.labels[i] = topic;
  }
  return data;
}

/// Adam on random batches of 32. `Model`: a module that makes logits of tokens.
template <typename Model>
void train_text(Model& model, const io::TextDataset& data, int64_t steps, double rate) {
  model.train();
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(rate));
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor index = torch::randint(data.size(), {32}, torch::kLong);
    const io::TextBatch batch = data.gather({index.const_data_ptr<int64_t>(), 32});
    const at::Tensor logits = model.forward(batch.tokens);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(logits.flatten(0, -2), batch.targets.flatten()).backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
  }
  model.eval();
}

/// Mean cross-entropy in nats and share of right answers, over bytes or texts.
struct TextScore {
  double loss = 0, accuracy = 0;
};

inline TextScore score_text(const std::function<at::Tensor(const at::Tensor&)>& forward,
                            const io::TextDataset& data) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> all(static_cast<size_t>(data.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const io::TextBatch batch = data.gather(all);
  const at::Tensor logits = forward(batch.tokens).flatten(0, -2), targets = batch.targets.flatten();
  return {torch::nn::functional::cross_entropy(logits, targets).item<double>(),
          logits.argmax(1).eq(targets).to(torch::kDouble).mean().item<double>()};
}

/// The score of the captured network quantized statically, calibrated on the first texts of `seen`, in an engine.
inline TextScore score_static(const std::shared_ptr<graph::GraphModule>& captured,
                              const quant::Recipe& recipe, const io::TextDataset& seen,
                              const io::TextDataset& test) {
  const torch::NoGradGuard no_grad;
  const auto prepared = quant::prepare(captured, recipe);
  for (int64_t batch = 0; batch < 8; ++batch) {
    std::vector<int64_t> texts(32);
    for (size_t i = 0; i < texts.size(); ++i) texts[i] = 32 * batch + static_cast<int64_t>(i);
    prepared->forward(seen.gather(texts).tokens);
  }
  runtime::Engine engine(lower(*quant::convert(prepared)), {.threads = 1});
  return score_text([&](const at::Tensor& tokens) { return run_engine(engine, tokens, 64); }, test);
}

/// One trained network in three forms.
struct TextProof {
  TextScore libtorch, engine, dynamic;
  double file_f32 = 0, file_int8 = 0;  ///< bytes of constants
};

inline TextProof prove_text(const std::shared_ptr<models::TextModel>& model, const io::TextDataset& test) {
  const torch::NoGradGuard no_grad;
  const auto captured = capture(model, {test.gather(std::vector<int64_t>{0, 1}).tokens});
  captured->eval();
  const runtime::Plan f32 = lower(*captured), int8 = lower(*quant::quantize_dynamic(captured));
  const auto by_engine = [&](const runtime::Plan& plan) {
    runtime::Engine engine(plan, {.threads = 1});
    return score_text([&](const at::Tensor& tokens) { return run_engine(engine, tokens, 64); }, test);
  };
  const auto bytes = [](const runtime::Plan& plan) {
    double sum = 0;
    for (const auto& [name, constant] : plan.constants) sum += static_cast<double>(constant.bytes.size());
    return sum;
  };
  return {score_text([&](const at::Tensor& tokens) { return model->forward(tokens); }, test), by_engine(f32),
          by_engine(int8), bytes(f32), bytes(int8)};
}

}  // namespace ulp::test
