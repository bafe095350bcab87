// Engines with weights of zero: the same bits whatever the engine does with them.
#include "ulp/runtime/ops/sparse_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "support.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

std::span<std::byte> writable(Plan& plan, const std::string& name) {
  SharedBytes& bytes = plan.constants.at(name).bytes;
  return {bytes.data(), bytes.size()};
}

/// One in five is not zero, anywhere.
void scatter(std::span<std::byte> weights) {
  Random random(3);
  for (std::byte& weight : weights)
    weight = static_cast<std::byte>(random.chance(20) ? random.integer(1, 3) : 0);
}

/// Sets whole blocks of 16 outputs to zero: of every ten units of `inputs` inputs the first `zeros`.
template <typename T>
void clear_blocks(Plan& plan, const std::string& name, int64_t inputs, int64_t zeros) {
  const std::vector<int64_t> shape = plan.constants.at(name).shape;
  const int64_t out = shape[0], in = shape[1];
  T* values = reinterpret_cast<T*>(writable(plan, name).data());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      if ((o / 16 + i / inputs) % 10 < zeros) values[o * in + i] = T{0};
    }
  }
}

struct SparseNet {
  Plan plan;
  std::vector<std::string> weights;
};

/// 320 -> 320 -> 96.
SparseNet sparse_net(Numbers numbers, int64_t zeros, std::vector<int64_t> shape = {kBatch, 320}) {
  Builder b(numbers, 3);
  int32_t x = b.enter(b.input(shape), Layout::plain);
  x = b.linear(x, 320, Activation::relu);
  x = b.linear(x, 96);
  b.output(b.leave(x));
  SparseNet net{b.plan, {}};
  for (const Step& step : net.plan.steps) {
    if (step.op != Op::linear) continue;
    const std::string name = step.constants.at("weight");
    net.weights.push_back(name);
    if (numbers == Numbers::u8) std::ranges::replace(writable(net.plan, name), std::byte{0}, std::byte{1});
    if (numbers == Numbers::u8) clear_blocks<int8_t>(net.plan, name, 4, zeros);
    if (numbers == Numbers::f32) clear_blocks<float>(net.plan, name, 1, zeros);
    if (numbers == Numbers::bf16) clear_blocks<uint16_t>(net.plan, name, 1, zeros);
  }
  return net;
}

std::vector<StepProfile> profile_of(Engine& engine, const std::vector<Bytes>& inputs, int64_t batch) {
  std::vector<Bytes> outputs;
  std::vector<void*> out;
  std::vector<const void*> in;
  for (const TensorInfo& info : engine.outputs()) outputs.emplace_back(byte_count(info, batch));
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  return engine.profile(batch, in, out);
}

std::vector<StepProfile> linear_steps(const Plan& plan, const EngineOptions& options) {
  Engine engine(plan, options);
  std::vector<StepProfile> steps = profile_of(engine, make_inputs(plan, 2, 1), 2);
  std::erase_if(steps, [](const StepProfile& step) { return step.op != "linear"; });
  return steps;
}

TEST(SparseWeights, EveryWayGivesTheSameBits) {
  for (const Numbers numbers : {Numbers::u8, Numbers::f32, Numbers::bf16}) {
    for (const int64_t zeros : {0, 3, 8, 10}) {
      const SparseNet net = sparse_net(numbers, zeros);
      Engine dense(net.plan, {.threads = 1, .sparse = SparseWeights::never});
      Engine always(net.plan, {.threads = 2, .sparse = SparseWeights::always});
      Engine measured(net.plan, {.threads = 1});
      for (const int64_t batch : {1, 2, 5, 17, 70}) {
        const std::vector<Bytes> inputs = make_inputs(net.plan, batch, static_cast<uint32_t>(batch));
        const std::vector<Bytes> expected = run_engine(dense, batch, inputs);
        EXPECT_EQ(run_engine(always, batch, inputs), expected) << zeros << " of 10, batch " << batch;
        EXPECT_EQ(run_engine(measured, batch, inputs), expected) << zeros << " of 10, batch " << batch;
      }
    }
  }
}

TEST(SparseWeights, ProfilesSayWhichKernelAndWhy) {
  const SparseNet net = sparse_net(Numbers::u8, 8);
  for (const StepProfile& step :
       linear_steps(net.plan, {.isa = "portable", .sparse = SparseWeights::always})) {
    EXPECT_EQ(step.kernel, "linear_s8_16x4_portable");
    EXPECT_EQ(step.note, "16x4 blocks, 20 % kept");
  }
  for (const StepProfile& step :
       linear_steps(net.plan, {.isa = "portable", .sparse = SparseWeights::never})) {
    EXPECT_EQ(step.kernel, "conv_u8_portable");
    EXPECT_EQ(step.note, "");
  }
  // What is faster depends on the machine; that it was measured does not.
  for (const StepProfile& step : linear_steps(net.plan, {.isa = "portable"})) {
    EXPECT_NE(step.note.find("16x4 blocks, 20 % kept: "), std::string::npos) << step.note;
    EXPECT_NE(step.note.find(" at 1 row"), std::string::npos) << step.note;
    EXPECT_NE(step.note.find(" at 16 rows"), std::string::npos) << step.note;
  }
}

TEST(SparseWeights, NothingIsSaidOfWeightsWithoutZeros) {
  for (const Numbers numbers : {Numbers::u8, Numbers::f32}) {
    for (const StepProfile& step : linear_steps(sparse_net(numbers, 0).plan, {})) {
      EXPECT_EQ(step.note, "");
      EXPECT_EQ(step.kernel.find("conv_"), 0U) << step.kernel;
    }
  }
}

TEST(SparseWeights, ScatteredZerosOf8BitsMakeABitmask) {
  SparseNet net = sparse_net(Numbers::u8, 0);
  for (const std::string& name : net.weights) {
    const std::span<std::byte> bytes = writable(net.plan, name);
    scatter(bytes);
  }
  for (const StepProfile& step :
       linear_steps(net.plan, {.isa = "portable", .sparse = SparseWeights::always})) {
    EXPECT_EQ(step.kernel, "linear_s8_bitmask_portable");
    EXPECT_EQ(step.note, "bitmask, 20 % kept");
  }
  Engine dense(net.plan, {.sparse = SparseWeights::never}),
      always(net.plan, {.sparse = SparseWeights::always}), measured(net.plan);
  for (const int64_t batch : {1, 3, 4, 5, 9}) {
    const std::vector<Bytes> inputs = make_inputs(net.plan, batch, 7);
    const std::vector<Bytes> expected = run_engine(dense, batch, inputs);
    EXPECT_EQ(run_engine(always, batch, inputs), expected);
    EXPECT_EQ(run_engine(measured, batch, inputs), expected);
  }
}

TEST(SparseWeights, LayersBeyondTheCacheAreMeasuredThere) {
  Builder b(Numbers::u8, 9);
  b.output(b.leave(b.linear(b.enter(b.input({kBatch, 1700}), Layout::plain), 1700)));
  const std::string name = b.plan.steps[1].constants.at("weight");
  const std::span<std::byte> weight = writable(b.plan, name);
  scatter(weight);
  Engine dense(b.plan, {.threads = 1, .sparse = SparseWeights::never}), measured(b.plan, {.threads = 1});
  for (const int64_t batch : {1, 4, 7}) {
    const std::vector<Bytes> inputs = make_inputs(b.plan, batch, 7);
    EXPECT_EQ(run_engine(measured, batch, inputs), run_engine(dense, batch, inputs));
  }
  const std::string note = profile_of(measured, make_inputs(b.plan, 1, 1), 1)[1].note;
  EXPECT_NE(note.find("bitmask, 20 % kept: "), std::string::npos) << note;
  EXPECT_EQ(note.find("16 rows"), std::string::npos) << note;  // bitmasks are for four
}

TEST(SparseWeights, ASavedTableDecides) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "measured.json";
  const SparseNet net = sparse_net(Numbers::u8, 3);
  const EngineOptions options{.isa = "portable", .sparse_table = path};
  const std::vector<StepProfile> measured = linear_steps(net.plan, options);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  nlohmann::json json = nlohmann::json::parse(text.str());
  ASSERT_EQ(json["layers"].size(), 2U) << text.str();
  // Another load finds the same; one with other numbers in the table does as they say.
  for (size_t i = 0; i < measured.size(); ++i)
    EXPECT_EQ(linear_steps(net.plan, options)[i].note, measured[i].note);
  for (const double faster : {2.5, 0.5}) {
    for (auto& [layer, findings] : json["layers"].items()) {
      for (auto& found : findings) found["faster"] = faster;
    }
    std::ofstream(path) << json;
    for (const StepProfile& step : linear_steps(net.plan, options)) {
      EXPECT_EQ(step.kernel, faster > 1 ? "linear_s8_16x4_portable" : "conv_u8_portable");
      EXPECT_EQ(
          step.note,
          faster > 1
              ? "16x4 blocks, 70 % kept: 2.50x faster at 1 row; 2.50x faster at 4 rows; 2.50x faster at 16 "
                "rows"
              : "16x4 blocks, 70 % kept: left dense at 1 row (2.00x slower); left dense at 4 rows (2.00x "
                "slower); left dense at 16 rows (2.00x slower)");
    }
  }
  // Few rows one way, many the other one.
  for (auto& [layer, findings] : json["layers"].items()) findings[0]["faster"] = 3.0;
  std::ofstream(path) << json;
  for (const StepProfile& step : linear_steps(net.plan, options))
    EXPECT_EQ(step.kernel, "linear_s8_16x4_portable / conv_u8_portable");
  Engine both(net.plan, options), dense(net.plan, {.sparse = SparseWeights::never});
  for (const int64_t batch : {1, 2, 40}) {
    const std::vector<Bytes> inputs = make_inputs(net.plan, batch, 3);
    EXPECT_EQ(run_engine(both, batch, inputs), run_engine(dense, batch, inputs));
  }
}

TEST(SparseWeights, ATableThatIsNoneIsRefusedByName) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "measured.json";
  const SparseNet net = sparse_net(Numbers::u8, 8);
  for (const char* text :
       {"", "[]", "{", R"({"type":"ulp sparse table","version":2,"layers":{}})",
        R"({"type":"ulp sparse table","version":1,"layers":{"a":[{"items":0,"kernel":"","faster":1}]}})",
        R"({"type":"ulp sparse table","version":1,"layers":{"a":[{"items":1}]}})",
        R"({"type":"ulp sparse table","version":1,"layers":{"a":[{"items":"x","kernel":1,"faster":1}]}})"}) {
    std::ofstream(path) << text;
    try {
      Engine engine(net.plan, {.sparse_table = path});
      ADD_FAILURE() << "took " << text;
    } catch (const Error& found) {
      EXPECT_NE(std::string(found.what()).find(path.string()), std::string::npos) << found.what();
    }
  }
  EXPECT_THROW(Engine(net.plan, {.sparse_table = folder.path() / "no" / "folder.json"}), Error);
}

TEST(SparseWeights, A1x1ConvolutionIsALinearLayer) {
  Builder b(Numbers::u8, 5);
  int32_t x = b.enter(b.input({kBatch, 64, 5, 5}));
  x = b.conv(x, 96, Window{});
  x = b.conv(x, 64, Window{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1});
  b.output(b.leave(x));
  const std::span<std::byte> weight = writable(b.plan, b.plan.steps[1].constants.at("weight"));
  for (size_t i = 0; i < weight.size(); ++i) {
    if (i % 64 < 40) weight[i] = std::byte{0};
  }
  Engine dense(b.plan, {.sparse = SparseWeights::never}), always(b.plan, {.sparse = SparseWeights::always}),
      measured(b.plan);
  for (const int64_t batch : {1, 3, 20}) {
    const std::vector<Bytes> inputs = make_inputs(b.plan, batch, 7);
    const std::vector<Bytes> expected = run_engine(dense, batch, inputs);
    EXPECT_EQ(run_engine(always, batch, inputs), expected);
    EXPECT_EQ(run_engine(measured, batch, inputs), expected);
  }
  const std::vector<StepProfile> profile = profile_of(always, make_inputs(b.plan, 1, 1), 1);
  EXPECT_EQ(profile[1].kernel.find("linear_s8_16x4_"), 0U) << profile[1].kernel;
  EXPECT_EQ(profile[2].kernel.find("conv_u8_"), 0U) << profile[2].kernel;
  EXPECT_NE(profile_of(measured, make_inputs(b.plan, 1, 1), 1)[1].note.find(" at 25 rows"),
            std::string::npos);
}

TEST(SparseWeights, RowsOfAFixedBatchAreMeasuredAlone) {
  const SparseNet net = sparse_net(Numbers::u8, 8, {6, 320});
  Engine engine(net.plan);
  for (const StepProfile& step : profile_of(engine, make_inputs(net.plan, 1, 1), 1)) {
    if (step.op != "linear") continue;
    EXPECT_NE(step.note.find(" at 6 rows"), std::string::npos) << step.note;
    EXPECT_EQ(step.note.find(';'), std::string::npos) << step.note;
  }
}

}  // namespace
}  // namespace ulp::runtime
