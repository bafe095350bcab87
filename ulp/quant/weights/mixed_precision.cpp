#include "ulp/quant/weights/mixed_precision.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/quant/weights/bit_allocation.h"
#include "ulp/quant/weights/rotated_first.h"
#include "ulp/quant/weights/weight_trials.h"

namespace ulp::quant {
namespace {

using graph::GraphModule;

constexpr const char* kMixedWhere = "quant.search_mixed_precision";

WeightOnlyRecipe with_format(const WeightOnlyRecipe& recipe, const WeightFormat& format) {
  WeightOnlyRecipe own = recipe;
  own.search.reset();
  own.bits = format.bits;
  own.group = format.bits == 8 ? recipe.group : format.group;
  own.affine = format.affine;
  own.method = format.method;
  if (format.method != WeightMethod::gptq) own.act_order = own.static_groups = false;
  return own;
}

WeightOverride override_of(const std::string& weight, const WeightFormat& format) {
  WeightOverride one{.weight = weight, .bits = format.bits};
  if (format.bits < 8) one.group = format.group;
  one.affine = format.affine;
  one.method = format.method;
  return one;
}

int64_t tensor_bytes(const GraphModule& model) {
  std::set<const c10::TensorImpl*> seen;
  int64_t bytes = 0;
  for (const auto& [name, attribute] : model.graph().attributes()) {
    if (seen.insert(attribute.tensor.unsafeGetTensorImpl()).second)
      bytes += static_cast<int64_t>(attribute.tensor.nbytes());
  }
  return bytes;
}

class MixedPrecisionSearcher {
 public:
  MixedPrecisionSearcher(const std::shared_ptr<GraphModule>& captured, const WeightOnlyRecipe& recipe,
                         const CalibrationData& data, const MixedPrecisionHooks& hooks)
      : captured_(captured),
        recipe_(recipe),
        data_(data),
        hooks_(hooks),
        search_(*recipe.search),
        formats_(search_.formats()) {
    for (const WeightFormat& format : formats_) recipes_.push_back(with_format(recipe, format));
  }

  MixedPrecision run() {
    const at::NoGradGuard no_grad;
    WeightTrials trials(captured_, recipes_);
    place(trials);
    try {
      measure_all(trials);
    } catch (const Interrupted&) {
      if (!best_) throw;
      found_.interrupted = true;
    }
    if (!best_) fail_unreached();
    name_choices();
    return std::move(found_);
  }

 private:
  void measure_all(WeightTrials& trials) {
    found_.float_loss = checked_loss(trials.float_model());
    const auto count = static_cast<int64_t>(formats_.size());
    for (int64_t k = 0; k < count; ++k) {
      step("single recipes", k, count, formats_[static_cast<size_t>(k)].text());
      measure(formats_[static_cast<size_t>(k)].text(), recipes_[static_cast<size_t>(k)], std::nullopt);
    }
    step("single recipes", count, count, "");
    measure_layers(trials);
    const BitAllocations front(choices());
    found_.resolution = front.resolution();
    for (size_t i = 0; i < front.size(); ++i) {
      found_.front_bytes.push_back(fixed_bytes_ + front.bytes(i));
      found_.front_loss.push_back(found_.float_loss + front.loss(i));
    }
    if (search_.max_loss) {
      measure_within_loss(front);
    } else {
      measure_within_bytes(front);
    }
    step("mixes", search_.finalists, search_.finalists, "");
  }

  void step(const char* stage, int64_t done, int64_t total, const std::string& note) const {
    if (hooks_.on_step) hooks_.on_step(stage, done, total, note);
  }

  /// What weights are called, and how many bytes they take.
  void place(const WeightTrials& trials) {
    const auto first = quantize_weights(captured_, without_data(recipes_.front()));
    fixed_bytes_ = hooks_.bytes ? hooks_.bytes(*first) : tensor_bytes(*first);
    int64_t least = 0;
    for (const WeightTrials::Unit& unit : trials.units()) {
      const auto [known, is_new] = items_.emplace(unit.name, found_.layers.size());
      if (is_new) {
        found_.layers.push_back({.layer = unit.layer,
                                 .weight = unit.name,
                                 .bytes = std::vector<int64_t>(formats_.size()),
                                 .loss = std::vector<double>(formats_.size()),
                                 .chosen = {}});
      }
      WeightSensitivity& layer = found_.layers[known->second];
      for (size_t k = 0; k < formats_.size(); ++k) layer.bytes[k] += unit.bytes[k] + unit.scale_bytes[k];
      fixed_bytes_ -= unit.bytes[0];
      least += *std::ranges::min_element(unit.bytes);
    }
    if (search_.max_bytes && search_.max_bytes->bytes < fixed_bytes_ + least) {
      fail(kMixedWhere, "expected max_bytes of at least ", fixed_bytes_ + least,
           ", the smallest mix of the candidates, got ", search_.max_bytes->bytes);
    }
  }

  static WeightOnlyRecipe without_data(WeightOnlyRecipe recipe) {
    if (needs_data(recipe.method)) recipe.method = WeightMethod::rtn;
    recipe.act_order = recipe.static_groups = false;
    return recipe;
  }

  double loss_of(GraphModule& model) const { return hooks_.loss ? hooks_.loss(model) : result_error(model); }

  double checked_loss(GraphModule& model) const {
    const double loss = loss_of(model);
    if (!std::isfinite(loss)) fail(kMixedWhere, "expected a finite loss of the float model, got ", loss);
    return loss;
  }

  /// The error of all results, relative to their squares.
  double result_error(GraphModule& model) const {
    double error = 0, whole = 0;
    int64_t batches = 0;
    captured_->eval();
    data_([&](const std::vector<at::Tensor>& inputs) {
      const std::vector<at::Tensor> expected = captured_->forward_all(inputs),
                                    got = model.forward_all(inputs);
      for (size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor y = expected[i].to(at::kDouble);
        error += (got[i].to(at::kDouble) - y).square_().sum().item<double>();
        whole += y.square().sum().item<double>();
      }
      ++batches;
    });
    if (batches == 0) fail(kMixedWhere, "expected batches of calibration data, got none");
    return whole > 0 ? error / whole : error;
  }

  bool fits(int64_t bytes, double loss) const {
    return (!search_.max_bytes || bytes <= search_.max_bytes->bytes) &&
           (!search_.max_loss || loss - found_.float_loss <= *search_.max_loss) && std::isfinite(loss);
  }

  bool is_better(const MeasuredMix& a, const MeasuredMix& b) const {
    if (search_.max_loss) return std::pair(a.bytes, a.loss) < std::pair(b.bytes, b.loss);
    return std::pair(a.loss, a.bytes) < std::pair(b.loss, b.bytes);
  }

  /// Makes and measures a model; true if it fits.
  bool measure(const std::string& name, const WeightOnlyRecipe& recipe, std::optional<double> estimate) {
    graph::PassReport report;
    std::vector<WeightError> errors;
    const auto model = quantize_weights(captured_, recipe, data_, &report, &errors);
    MeasuredMix mix{.name = name,
                    .recipe = recipe,
                    .bytes = hooks_.bytes ? hooks_.bytes(*model) : tensor_bytes(*model),
                    .loss = loss_of(*model),
                    .estimate = estimate};
    const bool fitting = fits(mix.bytes, mix.loss);
    found_.measured.push_back(mix);
    if (!fitting || (best_ && !is_better(mix, found_.measured[*best_]))) return fitting;
    best_ = found_.chosen = found_.measured.size() - 1;
    found_.model = model;
    found_.recipe = recipe;
    found_.report = std::move(report);
    found_.errors = std::move(errors);
    return true;
  }

  void measure_layers(WeightTrials& trials) {
    const auto total = static_cast<int64_t>(trials.units().size());
    int64_t done = 0;
    trials.run(data_, [&](const WeightTrials::Unit& unit, const std::vector<size_t>& same, size_t format,
                          GraphModule& model) {
      if (format == 0) step("sensitivity", done++, total, unit.layer);
      const double more = loss_of(model) - found_.float_loss;
      for (const size_t k : same)
        found_.layers[items_.at(unit.name)].loss[k] += std::isnan(more) ? INFINITY : more;
    });
    step("sensitivity", total, total, "");
  }

  std::vector<std::vector<BitChoice>> choices() const {
    std::vector<std::vector<BitChoice>> all;
    for (const WeightSensitivity& layer : found_.layers) {
      std::vector<BitChoice>& own = all.emplace_back();
      for (size_t k = 0; k < formats_.size(); ++k)
        own.push_back({layer.bytes[k], std::max(0.0, layer.loss[k])});
    }
    return all;
  }

  /// Makes and measures a mix of the front.
  bool measure(const BitAllocations& front, size_t i) {
    const std::vector<size_t> chosen = front.choices(i);
    std::map<std::string, WeightFormat> formats;
    for (size_t layer = 0; layer < chosen.size(); ++layer)
      formats[found_.layers[layer].weight] = formats_[chosen[layer]];
    WeightOnlyRecipe recipe = recipe_;
    recipe.search.reset();
    // A name that begins another one comes first, and the longer one's override behind it wins.
    for (const auto& [weight, format] : formats) recipe.overrides.push_back(override_of(weight, format));
    if (!recipe.takes(WeightMethod::gptq)) recipe.act_order = recipe.static_groups = false;
    ++mixes_;
    step("mixes", mixes_ - 1, search_.finalists, "");
    return measure("mix " + std::to_string(mixes_), recipe, found_.float_loss + front.loss(i));
  }

  /// The mix of the least estimate, and smaller ones, in case the estimate is wrong: some far below, then
  /// those next to it.
  void measure_within_bytes(const BitAllocations& front) {
    const size_t best = front.within_bytes(search_.max_bytes->bytes - fixed_bytes_);
    if (best == front.size()) return;
    std::set<size_t> seen;
    const auto try_one = [&](size_t i) {
      if (i < front.size() && static_cast<int64_t>(seen.size()) < search_.finalists && seen.insert(i).second)
        measure(front, i);
    };
    try_one(best);
    const int64_t most = front.bytes(best);
    for (int64_t part = 256; part > 1; part /= 2) try_one(front.within_bytes(most - most / part));
    for (size_t i = best; i-- > 0;) try_one(i);
  }

  /// Bisects the front, as if measured losses fell with bytes.
  void measure_within_loss(const BitAllocations& front) {
    size_t low = 0, high = front.size();
    if (search_.max_bytes) {
      const size_t last = front.within_bytes(search_.max_bytes->bytes - fixed_bytes_);
      high = last < front.size() ? last + 1 : 0;
    }
    size_t i = std::min(front.within_loss(*search_.max_loss), high > 0 ? high - 1 : 0);
    for (int64_t count = 0; low < high && count < search_.finalists; ++count, i = low + (high - low) / 2) {
      if (measure(front, i)) {
        high = i;
      } else {
        low = i + 1;
      }
    }
  }

  [[noreturn]] void fail_unreached() const {
    const auto near = std::ranges::min_element(found_.measured, {}, &MeasuredMix::loss);
    std::ostringstream bounds;
    if (search_.max_loss) bounds << "max_loss " << *search_.max_loss;
    if (search_.max_loss && search_.max_bytes) bounds << " and ";
    if (search_.max_bytes) bounds << "max_bytes " << search_.max_bytes->bytes;
    fail(kMixedWhere, "expected bounds that a mix of the candidates reaches, got ", bounds.str(),
         "; the least loss measured is ", near->loss - found_.float_loss, " beyond the float model's, by ",
         near->name, " with ", near->bytes, " bytes");
  }

  void name_choices() {
    for (WeightSensitivity& layer : found_.layers) {
      const WeightOnlyRecipe own = found_.recipe.of_weight(layer.weight);
      layer.chosen = WeightFormat{own.bits, own.group, own.affine, own.method}.text();
    }
  }

  const std::shared_ptr<GraphModule>& captured_;
  const WeightOnlyRecipe& recipe_;
  const CalibrationData& data_;
  const MixedPrecisionHooks& hooks_;
  const MixedPrecisionSearch& search_;
  std::vector<WeightFormat> formats_;
  std::vector<WeightOnlyRecipe> recipes_;  ///< of each candidate for all weights
  std::map<std::string, size_t> items_;    ///< by name of the weight: its place in found_.layers
  int64_t fixed_bytes_ = 0;                ///< of what is in no layer
  int64_t mixes_ = 0;
  std::optional<size_t> best_;
  MixedPrecision found_;
};

}  // namespace

MixedPrecision search_mixed_precision(const std::shared_ptr<GraphModule>& captured,
                                      const WeightOnlyRecipe& recipe, const CalibrationData& data,
                                      const MixedPrecisionHooks& hooks) {
  recipe.validate();
  if (!recipe.search) fail(kMixedWhere, "expected a recipe with a search, got one without");
  if (!data) fail(kMixedWhere, "expected calibration data, got none");
  if (!recipe.rotate) return MixedPrecisionSearcher(captured, recipe, data, hooks).run();
  graph::PassReport report;
  MixedPrecision found =
      with_rotation(captured, recipe, &report, [&](const auto& rotated, const auto& rest, auto* own) {
        MixedPrecision made = MixedPrecisionSearcher(rotated, rest, data, hooks).run();
        *own = made.report;
        return made;
      });
  found.report = std::move(report);
  found.recipe.rotate = true;
  for (MeasuredMix& mix : found.measured) mix.recipe.rotate = true;
  return found;
}

}  // namespace ulp::quant
