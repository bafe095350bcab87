#include "ulp/lower/score_changes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ulp::lowering {
namespace {

using runtime::BlindQueries;

/// A score s became factor * s + number.
struct Became {
  double factor = 1, number = 0;
  bool operator==(const Became&) const = default;
};

/// Scores by what picks them out.
enum Class { kOpen, kLater, kKey, kLaterKey, kClasses };

constexpr double kNone = -std::numeric_limits<double>::infinity();
/// Added to a score it leaves nothing of it: where all keys are hidden, all weights are equal.
constexpr double kNothingLeft = std::numeric_limits<float>::lowest() / 2.0;

class Follower {
 public:
  explicit Follower(BlindQueries hidden_rows) : hidden_rows_(hidden_rows) {}

  std::optional<StepMasks> run(const std::vector<ScoreChange>& changes) {
    for (const ScoreChange& change : changes) {
      if (!take(change)) return std::nullopt;
      for (Became& one : became_) {
        if (std::isnan(one.number)) return std::nullopt;
        if (one.number < std::numeric_limits<float>::lowest()) one.number = kNone;
      }
    }
    if (!scale_scores()) return std::nullopt;
    made_.causal = made_.later >= 0;
    const bool masked = made_.causal || !made_.keys.empty() || made_.values != nullptr;
    if (masked && !(became_[kOpen].factor > 0)) return std::nullopt;
    if (made_.causal && !hides(kLater)) return std::nullopt;
    if (made_.values != nullptr) {
      // Where a sample hides all earlier keys, later ones must still have no weight.
      if (made_.window > 0) return std::nullopt;  // the step has no mask beside a window
      const bool apart = !made_.causal || became_[kLater].number == kNone;
      made_.blind = hidden_rows_;  // a row of -infinity hides all keys, or all earlier ones
      return made_.keys.empty() && apart ? std::optional(made_) : std::nullopt;
    }
    if (made_.window > 0 && !made_.keys.empty()) return std::nullopt;
    const bool found = made_.keys.empty() || (made_.causal ? hide_both() : hide_keys());
    return found ? std::optional(made_) : std::nullopt;
  }

 private:
  /// The step's scale and cap: scores became outer * tanh(inner * score), or factor * score.
  bool scale_scores() {
    const Became& open = became_[kOpen];
    made_.scale = capped_ ? inner_ * open.factor : open.factor;
    if (capped_) made_.softcap = open.factor;
    const bool cap_fits = !capped_ || (static_cast<float>(open.factor) > 0 && std::isfinite(inner_));
    return cap_fits && std::isfinite(made_.scale) && open.number == 0;
  }

  /// A soft cap of scores that nothing has hidden yet: tanh would leave a number of what is hidden.
  bool take_cap() {
    const bool plain = made_.later < 0 && made_.keys.empty() && made_.values == nullptr;
    if (capped_ || !plain || became_[kOpen].number != 0) return false;
    capped_ = true;
    inner_ = became_[kOpen].factor;
    for (Became& one : became_) one.factor = 1;
    return true;
  }

  bool take(const ScoreChange& change) {
    if (change.kind == ScoreChange::Kind::cap) return take_cap();
    if (change.kind == ScoreChange::Kind::add_values) {
      if (made_.values != nullptr) return false;
      made_.values = change.values;
      return true;
    }
    if (change.kind == ScoreChange::Kind::scale && !change.only_at) {
      if (made_.values != nullptr) return false;  // the mask would be scaled, too
      for (Became& one : became_) one = {one.factor * change.number, one.number * change.number};
      return true;
    }
    if (!take_where(change.where)) return false;
    for (int i = kLater; i < kClasses; ++i) {
      const bool later = change.where.later >= 0 && i != kKey,
                 key = !change.where.keys.empty() && i != kLater;
      if (!later && !key) continue;
      Became& one = became_[static_cast<size_t>(i)];
      if (change.kind == ScoreChange::Kind::fill) one = {0, change.number};
      if (change.kind == ScoreChange::Kind::add) add(one, change.number);
      if (change.kind == ScoreChange::Kind::scale)
        one = {one.factor * change.number, one.number * change.number};
    }
    return true;
  }

  /// Beside a number like this nothing is left of a score.
  static void add(Became& one, double number) {
    constexpr double kAbsorbs = -1e30;
    one.number += number;
    if (one.number <= kAbsorbs) one.factor = 0;
  }

  bool take_where(const PickedScores& where) {
    if (made_.values != nullptr && !where.keys.empty()) return false;
    if (where.later >= 0) {
      if (made_.later >= 0 && (made_.later != where.later || made_.window != where.window)) return false;
      made_.later = where.later;
      made_.window = where.window;
    }
    if (where.keys.empty() || where.keys == made_.keys) return true;
    if (!made_.keys.empty()) return false;
    made_.keys = where.keys;
    return true;
  }

  /// What is left of these scores is no weight beside one that is open.
  bool hides(Class which) const {
    const Became& one = became_[which];
    return one.factor >= 0 && one.number <= kHiddenScore;
  }
  bool is_added() const { return became_[kKey].factor != 0 && became_[kKey].factor == became_[kOpen].factor; }

  /// The number that hidden keys get where weights are as those of what the scores became.
  bool add_keys() {
    made_.key_number = is_added() ? became_[kKey].number : kNothingLeft;
    return is_added() || (became_[kKey].factor == 0 && hides(kKey));
  }

  bool hide_all(BlindQueries blind) {
    made_.key_number = kNone;
    made_.blind = blind;
    return true;
  }

  bool hide_keys() { return became_[kKey].number == kNone ? hide_all(hidden_rows_) : add_keys(); }

  bool hide_both() {
    const Became &later = became_[kLater], &key = became_[kKey], &both = became_[kLaterKey];
    if (!hides(kLaterKey)) return false;
    if (key.number == kNone) return later.number == kNone && both.number == kNone && hide_all(hidden_rows_);
    if (key.factor == 0 && key == later && key == both) return hides(kKey) && hide_all(BlindQueries::mean);
    const double least = std::min(key.number, 0.0) + kHiddenScore;
    return later.number <= least && both.number <= least && add_keys();
  }

  BlindQueries hidden_rows_;
  bool capped_ = false;
  double inner_ = 1;  ///< the factor of scores in a soft cap
  std::array<Became, kClasses> became_;
  StepMasks made_;
};

}  // namespace

std::optional<StepMasks> step_masks_of(const std::vector<ScoreChange>& changes, BlindQueries hidden_rows) {
  return Follower(hidden_rows).run(changes);
}

}  // namespace ulp::lowering
