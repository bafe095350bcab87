// The next token of a text from the logits of a language model, for programs without LibTorch.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;

namespace runtime {

/// How the next token is chosen. The steps come in the order of the fields, as in transformers' generation.
struct ULP_API SamplingOptions {
  /// A positive logit of a token that the text has is divided by it, another one multiplied (Keskar et al.
  /// 2019, arXiv:1909.05858); 1: none. Above 1 repeats become less likely.
  double repetition_penalty = 1;
  /// Logits are divided by it before the softmax (Ackley et al. 1985); 0: always the likeliest token.
  double temperature = 0.8;
  int64_t top_k =
      0;  ///< only the k likeliest tokens and those as likely as the last of them (Fan et al. 2018); 0: all
  /// Only the likeliest tokens whose probabilities together reach it, at least one (Holtzman et al. 2019,
  /// arXiv:1904.09751); 1: all.
  double top_p = 1;
  /// Only tokens of at least this share of the likeliest one's probability (Nguyen et al. 2024,
  /// arXiv:2407.01082); 0: all.
  double min_p = 0;
  int64_t seed = 0;

  void visit_fields(FieldVisitor& visitor);
  /// Throws ulp::Error (bad_option) naming the first field that is out of its range.
  void check(const char* where) const;
};

/// Chooses tokens, one after the other. Equal options, logits and texts give equal tokens. For one thread at
/// a time.
class ULP_API Sampler {
 public:
  /// Throws ulp::Error as SamplingOptions::check() does.
  explicit Sampler(const SamplingOptions& options);

  /// The next token: an index into `logits`. `text`: the tokens so far, which the repetition penalty reads. A logit of
  /// -infinity is never drawn. Where one is NaN or +infinity, or none is finite, the first of the largest ones that are
  /// numbers is next. Throws ulp::Error (bad_shape) for no logits, and (bad_option) for a token of the text that they do not have.
  int64_t next(std::span<const float> logits, std::span<const int64_t> text = {});
  /// The probabilities that next() draws from, one a token, of the sum 1; one token alone at temperature 0.
  /// For logits that next() draws from.
  std::vector<double> probabilities(std::span<const float> logits, std::span<const int64_t> text = {}) const;

 private:
  std::vector<double> penalized(std::span<const float> logits, std::span<const int64_t> text) const;

  SamplingOptions options_;
  std::mt19937_64 random_;
};

}  // namespace runtime
}  // namespace ulp
