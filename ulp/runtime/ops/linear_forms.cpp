#include "ulp/runtime/ops/linear_forms.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <sstream>
#include <vector>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/sparse/sparse_linear.h"
#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/ops/form_timer.h"
#include "ulp/runtime/ops/sparse_table.h"

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
  std::shared_ptr<const Conv> layer;
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

/// The numbers of items to measure at: few, since the ratio of the forms changes slowly, and none that takes long.
std::vector<int64_t> measured_items(const ItemRange& items, const kernels::ConvShape& s) {
  constexpr int64_t kMostRows = 256, kFewRows = 16;  // beyond the first number more rows are more of the same
  constexpr int64_t kMostProducts = int64_t{1} << 31;
  const int64_t rows = std::clamp(kMostProducts / (s.in_channels * s.out_channels), kFewRows, kMostRows);
  const int64_t most = std::max<int64_t>(1, rows / (s.in_h * s.in_w));
  std::vector<int64_t> counts = {std::min(items.low, most)};
  while (counts.back() * 4 <= std::min(items.high, most)) counts.push_back(counts.back() * 4);
  return counts;
}

bool is_taken(const SparseFinding& found) {
  return found.faster >= kMargin;
}

SparseFinding find_best(FormTimer& timer, const Conv& dense, const std::vector<Form>& forms, int64_t items) {
  std::vector<const Conv*> layers = {&dense};
  for (const Form& form : forms) {
    if (items <= form.most_items) layers.push_back(form.layer.get());
  }
  SparseFinding found{.items = items};
  if (layers.size() == 1) return found;
  const std::vector<double> seconds = timer.seconds(layers, items);
  for (size_t i = 1; i < layers.size(); ++i) {
    const double faster = seconds[0] / seconds[i];
    if (faster > found.faster) found.kernel = layers[i]->name(), found.faster = faster;
  }
  return found;
}

/// Null where there is none of that name.
const Form* form_of(const SparseFinding& found, const std::vector<Form>& forms) {
  const auto form =
      std::ranges::find_if(forms, [&](const Form& f) { return f.layer->name() == found.kernel; });
  return form == forms.end() ? nullptr : &*form;
}

/// All that the time of a layer's forms depends on, and where it is measured.
std::string key_of(const kernels::ConvConfig& config, const Conv& dense, const std::vector<Form>& forms,
                   const std::vector<int64_t>& items, bool far) {
  const kernels::ConvShape& s = config.shape;
  std::ostringstream key;
  key << dense.name() << ' ' << s.in_channels << " -> " << s.out_channels << ' ' << to_string(config.output);
  if (s.in_h * s.in_w > 1) key << ", " << s.in_h * s.in_w << " pixels";
  if (config.residual) key << ", residual " << to_string(config.residual_type);
  key << ", activation " << word_of(config.activation);
  for (const Form& form : forms) key << "; " << form.layer->name() << ' ' << form.what;
  key << "; items";
  for (const int64_t count : items) key << ' ' << count;
  if (far) key << "; out of the cache";
  return std::move(key).str();
}

/// As the table has it, or measured and put there.
std::vector<SparseFinding> look_up(SparseTable& table, const kernels::ConvConfig& config, const Conv& dense,
                                   const std::vector<Form>& forms, const std::vector<int64_t>& items,
                                   bool far) {
  const std::string key = key_of(config, dense, forms, items, far);
  const auto fits = [&](const std::vector<SparseFinding>& findings) {
    return std::ranges::equal(findings, items, {}, &SparseFinding::items) &&
           std::ranges::all_of(findings, [&](const SparseFinding& found) {
             const Form* form = form_of(found, forms);
             return form == nullptr ? found.kernel.empty() && !is_taken(found)
                                    : found.items <= form->most_items;
           });
  };
  if (const auto* known = table.find(key); known != nullptr && fits(*known)) return *known;
  FormTimer timer(config, far);
  std::vector<SparseFinding> findings;
  for (const int64_t count : items) findings.push_back(find_best(timer, dense, forms, count));
  table.put(key, findings);
  return findings;
}

/// "16x4 blocks, 75 % kept: left dense at 4 rows (1.08x slower); 1.13x faster at 64 rows"
std::string note_of(const std::vector<SparseFinding>& findings, const std::vector<Form>& forms,
                    int64_t rows_per_item) {
  std::string note;
  const Form* last = nullptr;
  for (const SparseFinding& found : findings) {
    const Form* form = form_of(found, forms);
    if (form == nullptr) continue;  // none is meant for so many rows
    if (!note.empty()) note += "; ";
    if (form != last) note += form->what + ": ";
    last = form;
    const int64_t rows = found.items * rows_per_item;
    const std::string ratio =
        found.faster >= 1 ? factor(found.faster) + " faster" : factor(1 / found.faster) + " slower";
    const std::string at = " at " + std::to_string(rows) + (rows == 1 ? " row" : " rows");
    note += is_taken(found) ? ratio + at : "left dense" + at + " (" + ratio + ")";
  }
  return note;
}

/// One layer, or several by their numbers of items.
std::shared_ptr<const Conv> join(const std::shared_ptr<const Conv>& dense, const std::vector<Form>& forms,
                                 const std::vector<SparseFinding>& findings) {
  std::vector<FormsByItems::Part> parts;
  int64_t most = 0;  // items that the last part takes
  for (const SparseFinding& found : findings) {
    const Form* form = is_taken(found) ? form_of(found, forms) : nullptr;
    const std::shared_ptr<const Conv>& layer = form == nullptr ? dense : form->layer;
    if (parts.empty() || parts.back().layer != layer) {
      // The numbers are a factor of four apart: half way between two of them.
      parts.push_back({parts.empty() ? 0 : std::min(found.items / 2, most + 1), layer});
    }
    most = form == nullptr ? kAnyNumber : form->most_items;
  }
  if (parts.size() == 1) return parts[0].layer;
  return std::make_shared<const FormsByItems>(std::move(parts));
}

}  // namespace

LinearForm make_linear_form(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                            kernels::Isa isa, const PackRules& rules, const ItemRange& items) {
  const std::shared_ptr<const Conv> dense = kernels::make_conv(config, weights, isa);
  if (rules.sparse == SparseWeights::never) return {dense, ""};
  const bool always = rules.sparse == SparseWeights::always;
  const std::vector<Form> forms = sparse_forms(config, weights, isa, always);
  if (forms.empty()) return {dense, ""};
  if (always) return {forms[0].layer, forms[0].what};

  const int64_t rows_per_item = config.shape.in_h * config.shape.in_w;
  const bool far = rules.constant_bytes > static_cast<size_t>(kernels::second_level_cache());
  const std::vector<SparseFinding> findings =
      look_up(*rules.measured, config, *dense, forms, measured_items(items, config.shape), far);
  std::string note = note_of(findings, forms, rows_per_item);
  if (std::ranges::none_of(findings, is_taken)) return {dense, std::move(note)};
  return {join(dense, forms, findings), std::move(note)};
}

}  // namespace ulp::runtime
