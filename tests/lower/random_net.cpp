#include "random_net.h"

#include <algorithm>

namespace ulp::test::recipe {

namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kMostElements = 4000, kMostDims = 5;
constexpr int kTries = 60;
constexpr double kLargest = 60, kSmallest = 1e-3;

/// "[N, 3, 8, 8]".
std::string sizes_words(const at::Tensor& tensor) {
  std::string words = "[N";
  for (const int64_t size : tensor.sizes().slice(1)) words += ", " + std::to_string(size);
  return words + "]";
}

at::Tensor moved_by(const at::Tensor& x, double noise) {
  if (noise == 0 || !x.is_floating_point()) return x;
  return x + noise * x.abs().max() * (2 * torch::rand_like(x) - 1);
}

}  // namespace

RandomNet::RandomNet(uint64_t seed, const RandomRules& rules) : dice(seed), rules_(rules) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(seed);
  const auto size = [&](int64_t most) { return dice.between(2, most); };
  std::vector<int64_t> item;
  switch (dice.below(4)) {
    case 0:
      item = {size(40)};
      break;
    case 1:
      item = {size(12), size(12)};
      break;
    default:
      item = {dice.one_of<int64_t>({1, 3, 4, 6, 8}), size(10), size(10)};
  }
  add_input(item);
  if (dice.below(3) == 0) add_input(item);
  eval();
  for (int64_t i = 0; i < rules.steps && add_step(); ++i) {
  }
}

void RandomNet::add_input(std::vector<int64_t> item) {
  items_.push_back(item);
  item.insert(item.begin(), kBatch);
  values_.push_back(torch::randn(item));
  exact_.push_back(true);
}

at::Tensor RandomNet::parameter(std::vector<int64_t> sizes) {
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.back()));
  return register_parameter("parameter" + std::to_string(layers_++), torch::randn(sizes) * scale);
}

bool RandomNet::accept(const at::Tensor& made) const {
  if (made.dim() < 1 || made.dim() > kMostDims || made.size(0) != kBatch) return false;
  if (made.numel() == 0 || made.numel() > kBatch * kMostElements || !made.is_floating_point()) return false;
  const double largest = made.abs().max().item<double>();
  return largest < kLargest && largest > kSmallest;  // false for NaN, too
}

bool RandomNet::add_step() {
  using MakeFamily = RandomFamily (*)();
  static constexpr MakeFamily kFamilies[] = {random_elementwise, random_elementwise,  random_pairs,
                                             random_reductions,  random_moves,        random_moves,
                                             random_joins,       random_products,     random_layers,
                                             random_layers,      random_image_layers, random_norms};
  for (int i = 0; i < kTries; ++i) {
    const RandomFamily family = kFamilies[dice.below(std::size(kFamilies))]();
    const size_t last = values_.size() - 1;
    const size_t x = dice.below(3) > 0 ? last : static_cast<size_t>(dice.below(std::ssize(values_)));
    const DrawStep draw = family.steps[static_cast<size_t>(dice.below(std::ssize(family.steps)))];
    std::optional<RandomStep> step = draw(*this, x);
    if (!step) continue;
    eval();  // the step's new layers, too
    std::vector<at::Tensor> operands;
    bool exact = family.moves;
    for (const size_t read : step->reads) {
      operands.push_back(values_[read]);
      exact = exact && exact_[read];
    }
    const at::Tensor made = step->apply(operands);
    if (!accept(made)) continue;
    steps_.push_back(*std::move(step));
    values_.push_back(made);
    exact_.push_back(exact);
    return true;
  }
  return false;
}

std::vector<at::Tensor> RandomNet::run(const std::vector<at::Tensor>& inputs, double noise) const {
  std::vector<at::Tensor> values, operands, results;
  std::vector<bool> read(inputs.size() + steps_.size());
  for (const at::Tensor& input : inputs) values.push_back(moved_by(input, noise));
  for (const RandomStep& step : steps_) {
    operands.clear();
    for (const size_t index : step.reads) {
      operands.push_back(values[index]);
      read[index] = true;
    }
    values.push_back(moved_by(step.apply(operands), noise));
  }
  for (size_t i = values.size(); i-- > inputs.size();) {
    if (!read[i]) results.push_back(values[i]);
  }
  return results;
}

std::vector<at::Tensor> RandomNet::draw(int64_t batch) const {
  std::vector<at::Tensor> inputs;
  for (std::vector<int64_t> sizes : items_) {
    sizes.insert(sizes.begin(), batch);
    inputs.push_back(torch::randn(sizes));
  }
  return inputs;
}

std::string RandomNet::words() const {
  std::string text;
  for (size_t i = 0; i < values_.size(); ++i) {
    text += say("  %", i, " ", sizes_words(values_[i]), " = ");
    if (i < items_.size()) {
      text += "input\n";
      continue;
    }
    const RandomStep& step = steps_[i - items_.size()];
    text += step.words + " of";
    for (const size_t read : step.reads) text += say(" %", read);
    text += "\n";
  }
  return text;
}

}  // namespace ulp::test::recipe
