#include "ulp/runtime/decoding/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"

namespace ulp::runtime {

namespace {

constexpr const char* kSamplerWhere = "runtime.Sampler";
constexpr double kRuledOut = -std::numeric_limits<double>::infinity();

/// The first of the largest numbers; 0 where none is one.
int64_t likeliest(std::span<const double> logits) {
  size_t best = 0;
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (any && logits[i] <= logits[best])) continue;
    best = i;
    any = true;
  }
  return static_cast<int64_t>(best);
}

/// Rules out all but the k largest and those that equal the last of them.
void keep_top_k(std::vector<double>& logits, int64_t k) {
  if (k <= 0 || k >= static_cast<int64_t>(logits.size())) return;
  std::vector<double> sorted = logits;
  const auto least = sorted.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::ranges::nth_element(sorted, least, std::greater<>());
  for (double& logit : logits) logit = logit < *least ? kRuledOut : logit;
}

/// Differences are divided by the temperature, as logits over a tiny one are infinite.
void softmax(std::vector<double>& logits, double temperature) {
  const double largest = std::ranges::max(logits);
  double sum = 0;
  for (double& logit : logits) sum += logit = std::exp((logit - largest) / temperature);
  for (double& logit : logits) logit /= sum;
}

/// Keeps the likeliest tokens whose probabilities together reach p, of equal ones the first. The others have
/// 0 then.
void keep_top_p(std::vector<double>& probabilities, double p) {
  if (p >= 1) return;
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return probabilities[i]; });
  double before = 0;
  for (const size_t i : order) {
    const double own = probabilities[i];
    if (before >= p && before > 0) probabilities[i] = 0;
    before += own;
  }
}

void keep_min_p(std::vector<double>& probabilities, double share) {
  const double least = share * std::ranges::max(probabilities);
  for (double& one : probabilities) one = one < least ? 0 : one;
}

}  // namespace

void SamplingOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "temperature",
           .help = "Logits are divided by it before the softmax; 0: always the likeliest token",
           .min = 0,
           .max = 1e6},
          temperature);
  visitor({.name = "top_k", .help = "Only so many of the likeliest tokens; 0: all", .min = 0}, top_k);
  visitor({.name = "top_p",
           .help = "Only the likeliest tokens whose probabilities together reach it; 1: all",
           .min = 0,
           .max = 1,
           .above_min = true},
          top_p);
  visitor({.name = "min_p",
           .help = "Only tokens of at least this share of the likeliest one's probability; 0: all",
           .min = 0,
           .max = 1},
          min_p);
  visitor({.name = "repetition_penalty",
           .help = "Logits of tokens that the text has are divided by it, negative ones multiplied; 1: none",
           .min = 0,
           .max = 1e6,
           .above_min = true},
          repetition_penalty);
  visitor({.name = "seed", .help = "Of the random numbers", .min = 0}, seed);
}

void SamplingOptions::check(const char* where) const {
  const auto expect = [&](bool holds, const char* name, const char* range, double got) {
    if (!holds) fail(ErrorCode::bad_option, where, "expected ", name, " ", range, ", got ", got);
  };
  expect(repetition_penalty > 0 && repetition_penalty <= 1e6, "repetition_penalty", "above 0, at most 1e6",
         repetition_penalty);
  expect(temperature >= 0 && temperature <= 1e6, "temperature", "from 0 to 1e6", temperature);
  expect(top_k >= 0, "top_k", "from 0 on", static_cast<double>(top_k));
  expect(top_p > 0 && top_p <= 1, "top_p", "above 0, at most 1", top_p);
  expect(min_p >= 0 && min_p <= 1, "min_p", "from 0 to 1", min_p);
  expect(seed >= 0, "seed", "from 0 on", static_cast<double>(seed));
}

Sampler::Sampler(const SamplingOptions& options)
    : options_((options.check(kSamplerWhere), options)), random_(static_cast<uint64_t>(options.seed)) {}

std::vector<double> Sampler::penalized(std::span<const float> logits, std::span<const int64_t> text) const {
  if (logits.empty()) fail(ErrorCode::bad_shape, kSamplerWhere, "expected logits, got none");
  std::vector<double> scores(logits.begin(), logits.end());
  if (options_.repetition_penalty == 1) return scores;
  for (const int64_t token : text) {
    if (token < 0 || token >= static_cast<int64_t>(logits.size()))
      fail(ErrorCode::bad_option, kSamplerWhere, "expected tokens of the text from 0 to ", logits.size() - 1,
           ", got ", token);
    const double own = logits[static_cast<size_t>(token)];  // once, however often the text has it
    const double penalized = own > 0 ? own / options_.repetition_penalty : own * options_.repetition_penalty;
    scores[static_cast<size_t>(token)] =
        std::isinf(own) ? own : std::min(penalized, std::numeric_limits<double>::max());
  }
  return scores;
}

std::vector<double> Sampler::probabilities(std::span<const float> logits,
                                           std::span<const int64_t> text) const {
  std::vector<double> scores = penalized(logits, text);
  if (options_.temperature == 0) {
    std::vector<double> one(scores.size(), 0);
    one[static_cast<size_t>(likeliest(scores))] = 1;
    return one;
  }
  keep_top_k(scores, options_.top_k);
  softmax(scores, options_.temperature);
  keep_top_p(scores, options_.top_p);
  keep_min_p(scores, options_.min_p);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= sum;
  return scores;
}

int64_t Sampler::next(std::span<const float> logits, std::span<const int64_t> text) {
  const auto is_score = [](float logit) { return logit < std::numeric_limits<float>::infinity(); };
  const bool can_draw = std::ranges::all_of(logits, is_score) &&
                        std::ranges::any_of(logits, [](float logit) { return std::isfinite(logit); });
  if (options_.temperature == 0 || !can_draw) return likeliest(penalized(logits, text));
  std::vector<double> sums = probabilities(logits, text);
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  const double drawn = std::uniform_real_distribution<double>(0, sums.back())(random_);
  const auto at = std::ranges::upper_bound(sums, drawn);
  // Rounding may put the number at the end: the last token that is possible.
  const auto end = std::ranges::lower_bound(sums, sums.back());
  return std::min(at, end) - sums.begin();
}

}  // namespace ulp::runtime
