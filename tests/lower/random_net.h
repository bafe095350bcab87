// Random small networks: a module whose forward follows a recipe that is drawn from a seed. What may stand in
// a recipe is in the tables of the files random_*.cpp.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace ulp::test::recipe {

/// Numbers that are the same with every standard library.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  /// In [0, count).
  int64_t below(int64_t count) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count)); }
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 0; }
  template <typename T>
  T one_of(std::initializer_list<T> items) {
    return items.begin()[below(static_cast<int64_t>(items.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

/// One step of a recipe. Values are counted from the inputs on; a step makes one.
struct RandomStep {
  std::string words;
  std::vector<size_t> reads;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> apply;
};

/// What a recipe is drawn with.
struct RandomRules {
  int64_t steps = 12;
  /// Functions with jumps (floor, comparisons), of values that rounding cannot have changed.
  bool jumps = true;
};

/// The network of a seed. Networks of one seed and fewer steps begin in the same way.
class RandomNet : public torch::nn::Module {
 public:
  explicit RandomNet(uint64_t seed, const RandomRules& rules = {});
  RandomNet(const RandomNet&) = delete;
  RandomNet& operator=(const RandomNet&) = delete;

  /// All values that no step reads, the last one first. With `noise`, the inputs and each step's result move
  /// by up to noise times their largest element, so that the results move as rounding to a format of this
  /// epsilon moves them.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, double noise = 0) const;
  /// Normal numbers of the inputs' sizes, drawn from the global random state.
  std::vector<at::Tensor> draw(int64_t batch) const;
  /// A line for each input and step, with the sizes.
  std::string words() const;

  // For what draws steps.
  Dice dice;
  /// A value as it is for a batch of 2; never empty.
  const at::Tensor& value(size_t index) const { return values_[index]; }
  size_t values() const { return values_.size(); }
  /// True for values that are the inputs' elements, moved.
  bool is_exact(size_t index) const { return exact_[index]; }
  const RandomRules& rules() const { return rules_; }
  /// Registers a layer under a name of its own.
  template <typename Holder>
  Holder layer(Holder made) {
    return register_module("layer" + std::to_string(layers_++), made);
  }
  /// Registers a parameter of normal numbers over the square root of the last size.
  at::Tensor parameter(std::vector<int64_t> sizes);

 private:
  void add_input(std::vector<int64_t> item);
  bool add_step();
  bool accept(const at::Tensor& made) const;

  RandomRules rules_;
  std::vector<std::vector<int64_t>> items_;
  std::vector<RandomStep> steps_;
  std::vector<at::Tensor> values_;
  std::vector<bool> exact_;
  int layers_ = 0;
};

/// Draws a step that reads value x (and perhaps others); nothing where the value does not suit.
using DrawStep = std::optional<RandomStep> (*)(RandomNet& net, size_t x);

/// Steps of one kind. A recipe draws a family first, so that each is as frequent.
struct RandomFamily {
  std::span<const DrawStep> steps;
  bool moves = false;  ///< the results are the elements of the operands, and zeros
};
RandomFamily random_elementwise();
RandomFamily random_pairs();
RandomFamily random_reductions();
RandomFamily random_moves();
RandomFamily random_joins();
RandomFamily random_products();
RandomFamily random_layers();
RandomFamily random_image_layers();
RandomFamily random_norms();

/// Words of anything that streams.
template <typename... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// A step of one operand.
inline RandomStep step_on(size_t x, std::string words, std::function<at::Tensor(const at::Tensor&)> apply) {
  return {std::move(words), {x}, [apply = std::move(apply)](const std::vector<at::Tensor>& operands) {
            return apply(operands[0]);
          }};
}

}  // namespace ulp::test::recipe
