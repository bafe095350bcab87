// The next token from logits: probabilities by the definitions, draws by their frequencies, and what is
// refused.
#include "ulp/runtime/decoding/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "error_of.h"

namespace ulp::runtime {
namespace {

using Probabilities = std::vector<double>;

std::vector<float> drawn_logits(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(static_cast<double>(random() % 2000) / 200 - 5);
  return logits;
}

/// By the words of the papers: every step sorts anew, and what is out has probability 0.
Probabilities by_definition(const std::vector<float>& logits, const std::vector<int64_t>& text,
                            const SamplingOptions& options) {
  Probabilities scores(logits.begin(), logits.end());
  for (size_t token = 0; token < scores.size(); ++token) {
    if (std::ranges::count(text, static_cast<int64_t>(token)) == 0) continue;
    scores[token] = scores[token] > 0 ? scores[token] / options.repetition_penalty
                                      : scores[token] * options.repetition_penalty;
  }
  Probabilities weights;
  for (const double score : scores) weights.push_back(std::exp(score / options.temperature));
  const auto rank = [&](size_t i) {
    return std::ranges::count_if(weights, [&](double other) { return other > weights[i]; });
  };
  const Probabilities all = weights;
  for (size_t i = 0; i < weights.size() && options.top_k > 0; ++i) {
    const auto above = std::ranges::count_if(all, [&](double other) { return other > all[i]; });
    if (above >= options.top_k) weights[i] = 0;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const Probabilities before = weights;
  for (size_t i = 0; i < weights.size(); ++i) {
    double likelier = 0;  // equal ones count in their order
    for (size_t j = 0; j < weights.size(); ++j)
      likelier += before[j] > before[i] || (before[j] == before[i] && j < i) ? before[j] / sum : 0;
    if (options.top_p < 1 && likelier >= options.top_p && rank(i) > 0) weights[i] = 0;
  }
  const double largest = std::ranges::max(weights);
  for (double& weight : weights) weight = weight < options.min_p * largest ? 0 : weight;
  const double left = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= left;
  return weights;
}

TEST(Sampler, ProbabilitiesAreThoseOfTheDefinitions) {
  std::mt19937_64 random(7);
  const auto one_of = [&](std::initializer_list<double> items) {
    return items.begin()[random() % items.size()];
  };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const size_t count = 1 + random() % 60;
    const std::vector<float> logits = drawn_logits(count, random());
    std::vector<int64_t> text;
    for (size_t i = 0; i < random() % 8; ++i) text.push_back(static_cast<int64_t>(random() % count));
    const SamplingOptions options{.repetition_penalty = one_of({1, 1.3, 0.7}),
                                  .temperature = one_of({0.2, 0.8, 1, 3}),
                                  .top_k = static_cast<int64_t>(one_of({0, 1, 5, 40, 100})),
                                  .top_p = one_of({1, 0.9, 0.5, 0.01}),
                                  .min_p = one_of({0, 0.1, 0.6, 1})};
    const Probabilities got = Sampler(options).probabilities(logits, text),
                        expected = by_definition(logits, text, options);
    ASSERT_EQ(got.size(), count);
    EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 1, 1e-12);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(got[i], expected[i], 1e-12);
      EXPECT_EQ(got[i] == 0, expected[i] == 0) << i;
    }
  }
}

/// Frequencies of 20,000 draws within five standard deviations.
TEST(Sampler, DrawsAsOftenAsTheProbabilitiesSay) {
  constexpr int kDraws = 20000;
  const std::vector<float> logits = drawn_logits(12, 3);
  for (const SamplingOptions options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.top_k = 4, .seed = 5},
        SamplingOptions{.temperature = 2, .top_p = 0.8}, SamplingOptions{.temperature = 1.5, .min_p = 0.2}}) {
    Sampler sampler(options);
    const Probabilities probabilities = sampler.probabilities(logits);
    std::vector<int> seen(logits.size());
    for (int i = 0; i < kDraws; ++i) ++seen[static_cast<size_t>(sampler.next(logits))];
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = kDraws * probabilities[i];
      EXPECT_NEAR(seen[i], expected, 5 * std::sqrt(expected * (1 - probabilities[i]))) << i;
    }
  }
}

TEST(Sampler, EqualSeedsGiveEqualTexts) {
  const auto text_of = [](int64_t seed) {
    Sampler sampler({.temperature = 1.2, .top_p = 0.95, .seed = seed});
    std::vector<int64_t> text;
    for (uint64_t i = 0; i < 50; ++i) text.push_back(sampler.next(drawn_logits(30, i), text));
    return text;
  };
  EXPECT_EQ(text_of(4), text_of(4));
  EXPECT_NE(text_of(4), text_of(5));
}

TEST(Sampler, TemperatureZeroTakesTheLikeliestAfterThePenalty) {
  const std::vector<float> logits = {1, 3, 3, 2.9F};
  EXPECT_EQ(Sampler({.temperature = 0}).next(logits), 1);
  EXPECT_EQ(Sampler({.repetition_penalty = 1.01, .temperature = 0}).next(logits, std::vector<int64_t>{1}), 2);
  EXPECT_EQ(
      Sampler({.repetition_penalty = 1.1, .temperature = 0}).next(logits, std::vector<int64_t>{1, 2, 1}), 3);
  const std::vector<float> negative = {-1, -1.05F};
  EXPECT_EQ(Sampler({.repetition_penalty = 1.1, .temperature = 0}).next(negative, std::vector<int64_t>{0}),
            1);
  EXPECT_EQ(Sampler({.temperature = 0}).probabilities(logits), (Probabilities{0, 1, 0, 0}));
}

TEST(Sampler, NumbersThatAreNoneAreLeftOut) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const double temperature : {0.0, 1.0}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_EQ(sampler.next(std::vector<float>{nan, 1, 2, nan}), 2);
    EXPECT_EQ(sampler.next(std::vector<float>{1, infinity, 2}), 1);
    EXPECT_EQ(sampler.next(std::vector<float>{-infinity, -3}), 1);
    EXPECT_EQ(sampler.next(std::vector<float>{nan, nan}), 0);
  }
}

TEST(Sampler, RuledOutTokensAreNotDrawnAndTheOthersAre) {
  const float out = -std::numeric_limits<float>::infinity();
  Sampler sampler({.repetition_penalty = 1.5, .temperature = 1});
  std::array<int, 3> drawn = {};
  for (int i = 0; i < 200; ++i)
    ++drawn[static_cast<size_t>(sampler.next(std::vector<float>{1, out, 1}, std::vector<int64_t>{1}))];
  EXPECT_EQ(drawn[1], 0);
  EXPECT_GT(drawn[0], 50);  // 100 on average, the deviation is 7
  EXPECT_GT(drawn[2], 50);
}

TEST(Sampler, SmallestSettingsChooseTheLikeliest) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const std::vector<float> logits = {-1, 2, 5, 5, -3}, negative = {-2, -1};
  EXPECT_EQ(Sampler({.temperature = tiny}).probabilities(logits), (Probabilities{0, 0, 0.5, 0.5, 0}));
  EXPECT_EQ(Sampler({.temperature = tiny, .top_k = 1, .top_p = tiny}).next(logits), 2);
  EXPECT_EQ(Sampler({.temperature = tiny}).next(negative), 1);
  const std::vector<int64_t> text = {1};
  const SamplingOptions repeats{.repetition_penalty = tiny, .temperature = 1};  // 2 / tiny is no double
  EXPECT_EQ(Sampler(repeats).probabilities(logits, text), (Probabilities{0, 1, 0, 0, 0}));
  EXPECT_EQ(Sampler(repeats).next(logits, text), 1);
}

TEST(Sampler, RefusesWhatItCannotDo) {
  const auto refused = [](const SamplingOptions& options) {
    return test::error_of([&] { Sampler sampler(options); });
  };
  const double nan = std::nan("");
  EXPECT_SAYS(refused({.repetition_penalty = 0}), "expected repetition_penalty above 0, at most 1e6, got 0");
  EXPECT_SAYS(refused({.temperature = -1}), "expected temperature from 0 to 1e6, got -1");
  EXPECT_SAYS(refused({.temperature = nan}), "expected temperature");
  EXPECT_SAYS(refused({.top_k = -1}), "expected top_k from 0 on, got -1");
  EXPECT_SAYS(refused({.top_p = 0}), "expected top_p above 0, at most 1, got 0");
  EXPECT_SAYS(refused({.min_p = 1.5}), "expected min_p from 0 to 1, got 1.5");
  EXPECT_SAYS(refused({.seed = -1}), "expected seed from 0 on, got -1");
  EXPECT_ERROR(Sampler({}).next({}), "expected logits, got none");
  EXPECT_ERROR(Sampler({.repetition_penalty = 2}).next(std::vector<float>{1, 2}, std::vector<int64_t>{2}),
               "expected tokens of the text from 0 to 1, got 2");
}

}  // namespace
}  // namespace ulp::runtime
