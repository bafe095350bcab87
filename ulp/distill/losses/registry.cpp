#include "ulp/distill/losses/registry.h"

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/distill/losses/at.h"
#include "ulp/distill/losses/cc.h"
#include "ulp/distill/losses/cosine.h"
#include "ulp/distill/losses/crd.h"
#include "ulp/distill/losses/dkd.h"
#include "ulp/distill/losses/hard.h"
#include "ulp/distill/losses/kd.h"
#include "ulp/distill/losses/minilm.h"
#include "ulp/distill/losses/mse.h"
#include "ulp/distill/losses/pkt.h"
#include "ulp/distill/losses/rkd.h"
#include "ulp/distill/losses/soft_cross_entropy.h"
#include "ulp/distill/losses/sp.h"
#include "ulp/distill/losses/tinybert_attention.h"

namespace ulp::distill {

namespace {

using Json = nlohmann::json;
constexpr const char* kMakeLossWhere = "distill.make_loss";

/// Options of losses that have none.
struct NoOptions {
  void visit_fields(FieldVisitor&) {}
};

struct LossKind {
  const char* help;
  std::function<Json()> defaults;
  std::function<std::shared_ptr<Loss>(const Json& given)> make;
};

/// The kind of a loss that `make` makes of options, which start as these.
template <typename Options, typename Make>
LossKind kind(const char* help, const Options& defaults, const Make& make) {
  return {help, [defaults] { return fields_to_json(defaults); },
          [defaults, make](const Json& given) -> std::shared_ptr<Loss> {
            Options options = defaults;
            fields_from_json(given, options, {}, {}, /*limits=*/true);
            return make(options);
          }};
}

template <typename L>
LossKind plain(const char* help) {
  return kind(help, NoOptions{}, [](const NoOptions&) { return std::make_shared<L>(); });
}

template <typename L, typename Options>
LossKind with_options(const char* help, const Options& defaults) {
  return kind(help, defaults, [](const Options& options) { return std::make_shared<L>(options); });
}

/// One of several names of a loss.
template <typename L, typename Options>
LossKind named(const char* name, const char* help, const Options& defaults) {
  return kind(help, defaults, [name](const Options& options) { return std::make_shared<L>(options, name); });
}

LossKind mse(MseOf of, const char* help) {
  return kind(help, NoOptions{}, [of](const NoOptions&) { return std::make_shared<Mse>(of); });
}

/// rkd_distance and rkd_angle: one part with the weight 1.
LossKind rkd_part(const char* name, const char* help, const RkdOptions& weights) {
  return kind(help, NoOptions{}, [=](const NoOptions&) { return std::make_shared<Rkd>(weights, name); });
}

const std::map<std::string, LossKind>& kinds() {
  static const std::map<std::string, LossKind> all = {
      {"at", plain<AttentionTransfer>("Where features are large (attention transfer)")},
      {"cc", with_options<CorrelationCongruence>("Gaussian kernels of the samples' features", CcOptions{})},
      {"cosine", plain<Cosine>("Directions of hidden states")},
      {"crd", with_options<Crd>("Contrast with memories of all samples", CrdOptions{})},
      {"dkd", with_options<Dkd>("Target class and other classes of logits apart", DkdOptions{})},
      {"hard", plain<Hard>("Cross-entropy with the teacher's decision")},
      {"kd", named<Kd>("kd", "KL divergence of softened logits", KdOptions{})},
      {"logits", mse(MseOf::logits, "Mean squared difference of logits")},
      {"minilm", with_options<MiniLm>("Relations of queries, keys and values", MiniLmOptions{})},
      {"mse", mse(MseOf::features, "Mean squared difference of features")},
      {"mutual", named<Kd>("mutual", "KL divergence between students that learn together",
                           KdOptions{.temperature = 1})},
      {"pkt", plain<Pkt>("Probabilities that samples are neighbours")},
      {"rkd", named<Rkd>("rkd", "Distances and angles between samples", RkdOptions{})},
      {"rkd_angle", rkd_part("rkd_angle", "Angles between samples", {.distance = 0, .angle = 1})},
      {"rkd_distance", rkd_part("rkd_distance", "Distances between samples", {.distance = 1, .angle = 0})},
      {"soft_cross_entropy", plain<SoftCrossEntropy>("Cross-entropy with the teacher's probabilities")},
      {"sp", plain<SimilarityPreserving>("Products of the samples' features")},
      {"tinybert_attention", plain<TinyBertAttention>("Mean squared difference of attention scores")},
  };
  return all;
}

template <typename Items>
std::string listed(const Items& items) {
  std::string text;
  for (const auto& item : items.items()) text += (text.empty() ? "" : ", ") + item.key();
  return text;
}

/// key=value as JSON: values that are no JSON are words.
Json as_json(const std::string& name, const Json& defaults, const std::vector<std::string>& options) {
  Json given = Json::object();
  for (const std::string& option : options) {
    const size_t split = option.find('=');
    if (split == std::string::npos)
      fail(kMakeLossWhere, "expected an option key=value of ", name, ", got '", option, "'");
    const std::string key = option.substr(0, split), text = option.substr(split + 1);
    if (!defaults.contains(key)) {
      const std::string known = defaults.empty() ? "no options" : "the options " + listed(defaults);
      fail(kMakeLossWhere, "expected ", known, " of ", name, ", got '", key, "'");
    }
    if (given.contains(key)) fail(kMakeLossWhere, "expected ", key, " of ", name, " once, got it twice");
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    given[key] = value.is_discarded() ? Json(text) : value;
  }
  return given;
}

}  // namespace

std::shared_ptr<Loss> make_loss(const std::string& name, const std::vector<std::string>& options) {
  const auto found = kinds().find(name);
  if (found == kinds().end()) {
    std::string known;
    for (const auto& [one, kind] : kinds()) known += (known.empty() ? "" : ", ") + one;
    fail(kMakeLossWhere, "expected one of ", known, ", got '", name, "'");
  }
  const Json given = as_json(name, found->second.defaults(), options);
  try {
    return found->second.make(given);
  } catch (const FieldProblem& problem) {
    fail(kMakeLossWhere, problem.text, " of ", name);
  }
}

const std::vector<LossEntry>& loss_entries() {
  static const std::vector<LossEntry> all = [] {
    std::vector<LossEntry> made;
    for (const auto& [name, kind] : kinds()) {
      const Json defaults = kind.defaults();
      std::string options;
      for (const auto& [key, value] : defaults.items())
        options += (options.empty() ? "" : ", ") + key + "=" +
                   (value.is_string() ? value.get<std::string>() : value.dump());
      made.push_back({name, kind.help, options});
    }
    return made;
  }();
  return all;
}

}  // namespace ulp::distill
