#include "ulp/runtime/ops/linear_forms.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <vector>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/sparse/sparse_linear.h"
#include "ulp/runtime/ops/form_timer.h"

namespace ulp::runtime {
namespace {

using kernels::Conv;

// Above these shares of what is kept a form cannot pay, or not enough to be worth its timing.
constexpr double kMostBlocks = 0.9;
constexpr double kMostWeights = 0.6;
constexpr int64_t kFewWeights = 4096;  // a layer this small takes less time than its call
constexpr int64_t kBitmaskRows = 4;    // with more each weight is unpacked again
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max() / 2;
constexpr double kMargin =
    1.03;  // by which a sparse form must be the faster one: a timing may be off by as much

struct Form {
  std::unique_ptr<const Conv> layer;
  std::string what;                 ///< "16x4 blocks, 20 % kept"
  int64_t most_items = kAnyNumber;  ///< for which it is meant
};

/// Several forms of one layer, by the number of items.
class FormsByItems final : public Conv {
 public:
  struct Part {
    int64_t from;  ///< items
    std::shared_ptr<const Conv> layer;
  };
  /// The first part is from 0 items on.
  explicit FormsByItems(std::vector<Part> parts) : parts_(std::move(parts)) {}

  size_t workspace_bytes(int64_t batch, int workers) const override {
    size_t most = 0;
    for (const Part& part : parts_) most = std::max(most, part.layer->workspace_bytes(batch, workers));
    return most;
  }
  void run(int64_t batch, const void* x, const void* residual, void* y, void* workspace,
           const Parallel& parallel) const override {
    const Conv* chosen = parts_.front().layer.get();
    for (const Part& part : parts_) {
      if (part.from <= batch) chosen = part.layer.get();
    }
    chosen->run(batch, x, residual, y, workspace, parallel);
  }
  std::string name() const override {
    std::string names;
    for (const Part& part : parts_) names += (names.empty() ? "" : " / ") + part.layer->name();
    return names;
  }

 private:
  std::vector<Part> parts_;
};

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.*f %%", share < 0.1 ? 1 : 0, 100 * share);
  return text;
}

std::string factor(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2fx", x);
  return text;
}

/// What there is beside the dense form. `always`: whatever can be left out.
std::vector<Form> sparse_forms(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                               kernels::Isa isa, bool always) {
  std::vector<Form> forms;
  const kernels::ConvShape& s = config.shape;
  if (!kernels::is_linear(s) || (!always && s.in_channels * s.out_channels < kFewWeights)) return forms;
  const kernels::ZeroCount zeros = kernels::count_zeros(config, weights);
  const bool integer = config.input == DataType::u8;
  if (always ? zeros.kept < zeros.blocks : zeros.block_density() <= kMostBlocks) {
    forms.push_back(
        {kernels::make_block_linear(config, weights, isa),
         std::string(integer ? "16x4" : "16x1") + " blocks, " + percent(zeros.block_density()) + " kept"});
  }
  if (integer && zeros.weight_density() <= kMostWeights && (!always || forms.empty())) {
    forms.push_back({kernels::make_bitmask_linear(config, weights, isa),
                     "bitmask, " + percent(zeros.weight_density()) + " kept",
                     always ? kAnyNumber : kBitmaskRows / (s.in_h * s.in_w)});
  }
  std::erase_if(forms, [](const Form& form) { return form.layer == nullptr; });
  return forms;
}

/// The numbers of items to measure at: few, since the ratio of the forms changes slowly.
std::vector<int64_t> measured_items(const ItemRange& items, int64_t rows_per_item) {
  constexpr int64_t kMostRows = 256;  // beyond that more rows are more of the same
  const int64_t most = std::max<int64_t>(1, kMostRows / rows_per_item);
  std::vector<int64_t> counts = {std::min(items.low, most)};
  while (counts.back() * 4 <= std::min(items.high, most)) counts.push_back(counts.back() * 4);
  return counts;
}

/// What was found at one number of items.
struct Finding {
  int64_t items = 1;
  size_t best = 0;    ///< of the sparse forms
  double faster = 0;  ///< dense time by its time
  bool taken() const { return faster >= kMargin; }
};

Finding find_best(FormTimer& timer, const Conv& dense, const std::vector<Form>& forms, int64_t items) {
  std::vector<const Conv*> layers = {&dense};
  std::vector<size_t> which;
  for (size_t f = 0; f < forms.size(); ++f) {
    if (items > forms[f].most_items) continue;
    layers.push_back(forms[f].layer.get());
    which.push_back(f);
  }
  Finding found{.items = items};
  if (which.empty()) return found;
  const std::vector<double> seconds = timer.seconds(layers, items);
  for (size_t i = 0; i < which.size(); ++i) {
    const double faster = seconds[0] / seconds[i + 1];
    if (faster > found.faster) found.best = which[i], found.faster = faster;
  }
  return found;
}

/// "16x4 blocks, 75 % kept: left dense at 4 rows (1.08x slower); 1.13x faster at 64 rows"
std::string note_of(const std::vector<Finding>& findings, const std::vector<Form>& forms,
                    int64_t rows_per_item) {
  std::string note;
  const Form* last = nullptr;
  for (const Finding& found : findings) {
    if (found.faster == 0) continue;  // no form takes so many rows
    const Form& form = forms[found.best];
    if (!note.empty()) note += "; ";
    if (&form != last) note += form.what + ": ";
    last = &form;
    const int64_t rows = found.items * rows_per_item;
    const std::string ratio =
        found.faster >= 1 ? factor(found.faster) + " faster" : factor(1 / found.faster) + " slower";
    const std::string at = " at " + std::to_string(rows) + (rows == 1 ? " row" : " rows");
    note += found.taken() ? ratio + at : "left dense" + at + " (" + ratio + ")";
  }
  return note;
}

/// One layer, or several by their numbers of items.
std::unique_ptr<const Conv> join(std::unique_ptr<const Conv> dense, std::vector<Form> forms,
                                 const std::vector<Finding>& findings) {
  const std::shared_ptr<const Conv> kept_dense = std::move(dense);
  std::vector<std::shared_ptr<const Conv>> kept;
  for (Form& form : forms) kept.push_back(std::move(form.layer));
  std::vector<FormsByItems::Part> parts;
  int64_t most = 0;  // items that the last part takes
  for (const Finding& found : findings) {
    const std::shared_ptr<const Conv>& layer = found.taken() ? kept[found.best] : kept_dense;
    if (parts.empty() || parts.back().layer != layer) {
      // The numbers are a factor of four apart: half way between two of them.
      parts.push_back({parts.empty() ? 0 : std::min(found.items / 2, most + 1), layer});
    }
    most = found.taken() ? forms[found.best].most_items : kAnyNumber;
  }
  return std::make_unique<FormsByItems>(std::move(parts));
}

}  // namespace

LinearForm make_linear_form(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                            kernels::Isa isa, const PackRules& rules, const ItemRange& items) {
  std::unique_ptr<const Conv> dense = kernels::make_conv(config, weights, isa);
  if (rules.sparse == SparseWeights::never) return {std::move(dense), ""};
  const bool always = rules.sparse == SparseWeights::always;
  std::vector<Form> forms = sparse_forms(config, weights, isa, always);
  if (forms.empty()) return {std::move(dense), ""};
  if (always) return {std::move(forms[0].layer), forms[0].what};

  const int64_t rows_per_item = config.shape.in_h * config.shape.in_w;
  const bool far = rules.constant_bytes > static_cast<size_t>(kernels::second_level_cache());
  FormTimer timer(config, far);
  std::vector<Finding> findings;
  for (const int64_t count : measured_items(items, rows_per_item)) {
    findings.push_back(find_best(timer, *dense, forms, count));
  }
  std::string note = note_of(findings, forms, rows_per_item);
  if (std::ranges::none_of(findings, &Finding::taken)) return {std::move(dense), std::move(note)};
  return {join(std::move(dense), std::move(forms), findings), std::move(note)};
}

}  // namespace ulp::runtime
