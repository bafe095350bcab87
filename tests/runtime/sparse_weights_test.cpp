// Engines with weights of zero: the same bits whatever the engine does with them.
#include "ulp/runtime/ops/sparse_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "support.h"
#include "ulp/base/error.h"
#include "ulp/kernels/isa/isa.h"

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

std::vector<StepProfile> linear_steps(const Plan& plan, const EngineOptions& options) {
  Engine engine(plan, options);
  std::vector<StepProfile> steps = profile_of(engine, make_inputs(plan, 2, 1), 2);
  std::erase_if(steps, [](const StepProfile& step) { return step.op != "linear"; });
  return steps;
}

/// 64 -> 64 by a 1x1 convolution; the first half of all outputs is zero.
Plan sparse_1x1(Numbers numbers, int64_t height, int64_t width, int64_t channels = 64) {
  Builder b(numbers, 3);
  b.output(b.leave(b.conv(b.enter(b.input({kBatch, channels, height, width})), channels, Window{})));
  const std::span<std::byte> weight = writable(b.plan, b.plan.steps[1].constants.at("weight"));
  std::fill_n(weight.begin(), weight.size() / 2, std::byte{0});
  return b.plan;
}

/// The same over images of any width up to this one.
Plan sparse_1x1_of_any_width(int64_t most) {
  Plan plan = sparse_1x1(Numbers::f32, 1, most);
  plan.following.free = {{"width", 1, most}};
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    plan.following.numbers.push_back({"/tensors/" + std::to_string(i) + "/shape/3", {{{1, 1, {1}}}}});
  return plan;
}

/// What was measured of a plan's only layer with zeros, by the table: images, and the pixels of each.
struct Measured {
  std::vector<int64_t> items;
  int64_t pixels = 1;
};
Measured measured_of(const Plan& plan, size_t max_arena_bytes) {
  const TemporaryFolder folder;
  Engine(plan, {.threads = 1,
                .isa = "portable",  // scratch differs between instruction sets
                .max_arena_bytes = max_arena_bytes,
                .sparse_table = folder / "table"});
  Measured out;
  if (!std::filesystem::exists(folder / "table")) return out;
  const nlohmann::json json = read_json(folder / "table");
  for (const auto& [layer, findings] : json["layers"].items()) {
    const size_t end = layer.find(" pixels");
    if (end != std::string::npos) out.pixels = std::stoll(layer.substr(layer.rfind(' ', end - 1)));
    for (const auto& found : findings) out.items.push_back(found["items"]);
  }
  return out;
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
  nlohmann::json json = read_json(path);
  ASSERT_EQ(json["layers"].size(), 2U) << json;
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
  for (const char* finding :
       {R"({"items":1,"kernel":"x","faster":0})", R"({"items":1,"kernel":"x","faster":-1})",
        R"({"items":1,"kernel":"x","faster":1000.5})", R"({"items":1,"kernel":"x","faster":1e300})",
        R"({"items":1,"kernel":"x","faster":1e999})", R"({"items":1,"kernel":"","faster":1})"}) {
    std::ofstream(path) << R"({"type":"ulp sparse table","version":1,"layers":{"a":[)" << finding << "]}}";
    EXPECT_THROW(Engine(net.plan, {.sparse_table = path}), Error) << finding;
  }
  EXPECT_THROW(Engine(net.plan, {.sparse_table = folder.path()}), Error);
  EXPECT_THROW(Engine(net.plan, {.sparse_table = folder.path() / "no" / "folder.json"}), Error);
  EXPECT_THROW(Engine(net.plan,
                      {.sparse = SparseWeights::never, .sparse_table = folder.path() / "no" / "folder.json"}),
               Error);
}

TEST(SparseWeights, ATableThatCannotBeWrittenIsDoneWithout) {
  const TemporaryFolder folder;
  constexpr size_t kTooLong = 300;  // for the name of a file
  const SparseNet net = sparse_net(Numbers::u8, 8);
  const std::vector<StepProfile> steps =
      linear_steps(net.plan, {.sparse_table = folder / std::string(kTooLong, 'a')});
  ASSERT_EQ(steps.size(), 2U);
  for (const StepProfile& step : steps)
    EXPECT_NE(step.note.find("16x4 blocks, 20 % kept: "), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SparseWeights, ATableThatNoLongerCanBeWrittenStopsNoNewSizes) {
  const TemporaryFolder folder;
  const std::filesystem::path inner = folder / "inner";
  std::filesystem::create_directory(inner);
  const Plan plan = sparse_1x1_of_any_width(40);
  Engine engine(plan, {.threads = 1, .sparse_table = inner / "table"}),
      dense(plan, {.sparse = SparseWeights::never});
  EXPECT_EQ(read_json(inner / "table")["layers"].size(), 1U);
  engine.set_sizes({{"width", 10}});
  EXPECT_EQ(read_json(inner / "table")["layers"].size(), 2U);
  std::filesystem::remove_all(inner);
  for (const int64_t width : {20, 10, 30}) {
    EXPECT_NO_THROW(engine.set_sizes({{"width", width}})) << width;
    dense.set_sizes({{"width", width}});
    Plan fixed = sparse_1x1(Numbers::f32, 1, width);
    const std::vector<Bytes> inputs = make_inputs(fixed, 2, 3);
    EXPECT_EQ(run_engine(engine, 2, inputs), run_engine(dense, 2, inputs)) << width;
  }
  EXPECT_FALSE(std::filesystem::exists(inner));
}

TEST(SparseWeights, ATableThatWouldBeTooLargeToReadIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "table";
  constexpr size_t kNearlyTooLarge = (size_t{8} << 20) - 200;
  std::ofstream(path) << R"({"type":"ulp sparse table","version":1,"layers":{")"
                      << std::string(kNearlyTooLarge, 'a') << R"(":[]}})";
  const uintmax_t bytes = std::filesystem::file_size(path);
  const SparseNet net = sparse_net(Numbers::u8, 8);
  for (int load = 0; load < 2; ++load) {
    EXPECT_NO_THROW(Engine(net.plan, {.threads = 1, .sparse_table = path}));
    EXPECT_EQ(std::filesystem::file_size(path), bytes);
  }
}

TEST(SparseWeights, ATableOfAnotherMachineIsMeasuredAnew) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "table";
  const SparseNet net = sparse_net(Numbers::u8, 3);
  const EngineOptions options{.isa = "portable", .sparse_table = path};
  linear_steps(net.plan, options);
  const nlohmann::json own = read_json(path);
  const std::string name = kernels::processor_name();
  const auto renamed = [&](const std::string& layer) { return "Another" + layer.substr(name.size()); };
  const auto with_half_a_cache = [](std::string layer) {
    const size_t end = layer.find(" KiB"), begin = layer.rfind(' ', end - 1) + 1;
    return layer.replace(begin, end - begin, std::to_string(std::stoll(layer.substr(begin)) / 2));
  };
  for (const std::function<std::string(std::string)>& change :
       {std::function<std::string(std::string)>(renamed),
        std::function<std::string(std::string)>(with_half_a_cache)}) {
    nlohmann::json other = own;
    other["layers"].clear();
    for (const auto& [layer, findings] : own["layers"].items()) {
      ASSERT_TRUE(layer.starts_with(name)) << layer;
      nlohmann::json& copied = other["layers"][change(layer)] = findings;
      for (auto& found : copied) found["faster"] = 777;
    }
    std::ofstream(path) << other;
    for (const StepProfile& step : linear_steps(net.plan, options))
      EXPECT_EQ(step.note.find("777"), std::string::npos) << step.note;
    EXPECT_EQ(read_json(path)["layers"].size(), 2 * own["layers"].size());  // that machine's are kept
  }
}

TEST(SparseWeights, LargeImagesAreMeasuredOnFewPixels) {
  for (const Numbers numbers : {Numbers::u8, Numbers::f32}) {
    const Plan plan = sparse_1x1(numbers, 40, 40);
    Engine dense(plan, {.sparse = SparseWeights::never}), measured(plan);
    const std::vector<Bytes> inputs = make_inputs(plan, 2, 7);
    EXPECT_EQ(run_engine(measured, 2, inputs), run_engine(dense, 2, inputs));
    const std::string note = profile_of(measured, inputs, 2)[1].note;
    EXPECT_TRUE(note.ends_with(" at 256 rows") || note.find(" at 256 rows (") != std::string::npos) << note;
  }
  // A size that would take 2 GB is measured as all others are.
  const Measured large = measured_of(sparse_1x1(Numbers::f32, 2048, 2048), size_t{64} << 20);
  EXPECT_EQ(large.items, std::vector<int64_t>{1});
  EXPECT_EQ(large.pixels, 256);
  // Small ones are measured as they are, and several at once.
  const Measured small = measured_of(sparse_1x1(Numbers::f32, 5, 5), 0);
  EXPECT_EQ(small.items, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(small.pixels, 25);
}

TEST(SparseWeights, MeasuringTakesNoMoreThanARunMay) {
  constexpr int64_t kRowBytes = 2 * 64 * 4, kWeightBytes = 64 * 64 * 4;
  const Plan images = sparse_1x1(Numbers::f32, 40, 40);
  int64_t before = 256;
  for (const int64_t limit : {400 << 10, 150 << 10, 80 << 10}) {
    const Measured found = measured_of(images, static_cast<size_t>(limit));
    ASSERT_EQ(found.items, std::vector<int64_t>{1}) << limit;
    EXPECT_LE(found.pixels * kRowBytes + 2 * kWeightBytes, limit);
    EXPECT_LE(found.pixels, before);
    before = found.pixels;
  }
  EXPECT_LT(before, 256);
  EXPECT_TRUE(measured_of(images, 40 << 10).items.empty());

  // Rows of a linear layer: 320 codes there, and 320 or 96 back.
  const SparseNet net = sparse_net(Numbers::u8, 8);
  EXPECT_EQ(measured_of(net.plan, 0).items, (std::vector<int64_t>{1, 4, 16, 1, 4, 16}));
  const Measured few = measured_of(net.plan, 12 << 10);
  EXPECT_FALSE(few.items.empty());
  for (const int64_t rows : few.items) EXPECT_LE(rows * 320, 12 << 10);
  EXPECT_LT(few.items.size(), 6U);
}

TEST(SparseWeights, ALayerThatIsTooLargeToMeasureStaysDenseAndSaysSo) {
  // An image takes 1.2 MB, twice the weights 2 MB.
  const Plan plan = sparse_1x1(Numbers::f32, 17, 17, 512);
  Engine engine(plan, {.threads = 1, .max_arena_bytes = size_t{2} << 20});
  const StepProfile step = profile_of(engine, make_inputs(plan, 1, 1), 1)[1];
  EXPECT_EQ(step.note, "16x1 blocks, 50 % kept; left dense: too large to measure");
  EXPECT_EQ(step.kernel.find("conv_"), 0U) << step.kernel;
}

TEST(SparseWeights, RowsOfTooManyBlocksMakeABitmask) {
  Builder b(Numbers::u8, 5);
  constexpr int64_t kInputs = 4 * 65536 + 4;  // one block more than a row of blocks may have
  b.output(b.leave(b.linear(b.enter(b.input({kBatch, kInputs}), Layout::plain), 16)));
  const std::string name = b.plan.steps[1].constants.at("weight");
  scatter(writable(b.plan, name));
  clear_blocks<int8_t>(b.plan, name, 4, 5);
  Engine dense(b.plan, {.threads = 1, .isa = "portable", .sparse = SparseWeights::never}),
      always(b.plan, {.threads = 1, .isa = "portable", .sparse = SparseWeights::always});
  const std::vector<Bytes> inputs = make_inputs(b.plan, 2, 7);
  EXPECT_EQ(run_engine(always, 2, inputs), run_engine(dense, 2, inputs));
  const StepProfile step = profile_of(always, inputs, 2)[1];
  EXPECT_EQ(step.kernel, "linear_s8_bitmask_portable");
  EXPECT_EQ(step.note, "bitmask, 10 % kept");
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
