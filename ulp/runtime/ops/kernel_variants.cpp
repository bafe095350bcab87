#include "ulp/runtime/ops/kernel_variants.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "ulp/kernels/conv/narrow_conv.h"
#include "ulp/kernels/isa/cpu.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/sparse/sparse_linear.h"
#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/ops/autotuner.h"
#include "ulp/runtime/ops/timing_cache.h"

namespace ulp::runtime {
namespace {

using kernels::Conv;

// Above these shares of what is kept a form cannot pay, or not enough to be worth its timing.
constexpr double kMostBlocks = 0.9;
constexpr double kMostWeights = 0.6;
constexpr int64_t kFewWeights = 4096;  // a layer this small takes less time than its call
constexpr int64_t kBitmaskRows = 4;    // with more each weight is unpacked again
// Rows at which a layer is measured: beyond the first number more of them are more of the same, and fewer
// than the second say nothing of a layer that has many.
constexpr int64_t kMostRows = 256, kFewRows = 16;
constexpr int64_t kMostProducts = int64_t{1} << 31;  // of a run that is measured
constexpr int64_t kAnyNumber = std::numeric_limits<int64_t>::max() / 2;
// By which another form must be the faster one: a timing may be off by as much, and digits are worth more
// than that.
constexpr double kMargin = 1.03, kNarrowMargin = 1.1;

using MakeForm = std::unique_ptr<Conv> (*)(const kernels::ConvConfig&, const kernels::ConvWeights&,
                                           kernels::Isa);

struct LayerVariant {
  std::shared_ptr<const Conv> layer;
  std::string what;    ///< "16x4 blocks, 20 % kept"
  int64_t most_items;  ///< for which it is meant
  MakeForm make;       ///< what made it
  double margin = kMargin;
  const char* else_left = "left dense";  ///< what the layer is without it
};

/// A layer in all its forms, and what they are made from.
struct Forms {
  const kernels::ConvConfig& config;
  const kernels::ConvWeights& weights;
  kernels::Isa isa;
  std::shared_ptr<const Conv> plain;  ///< as it comes
  std::vector<LayerVariant> others{};

  int64_t pixels() const { return config.shape.in_h * config.shape.in_w; }
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
    chosen(batch).run(batch, x, residual, y, workspace, parallel);
  }
  kernels::Density density(int64_t batch) const override { return chosen(batch).density(batch); }
  std::string name() const override {
    std::string names;
    for (const Part& part : parts_) names += (names.empty() ? "" : " / ") + part.layer->name();
    return names;
  }

 private:
  const Conv& chosen(int64_t batch) const {
    const Conv* found = parts_.front().layer.get();
    for (const Part& part : parts_) {
      if (part.from <= batch) found = part.layer.get();
    }
    return *found;
  }

  std::vector<Part> parts_;
};

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof(text), "%.*f %%", share < 0.1 ? 1 : 0, 100 * share);
  return text;
}

/// "0.17 %", of what is small.
std::string fine_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %%", 100 * share);
  return text;
}

std::string factor(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2fx", x);
  return text;
}

/// What could be left out of a layer. `always`: whatever is zero, not only where it may pay.
struct Choices {
  kernels::ZeroCount zeros;
  bool blocks = false, bits = false;
};
Choices choices_of(const kernels::ConvConfig& config, const kernels::ConvWeights& weights, bool always) {
  const kernels::ConvShape& s = config.shape;
  if (!kernels::is_linear(s) || (!always && s.in_channels * s.out_channels < kFewWeights)) return {};
  const kernels::ZeroCount zeros = kernels::count_zeros(config, weights);
  const bool integer = config.input == DataType::u8;
  return {zeros, always ? zeros.kept < zeros.blocks : zeros.block_density() <= kMostBlocks,
          integer && zeros.weight_density() <= kMostWeights};
}

/// What there is beside the dense form.
void add_sparse(Forms& forms, bool always) {
  const kernels::ConvConfig& config = forms.config;
  const auto [zeros, has_blocks, has_bits] = choices_of(config, forms.weights, always);
  const bool integer = config.input == DataType::u8;
  const auto add = [&](MakeForm make, const std::string& what, int64_t most_items) {
    std::shared_ptr<const Conv> layer = make(config, forms.weights, forms.isa);
    if (layer != nullptr) forms.others.push_back({std::move(layer), what, most_items, make});
  };
  if (has_blocks) {
    const std::string blocks = integer ? "16x4" : "16x1";
    add(kernels::make_block_linear, blocks + " blocks, " + percent(zeros.block_density()) + " kept",
        kAnyNumber);
  }
  if (has_bits && (!always || forms.others.empty())) {
    add(kernels::make_bitmask_linear, "bitmask, " + percent(zeros.weight_density()) + " kept",
        always ? kAnyNumber : kBitmaskRows / forms.pixels());
  }
}

/// The form in bf16, where its error is within the budget. What there is to say where it is not.
std::string add_narrow(Forms& forms, double error_budget) {
  const kernels::ConvShape& s = forms.config.shape;
  if (error_budget <= 0 || forms.config.input != DataType::f32) return "";
  if (s.in_channels / s.groups * s.kernel_h * s.kernel_w * s.out_channels < kFewWeights) return "";
  const double error = kernels::narrow_error(forms.config, forms.weights);
  if (!(error <= error_budget)) return "left in f32: bf16 would err by " + fine_percent(error);
  forms.others.push_back({kernels::make_narrow_conv(forms.config, forms.weights, forms.isa),
                          "bf16, error " + fine_percent(error), kAnyNumber, kernels::make_narrow_conv,
                          kNarrowMargin, "left in f32"});
  return "";
}

/// What is run to measure a layer: the layer itself, or one with its weights on an image of fewer pixels.
struct Trial {
  kernels::ConvConfig config;
  std::vector<std::shared_ptr<const Conv>> layers;  ///< the plain one, and the others in their order
  std::vector<int64_t> items;                       ///< to measure at

  std::vector<const Conv*> pointers() const {
    std::vector<const Conv*> out;
    for (const auto& layer : layers) out.push_back(layer.get());
    return out;
  }
};

/// The layer itself.
Trial whole_trial(const Forms& forms) {
  Trial trial{forms.config, {forms.plain}, {}};
  for (const LayerVariant& form : forms.others) trial.layers.push_back(form.layer);
  return trial;
}

/// The layer on an image of so many pixels. Without layers where it would run other kernels.
Trial narrow_trial(const Forms& forms, int64_t pixels) {
  Trial trial{forms.config, {}, {}};
  trial.config.shape.in_h = 1;
  trial.config.shape.in_w = pixels;
  trial.layers.push_back(kernels::make_conv(trial.config, forms.weights, forms.isa));
  for (const LayerVariant& form : forms.others)
    trial.layers.push_back(form.make(trial.config, forms.weights, forms.isa));
  const Trial whole = whole_trial(forms);
  const bool alike = std::ranges::equal(
      trial.layers, whole.layers, [](const auto& a, const auto& b) { return a && a->name() == b->name(); });
  if (!alike) trial.layers.clear();
  return trial;
}

/// The numbers of items to measure at, up to `most`: few, since the ratio of the forms changes slowly.
std::vector<int64_t> measured_items(const ItemRange& items, int64_t most) {
  std::vector<int64_t> counts = {std::min(items.low, most)};
  while (counts.back() * 4 <= std::min(items.high, most)) counts.push_back(counts.back() * 4);
  return counts;
}

/// Of the plain form, with the channels that fill its last panels; the others take less.
size_t most_packed_bytes(const kernels::ConvConfig& config) {
  constexpr int64_t kPanel = 64;
  const kernels::ConvShape& s = config.shape;
  const int64_t in = (s.in_channels + kPanel - 1) / kPanel, out = (s.out_channels + kPanel - 1) / kPanel;
  return static_cast<size_t>(in * out * kPanel * kPanel * element_bytes(config.input));
}

/// Of a convolution that is no linear layer, on one image.
Trial image_trial(const Forms& forms, size_t most_bytes, bool far) {
  const kernels::ConvShape& s = forms.config.shape;
  const int64_t products = s.in_channels / s.groups * s.kernel_h * s.kernel_w * s.out_channels;
  if (products > kMostProducts / (s.out_h() * s.out_w())) return {forms.config, {}, {}};
  Trial trial = whole_trial(forms);
  if (Autotuner(forms.config, far).bytes(trial.pointers(), 1) <= most_bytes) trial.items = {1};
  return trial;
}

/// Of as many rows as take neither long nor more than `most_bytes`. Without items where there is none.
Trial make_trial(const Forms& forms, const ItemRange& items, size_t most_bytes, bool far) {
  const kernels::ConvShape& s = forms.config.shape;
  if (!kernels::is_linear(s)) return image_trial(forms, most_bytes, far);
  const int64_t weights = s.in_channels * s.out_channels, pixels = forms.pixels();
  const size_t packed_bytes = most_packed_bytes(forms.config) * (forms.others.size() + 1);
  const int64_t least = std::min(kFewRows, items.low * pixels);
  for (int64_t rows = std::clamp(kMostProducts / weights, kFewRows, kMostRows); rows >= least; rows /= 4) {
    const bool whole = pixels <= rows;
    const size_t copied = whole ? 0 : packed_bytes;
    if (copied > most_bytes) continue;
    Trial trial = whole ? whole_trial(forms) : narrow_trial(forms, rows);
    if (trial.layers.empty()) continue;
    trial.items = whole ? measured_items(items, rows / pixels) : std::vector<int64_t>{1};
    const Autotuner timer(trial.config, far);
    std::erase_if(trial.items,
                  [&](int64_t count) { return copied + timer.bytes(trial.pointers(), count) > most_bytes; });
    if (!trial.items.empty()) return trial;
  }
  return {forms.config, {}, {}};
}

FormFinding find_best(Autotuner& timer, const Trial& trial, const std::vector<LayerVariant>& forms,
                      int64_t items) {
  std::vector<const Conv*> layers = {trial.layers[0].get()};
  std::vector<std::string> names = {""};
  std::vector<double> margins = {1};
  for (size_t i = 0; i < forms.size(); ++i) {
    if (items > forms[i].most_items) continue;
    layers.push_back(trial.layers[i + 1].get());
    names.push_back(forms[i].layer->name());
    margins.push_back(forms[i].margin);
  }
  FormFinding found{.items = items};
  if (layers.size() == 1) return found;
  const std::vector<double> seconds = timer.seconds(layers, items);
  double best = 0;  // by its margin
  for (size_t i = 1; i < layers.size(); ++i) {
    const double faster = std::clamp(seconds[0] / seconds[i], 1 / kLargestRatio, kLargestRatio);
    if (faster / margins[i] <= best) continue;
    best = faster / margins[i];
    found.kernel = names[i], found.faster = faster;
  }
  return found;
}

/// Null where there is none of that name.
const LayerVariant* form_of(const FormFinding& found, const std::vector<LayerVariant>& forms) {
  const auto form =
      std::ranges::find_if(forms, [&](const LayerVariant& f) { return f.layer->name() == found.kernel; });
  return form == forms.end() ? nullptr : &*form;
}

bool is_taken(const FormFinding& found, const LayerVariant& form) {
  return found.faster >= form.margin;
}

/// All that the time of a layer's forms depends on, and where it is measured.
std::string key_of(const Trial& trial, const Forms& forms, bool far) {
  const kernels::ConvConfig& config = trial.config;
  const kernels::ConvShape& s = config.shape;
  std::ostringstream key;
  key << measuring_machine() << ": " << forms.plain->name() << ' ' << s.in_channels << " -> "
      << s.out_channels << ' ' << to_string(config.output);
  if (!kernels::is_linear(s)) {
    key << ", image " << s.in_h << 'x' << s.in_w << ", window " << s.kernel_h << 'x' << s.kernel_w
        << ", stride " << s.stride_h << 'x' << s.stride_w << ", pad " << s.pad_h << 'x' << s.pad_w
        << ", dilation " << s.dilation_h << 'x' << s.dilation_w << ", groups " << s.groups;
  } else if (s.in_h * s.in_w > 1) {
    key << ", " << s.in_h * s.in_w << " pixels";
  }
  if (config.residual) key << ", residual " << to_string(config.residual_type);
  key << ", activation " << enum_name(config.activation);
  for (const LayerVariant& form : forms.others) key << "; " << form.layer->name() << ' ' << form.what;
  key << "; items";
  for (const int64_t count : trial.items) key << ' ' << count;
  if (far) key << "; out of the cache";
  return std::move(key).str();
}

/// As the table has it, or measured and put there; none where there is no time left for that.
std::vector<FormFinding> look_up(TimingCache& table, const Trial& trial, const Forms& forms, bool far) {
  const std::string key = key_of(trial, forms, far);
  const auto fits = [&](const std::vector<FormFinding>& findings) {
    return std::ranges::equal(findings, trial.items, {}, &FormFinding::items) &&
           std::ranges::all_of(findings, [&](const FormFinding& found) {
             const LayerVariant* form = form_of(found, forms.others);
             return form == nullptr ? found.kernel.empty() : found.items <= form->most_items;
           });
  };
  if (const auto* known = table.find(key); known != nullptr && fits(*known)) return *known;
  if (!table.has_time()) return {};
  Autotuner timer(trial.config, far);
  std::vector<FormFinding> findings;
  for (const int64_t count : trial.items) findings.push_back(find_best(timer, trial, forms.others, count));
  table.spend(timer.spent());
  table.put(key, findings);
  return findings;
}

/// "16x4 blocks, 75 % kept: left dense at 4 rows (1.08x slower); 1.13x faster at 64 rows"
std::string note_of(const std::vector<FormFinding>& findings, const std::vector<LayerVariant>& forms,
                    int64_t rows_per_item) {
  std::string note;
  const LayerVariant* last = nullptr;
  for (const FormFinding& found : findings) {
    const LayerVariant* form = form_of(found, forms);
    if (form == nullptr) continue;  // none is meant for so many rows
    if (!note.empty()) note += "; ";
    if (form != last) note += form->what + ": ";
    last = form;
    const int64_t rows = found.items * rows_per_item;
    const std::string ratio =
        found.faster >= 1 ? factor(found.faster) + " faster" : factor(1 / found.faster) + " slower";
    const std::string at = " at " + std::to_string(rows) + (rows == 1 ? " row" : " rows");
    note += is_taken(found, *form) ? ratio + at : form->else_left + at + " (" + ratio + ")";
  }
  return note;
}

/// One layer, or several by their numbers of items.
std::shared_ptr<const Conv> join(const std::shared_ptr<const Conv>& plain,
                                 const std::vector<LayerVariant>& forms,
                                 const std::vector<FormFinding>& findings) {
  std::vector<FormsByItems::Part> parts;
  int64_t most = 0;  // items that the last part takes
  for (const FormFinding& found : findings) {
    const LayerVariant* form = form_of(found, forms);
    if (form != nullptr && !is_taken(found, *form)) form = nullptr;
    const std::shared_ptr<const Conv>& layer = form == nullptr ? plain : form->layer;
    if (parts.empty() || parts.back().layer != layer) {
      // The numbers are a factor of four apart: half way between two of them.
      parts.push_back({parts.empty() ? 0 : std::min(found.items / 2, most + 1), layer});
    }
    most = form == nullptr ? kAnyNumber : form->most_items;
  }
  if (parts.size() == 1) return parts[0].layer;
  return std::make_shared<const FormsByItems>(std::move(parts));
}

/// The fastest form, or the plain one where there is no memory or no time to find out.
LayerForm measured_form(TimingCache& table, const Forms& forms, const ItemRange& items,
                        size_t constant_bytes) {
  const bool far = constant_bytes > static_cast<size_t>(kernels::second_level_cache());
  const LayerVariant& first = forms.others.front();
  const auto unmeasured = [&](const char* why) {
    return LayerForm{forms.plain, first.what + "; " + first.else_left + ": " + why};
  };
  if (!table.has_time() && table.empty()) return unmeasured("the time for measuring is over");
  try {
    const Trial trial = make_trial(forms, items, table.most_bytes(), far);
    if (trial.items.empty()) return unmeasured("too large to measure");
    const std::vector<FormFinding> findings = look_up(table, trial, forms, far);
    if (findings.empty()) return unmeasured("the time for measuring is over");
    const int64_t rows_per_item = trial.config.shape.in_h * trial.config.shape.in_w;
    return {join(forms.plain, forms.others, findings), note_of(findings, forms.others, rows_per_item)};
  } catch (const std::bad_alloc&) {
    // The layer is packed already; only measuring it takes more.
    return unmeasured("too large to measure");
  }
}

}  // namespace

bool may_leave_zeros_out(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                         const PackRules& rules) {
  if (rules.sparse == SparseWeights::never) return false;
  const Choices choices = choices_of(config, weights, rules.sparse == SparseWeights::always);
  return choices.blocks || choices.bits;
}

LayerForm make_layer_form(const kernels::ConvConfig& config, const kernels::ConvWeights& weights,
                          kernels::Isa isa, const PackRules& rules, const ItemRange& items) {
  Forms forms{config, weights, isa, kernels::make_conv(config, weights, isa)};
  const bool always = rules.sparse == SparseWeights::always;
  if (rules.sparse != SparseWeights::never) add_sparse(forms, always);
  if (always && !forms.others.empty()) return {forms.others[0].layer, forms.others[0].what};
  const std::string left = add_narrow(forms, rules.error_budget);
  std::erase_if(forms.others, [&](const LayerVariant& form) { return form.most_items < items.low; });
  if (forms.others.empty()) return {forms.plain, left};
  return measured_form(*rules.measured, forms, items, rules.constant_bytes);
}

}  // namespace ulp::runtime
