// Hand-made plans, deterministic data, and an interpreter of plans in plain loops to compare engines with.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "temporary_folder.h"
#include "ulp/base/parallel.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::runtime::testing {

using Bytes = std::vector<std::byte>;

/// A small generator whose numbers are the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761U + 88172645463325252ULL) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  /// In [low, high].
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return integer(1, 100) <= percent; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(integer(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  uint64_t state_;
};

template <typename T>
Constant constant_of(DataType type, std::vector<int64_t> shape, const std::vector<T>& values) {
  Constant constant{type, std::move(shape), Bytes(values.size() * sizeof(T))};
  std::memcpy(constant.bytes.data(), values.data(), constant.bytes.size());
  return constant;
}

/// The constant of a step in this role.
inline Constant& constant(Plan& plan, const Step& step, const char* role) {
  return plan.constants.at(step.constants.at(role));
}

/// What kind of numbers a plan computes with.
enum class Numbers { f32, bf16, u8 };
DataType type_of(Numbers numbers);

/// The attribute that several ops have.
Activation activation_of(const Step& step);

/// Adds layers to a plan; each call returns the index of the new tensor, its shape inferred. Weights and
/// biases are small integers, so that sums are exact in every order of summation.
class Builder {
 public:
  explicit Builder(Numbers numbers, uint64_t seed = 1) : numbers_(numbers), random_(seed) {}

  int32_t input(std::vector<int64_t> shape, DataType type = DataType::f32, Layout layout = Layout::plain);
  /// To the plan's number type and nhwc.
  int32_t enter(int32_t x);
  int32_t enter(int32_t x, Layout layout);
  /// To f32 and plain.
  int32_t leave(int32_t x);
  int32_t conv(int32_t x, int64_t channels, Window window, Activation activation = Activation::none,
               int64_t groups = 1, int32_t residual = -1);
  int32_t linear(int32_t x, int64_t features, Activation activation = Activation::none);
  int32_t op(Op op, std::vector<int32_t> inputs, const Attributes& attributes);
  /// With the op's attributes at their defaults.
  int32_t op(Op op, std::vector<int32_t> inputs) {
    return this->op(op, std::move(inputs), default_attributes(op));
  }
  int32_t slice(int32_t x, int64_t begin, int64_t length) {
    return op(Op::slice, {x}, SliceAttributes{begin, length});
  }
  /// A step of f32 that lacks its constants only, which have these shapes: f32, or i8 where they have a scale.
  int32_t text(Step step, const std::vector<std::pair<const char*, std::vector<int64_t>>>& constants = {},
               Layout layout = Layout::plain);
  /// A step without constants whose result, in plain order, has this type.
  int32_t typed(Step step, DataType type) { return append(std::move(step), type, Layout::plain); }
  /// A step over signs with random constants of its own: those named, and a weight of `outputs` but for binarize. With a
  /// threshold, or from binarize, the result is bits. `map`: a scale for each output element.
  int32_t signs(Step step, const std::vector<const char*>& constants, int64_t outputs = 0, bool map = false);
  /// lstm or gru over [N, steps, features].
  int32_t recurrent(Op op, int32_t x, int64_t hidden, bool int8, bool reverse = false,
                    bool per_tensor = false);
  /// The same that begins with these states, and, as an lstm, gives c behind its steps.
  int32_t recurrent_from(Op op, int32_t x, const std::vector<int32_t>& states, bool int8, bool reverse);
  void output(int32_t x) { plan.outputs.push_back(x); }

  const TensorInfo& info(int32_t x) const { return plan.tensors[static_cast<size_t>(x)]; }
  Random& random() { return random_; }
  Plan plan;

 private:
  int32_t recurrent(Step step, int64_t hidden, bool int8);
  int32_t append(Step step, DataType type, Layout layout);
  void weights(Step& step, const std::vector<int64_t>& shape);

  Numbers numbers_;
  Random random_;
};

/// conv + relu, a residual block, pooling, a linear layer: every op once.
Plan small_network(Numbers numbers);

/// A classifier of texts of 6 ids below 11: every op on tokens once.
Plan small_text_network();

/// Signs of 12 channels through convolutions of both paddings and both kinds of results, and a linear layer.
Plan small_binary_network();

/// Inputs for a plan: whole numbers in [-4, 4], ids in [0, 4], as raw bytes.
std::vector<Bytes> make_inputs(const Plan& plan, int64_t batch, uint64_t seed);
/// Runs the plan in plain loops.
std::vector<Bytes> run_plainly(const Plan& plan, int64_t batch, const std::vector<Bytes>& inputs);
/// Runs an engine on buffers of exactly the right size.
std::vector<Bytes> run_engine(Engine& engine, int64_t batch, const std::vector<Bytes>& inputs);
/// What its steps did.
std::vector<StepProfile> profile_of(Engine& engine, const std::vector<Bytes>& inputs, int64_t batch);
/// The same on a context of the engine.
std::vector<Bytes> run_context(const Engine& engine, Context& context, int64_t batch,
                               const std::vector<Bytes>& inputs);

/// Every element bit-equal, or for f32 and bf16 within `steps` representable numbers; prints the first that
/// is not.
void expect_same(const TensorInfo& info, const Bytes& expected, const Bytes& got, int steps = 0);

/// Gives each constant of a good plan every other shape of three dimensions, and type, of as many bytes. Each time an engine
/// refuses the plan or runs it; both must happen.
void expect_other_shapes_survived(const Plan& good);

/// Waits until it comes true, however slow the machine is; gives false where it never does.
template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// A run of so many tasks, which wait a little for a helper: whether one came.
bool gets_help(const Parallel& pool, int64_t tasks, std::chrono::milliseconds patience);

/// What a file holds.
nlohmann::json read_json(const std::filesystem::path& path);

using ulp::test::TemporaryFolder;

}  // namespace ulp::runtime::testing
