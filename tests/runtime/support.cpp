#include "support.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plain_loops.h"

namespace ulp::runtime::testing {

DataType type_of(Numbers numbers) {
  return numbers == Numbers::f32 ? DataType::f32 : numbers == Numbers::bf16 ? DataType::bf16 : DataType::u8;
}

Activation activation_of(const Step& step) {
  const auto get = [](const auto& own) {
    if constexpr (requires { own.activation; }) return own.activation;
    return Activation::none;
  };
  return std::visit(get, step.attributes);
}

namespace {

/// The output has the input's scale and zero point.
bool keeps_numbers(Op op) {
  constexpr Op kOnes[] = {Op::relu,
                          Op::max_pool,
                          Op::flatten,
                          Op::slice,
                          Op::channel_shuffle,
                          Op::select,
                          Op::depth_to_space,
                          Op::resize_nearest,
                          Op::resize_bilinear,
                          Op::resize_bicubic,
                          Op::unsqueeze,
                          Op::squeeze,
                          Op::move,
                          Op::pad,
                          Op::gather,
                          Op::scatter,
                          Op::sort};
  return std::ranges::find(kOnes, op) != std::end(kOnes);
}

}  // namespace

int32_t Builder::input(std::vector<int64_t> shape, DataType type, Layout layout) {
  const auto index = static_cast<int32_t>(plan.tensors.size());
  plan.tensors.push_back({"input" + std::to_string(index), type, std::move(shape), layout, 1.0F, 0});
  plan.inputs.push_back(index);
  return index;
}

int32_t Builder::append(Step step, DataType type, Layout layout) {
  step.name = std::string(to_string(step.op)) + std::to_string(plan.steps.size());
  step.output = static_cast<int32_t>(plan.tensors.size());
  TensorInfo info{step.name, type, plan.output_shape(step), layout, 1.0F, 0};
  if (type == DataType::u8) {
    info.scale = 0.0625F * static_cast<float>(random_.integer(1, 4));
    info.zero_point = static_cast<int32_t>(random_.integer(0, 128));
    if (keeps_numbers(step.op)) {
      info.scale = this->info(step.inputs[0]).scale;
      info.zero_point = this->info(step.inputs[0]).zero_point;
    }
  }
  plan.tensors.push_back(std::move(info));
  plan.steps.push_back(std::move(step));
  return plan.steps.back().output;
}

int32_t Builder::enter(int32_t x) {
  return enter(x, info(x).shape.size() == 4 ? Layout::nhwc : Layout::plain);
}

int32_t Builder::enter(int32_t x, Layout layout) {
  return append({.op = Op::convert, .inputs = {x}}, type_of(numbers_), layout);
}

int32_t Builder::leave(int32_t x) {
  return append({.op = Op::convert, .inputs = {x}}, DataType::f32, Layout::plain);
}

void Builder::weights(Step& step, const std::vector<int64_t>& shape) {
  const std::string name = std::string(to_string(step.op)) + std::to_string(plan.steps.size());
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  const auto channels = static_cast<size_t>(shape[0]);
  step.constants = {{"weight", name + ".weight"}, {"bias", name + ".bias"}};
  if (numbers_ == Numbers::u8) {
    std::vector<int8_t> weight(count);
    for (int8_t& w : weight) w = static_cast<int8_t>(random_.integer(-127, 127));
    std::vector<int32_t> bias(channels);
    for (int32_t& b : bias) b = static_cast<int32_t>(random_.integer(-3000, 3000));
    std::vector<float> scale(channels);
    for (float& s : scale) s = 0.0001F * static_cast<float>(random_.integer(1, 100));
    step.constants["weight_scale"] = name + ".weight_scale";
    plan.constants[name + ".weight"] = constant_of(DataType::i8, shape, weight);
    plan.constants[name + ".bias"] = constant_of(DataType::i32, {shape[0]}, bias);
    plan.constants[name + ".weight_scale"] = constant_of(DataType::f32, {shape[0]}, scale);
    return;
  }
  std::vector<float> weight(count), bias(channels);
  for (float& w : weight) w = static_cast<float>(random_.integer(-1, 1));
  for (float& b : bias) b = static_cast<float>(random_.integer(-3, 3));
  plan.constants[name + ".bias"] = constant_of(DataType::f32, {shape[0]}, bias);
  if (numbers_ == Numbers::f32) {
    plan.constants[name + ".weight"] = constant_of(DataType::f32, shape, weight);
    return;
  }
  std::vector<uint16_t> narrow(count);
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &weight[i], 4);
    narrow[i] = static_cast<uint16_t>(bits >> 16);
  }
  plan.constants[name + ".weight"] = constant_of(DataType::bf16, shape, narrow);
}

int32_t Builder::conv(int32_t x, int64_t channels, Window window, Activation activation, int64_t groups,
                      int32_t residual) {
  Step step{.op = Op::conv, .inputs = {x}, .attributes = ConvAttributes{window, groups, activation}};
  if (residual >= 0) step.inputs.push_back(residual);
  weights(step, {channels, info(x).shape[1] / groups, window.kernel_h, window.kernel_w});
  return append(std::move(step), type_of(numbers_), Layout::nhwc);
}

int32_t Builder::linear(int32_t x, int64_t features, Activation activation) {
  Step step{.op = Op::linear, .inputs = {x}, .attributes = ActivationAttributes{activation}};
  weights(step, {features, info(x).shape.back()});
  return append(std::move(step), type_of(numbers_), Layout::plain);
}

int32_t Builder::op(Op op, std::vector<int32_t> inputs, const Attributes& attributes) {
  const TensorInfo& x = info(inputs[0]);
  const DataType type = x.type;
  const bool view = op == Op::flatten || op == Op::squeeze || op == Op::unsqueeze;
  const Layout layout = view ? Layout::plain : x.layout;
  return append({.op = op, .inputs = std::move(inputs), .attributes = attributes}, type, layout);
}

int32_t Builder::text(Step step, const std::vector<std::pair<const char*, std::vector<int64_t>>>& constants,
                      Layout layout) {
  for (const auto& [role, shape] : constants) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const std::string name = std::string(to_string(step.op)) + std::to_string(plan.steps.size()) + "." + role;
    const std::string own_scale = std::string(role) + "_scale";
    const bool scale = std::string(role).ends_with("_scale");
    const auto is_own_scale = [&](const auto& other) { return other.first == own_scale; };
    step.constants[role] = name;
    if (std::ranges::any_of(constants, is_own_scale)) {
      std::vector<int8_t> codes(static_cast<size_t>(count));
      for (int8_t& code : codes) code = static_cast<int8_t>(random_.integer(-127, 127));
      plan.constants[name] = constant_of(DataType::i8, shape, codes);
      continue;
    }
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values)
      v = 0.125F * static_cast<float>(scale ? random_.integer(1, 4) : random_.integer(-8, 8));
    if (scale) {
      for (float& v : values) v *= 0.01F;
    }
    plan.constants[name] = constant_of(DataType::f32, shape, values);
  }
  return append(std::move(step), DataType::f32, layout);
}

int32_t Builder::signs(Step step, const std::vector<const char*>& constants, int64_t outputs, bool map) {
  const TensorInfo x = info(step.inputs[0]);
  const std::string name = std::string(to_string(step.op)) + std::to_string(plan.steps.size()) + ".";
  const auto add = [&](const char* role, const Constant& constant) {
    step.constants[role] = name + role;
    plan.constants[name + role] = constant;
  };
  const auto bytes = [&](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<uint8_t> values(static_cast<size_t>(count));
    for (uint8_t& value : values) value = static_cast<uint8_t>(random_.integer(0, 255));
    return constant_of(DataType::u8, std::move(shape), values);
  };
  const bool packs = step.op == Op::binarize;
  std::vector<int64_t> places;  // of the scale
  if (step.op == Op::binary_conv) {
    const Window& w = step.get<BinaryConvAttributes>().window;
    add("weight", bytes({outputs, w.kernel_h, w.kernel_w, x.shape[1]}));
    places = {(x.shape[2] + 2 * w.pad_h - w.dilation_h * (w.kernel_h - 1) - 1) / w.stride_h + 1,
              (x.shape[3] + 2 * w.pad_w - w.dilation_w * (w.kernel_w - 1) - 1) / w.stride_w + 1};
  } else if (!packs) {
    add("weight", bytes({outputs, x.shape.back()}));
  } else {
    outputs = x.layout == Layout::nhwc ? x.shape[1] : x.shape.back();
  }
  for (const std::string role : constants) {
    std::vector<int64_t> shape = {outputs};
    if (role == "scale" && map) shape.insert(shape.end(), places.begin(), places.end());
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<float> floats(static_cast<size_t>(count));
    std::vector<int32_t> ints(floats.size());
    for (size_t i = 0; i < floats.size(); ++i) {
      ints[i] = static_cast<int32_t>(random_.integer(-9, 9));
      floats[i] = 0.125F * static_cast<float>(ints[i]);
    }
    if (role == "flip") {
      add("flip", bytes({(outputs + 7) / 8}));
    } else if (role == "threshold" && !packs) {
      add("threshold", constant_of(DataType::i32, shape, ints));
    } else {
      add(role.c_str(), constant_of(DataType::f32, shape, floats));
    }
  }
  const bool gives_bits = packs || step.constants.contains("threshold");
  const int32_t y = append(std::move(step), gives_bits ? DataType::u8 : DataType::f32, x.layout);
  plan.tensors[static_cast<size_t>(y)].scale = 1;
  plan.tensors[static_cast<size_t>(y)].zero_point = 0;
  return y;
}

Plan small_binary_network() {
  Builder b(Numbers::f32);
  using enum kernels::BinaryPadding;
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, point{};
  const int32_t x = b.enter(b.input({kBatch, 12, 8, 8}), Layout::nhwc);
  const int32_t first = b.signs({.op = Op::binarize, .inputs = {x}}, {"threshold", "flip"});
  const int32_t wide = b.signs({.op = Op::binary_conv,
                                .inputs = {first, x},
                                .attributes = BinaryConvAttributes{same, 12, zero, Activation::relu6}},
                               {"scale", "bias"}, 12);
  const int32_t second = b.signs({.op = Op::binarize, .inputs = {wide}}, {"threshold"});
  const int32_t inner =
      b.signs({.op = Op::binary_conv, .inputs = {second}, .attributes = BinaryConvAttributes{same, 12, one}},
              {"threshold", "flip"}, 21);
  const int32_t last =
      b.signs({.op = Op::binary_conv, .inputs = {inner}, .attributes = BinaryConvAttributes{point, 21, one}},
              {"scale"}, 6, true);
  const int32_t rows = b.leave(b.op(Op::flatten, {last}));
  const int32_t third = b.signs({.op = Op::binarize, .inputs = {rows}}, {});
  const int32_t hidden =
      b.signs({.op = Op::binary_linear, .inputs = {third}, .attributes = BinaryLinearAttributes{6 * 64}},
              {"threshold"}, 35);
  b.output(b.signs({.op = Op::binary_linear,
                    .inputs = {hidden},
                    .attributes = BinaryLinearAttributes{35, Activation::relu}},
                   {"scale", "bias"}, 10));
  b.output(hidden);
  b.plan.metadata["model"] = "small binary network";
  return b.plan;
}

int32_t Builder::recurrent(Op op, int32_t x, int64_t hidden, bool int8, bool reverse, bool per_tensor) {
  return recurrent({.op = op, .inputs = {x}, .attributes = RecurrentAttributes{per_tensor, reverse}}, hidden,
                   int8);
}

int32_t Builder::recurrent_from(Op op, int32_t x, const std::vector<int32_t>& states, bool int8,
                                bool reverse) {
  Step step{.op = op, .inputs = {x}};
  step.inputs.insert(step.inputs.end(), states.begin(), states.end());
  step.attributes = RecurrentAttributes{.reverse = reverse, .last_c = op == Op::lstm};
  return recurrent(std::move(step), info(states.at(0)).shape.at(1), int8);
}

int32_t Builder::recurrent(Step step, int64_t hidden, bool int8) {
  const int64_t gates = (step.op == Op::lstm ? 4 : 3) * hidden;
  std::vector<std::pair<const char*, std::vector<int64_t>>> constants = {
      {"weight_ih", {gates, info(step.inputs[0]).shape[2]}},
      {"weight_hh", {gates, hidden}},
      {"bias_ih", {gates}},
      {"bias_hh", {gates}}};
  if (int8) constants.insert(constants.end(), {{"weight_ih_scale", {gates}}, {"weight_hh_scale", {gates}}});
  return text(std::move(step), constants);
}

Plan small_text_network() {
  constexpr int64_t kWidth = 12, kLength = 6;
  Builder b(Numbers::f32);
  const auto norm = [&](int32_t x) {
    return b.text({.op = Op::layer_norm, .inputs = {x}, .attributes = LayerNormAttributes{1e-3F}},
                  {{"weight", {kWidth}}, {"bias", {kWidth}}});
  };
  const auto dynamic = [&](std::vector<int32_t> inputs, int64_t out, Activation activation) {
    const int64_t in = b.info(inputs[0]).shape.back();
    return b.text({.op = Op::dynamic_linear,
                   .inputs = std::move(inputs),
                   .attributes = DynamicLinearAttributes{activation}},
                  {{"weight", {out, in}}, {"weight_scale", {out}}, {"bias", {out}}});
  };
  const int32_t ids = b.input({kBatch, kLength}, DataType::i64);
  const int32_t mask = b.text({.op = Op::token_mask, .inputs = {ids}, .attributes = TokenAttributes{3}});
  const int32_t words = b.text({.op = Op::embedding, .inputs = {ids}}, {{"weight", {11, kWidth}}});
  const int32_t placed = b.text({.op = Op::add, .inputs = {words}}, {{"addend", {kLength, kWidth}}});
  const int32_t x = norm(placed);
  const int32_t q = b.linear(x, kWidth), k = b.linear(x, kWidth);
  const int32_t v = dynamic({x}, kWidth, Activation::none);
  const int32_t mixed =
      b.text({.op = Op::attention, .inputs = {q, k, v, mask}, .attributes = AttentionAttributes{3, 0.25F}});
  const int32_t attended = norm(dynamic({mixed, x}, kWidth, Activation::none));
  const int32_t grouped =
      b.text({.op = Op::group_norm, .inputs = {attended}, .attributes = GroupNormAttributes{2, 1e-3F}},
             {{"weight", {kLength}}, {"bias", {kLength}}});
  const int32_t read = b.recurrent(Op::lstm, grouped, 8, false);
  const int32_t wide = b.linear(b.recurrent(Op::gru, read, 5, true, true), 20, Activation::gelu);
  const int32_t first = b.text({.op = Op::select, .inputs = {wide}, .attributes = SelectAttributes{1}});
  b.output(b.linear(b.op(Op::relu, {first}, ActivationAttributes{Activation::tanh}), 4));
  // Turned round, with a border, the largest of its sums of products.
  const int32_t turned = b.text(
      {.op = Op::move, .inputs = {placed}, .attributes = MoveAttributes{{{12, 1}, {6, 12}}, 0, {{12}, {6}}}});
  const int32_t padded = b.text({.op = Op::pad,
                                 .inputs = {turned},
                                 .attributes = PadAttributes{{{0, 0}, {1, 1}}, kernels::PadMode::reflect}});
  const int32_t scores =
      b.text({.op = Op::matmul,
              .inputs = {padded, padded},
              .attributes = MatmulAttributes{{}, {0, 8, 1}, {0, 1, 8}, 12, 8, 12, {{12}, {12}}}});
  const int32_t sums = b.text({.op = Op::cumsum, .inputs = {scores}});
  const int32_t largest = b.text(
      {.op = Op::reduce, .inputs = {sums}, .attributes = ReduceAttributes{kernels::ReduceKind::max, {{2}}}});
  b.output(largest);
  // Where the largest are, what else stands there, and a table of them.
  const int32_t places = b.typed(
      {.op = Op::sort, .inputs = {largest}, .attributes = SortAttributes{1, true, 3, true}}, DataType::i64);
  b.output(b.text({.op = Op::gather, .inputs = {placed, places}, .attributes = GatherAttributes{2}}));
  b.output(b.text(
      {.op = Op::scatter, .inputs = {largest, places}, .attributes = ScatterAttributes{.value = -0.5F}}));
  b.output(b.text({.op = Op::embedding, .inputs = {places}}, {{"weight", {kWidth, 5}}}));
  b.plan.metadata["model"] = "small text network";
  return b.plan;
}

Plan small_network(Numbers numbers) {
  Builder b(numbers);
  const Window same{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  const PoolAttributes half{{{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}}};
  const int32_t x = b.enter(b.input({kBatch, 3, 8, 8}));
  const int32_t stem = b.conv(x, 8, same, Activation::relu6);
  const int32_t inner = b.conv(stem, 8, same, Activation::relu6, 8);
  const int32_t block = b.conv(inner, 8, same, Activation::relu6, 1, stem);
  const int32_t small = b.op(Op::avg_pool, {b.op(Op::max_pool, {block}, half)}, half);
  const int32_t sum = b.op(Op::add, {small, b.op(Op::relu, {small}, ActivationAttributes{Activation::relu6})},
                           ActivationAttributes{Activation::relu6});
  const int32_t joined =
      b.op(Op::channel_shuffle, {b.op(Op::concat, {sum, b.slice(small, 2, 4)})}, ShuffleAttributes{3});
  const int32_t wide = b.linear(b.op(Op::flatten, {joined}), 10, Activation::relu6);
  b.output(b.op(Op::softmax, {b.leave(wide)}));
  b.output(b.leave(b.op(Op::flatten, {b.op(Op::global_avg_pool, {sum})})));
  b.plan.metadata["model"] = "small network";
  return b.plan;
}

std::vector<Bytes> make_inputs(const Plan& plan, int64_t batch, uint64_t seed) {
  Random random(seed);
  std::vector<Bytes> inputs;
  for (const int32_t index : plan.inputs) {
    const TensorInfo& info = plan.tensors[static_cast<size_t>(index)];
    Bytes bytes(byte_count(info, batch));
    if (info.type == DataType::i64 || info.type == DataType::i32) {
      for (int64_t i = 0; i < element_count(info, batch); ++i) {
        const int64_t id = random.integer(0, 4);
        const auto size = static_cast<size_t>(
            element_bytes(info.type));  // little-endian: the low bytes of an int64 are the int32
        std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &id, size);
      }
      inputs.push_back(std::move(bytes));
      continue;
    }
    const plain::View view{bytes.data(), info};
    for (int64_t i = 0; i < element_count(info, batch); ++i) {
      view.set(i, static_cast<float>(random.integer(-4, 4)));
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

std::vector<Bytes> run_plainly(const Plan& plan, int64_t batch, const std::vector<Bytes>& inputs) {
  std::vector<Bytes> values(plan.tensors.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(plan.inputs[i])] = inputs[i];
  for (const Step& step : plan.steps) {
    std::vector<plain::View> x;
    for (const int32_t t : step.inputs) {
      x.push_back({values[static_cast<size_t>(t)].data(), plan.tensors[static_cast<size_t>(t)]});
    }
    const TensorInfo& out = plan.tensors[static_cast<size_t>(step.output)];
    Bytes& bytes = values[static_cast<size_t>(step.output)];
    bytes.resize(byte_count(out, batch));
    plain::run_step(plan, step, x, {bytes.data(), out}, batch);
  }
  std::vector<Bytes> outputs;
  for (const int32_t t : plan.outputs) outputs.push_back(values[static_cast<size_t>(t)]);
  return outputs;
}

namespace {

template <typename Runs>
std::vector<Bytes> run_on(Runs& runs, const std::vector<TensorInfo>& infos, int64_t batch,
                          const std::vector<Bytes>& inputs) {
  std::vector<Bytes> outputs;
  for (const TensorInfo& info : infos) outputs.emplace_back(byte_count(info, batch));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Bytes& bytes : inputs) in.push_back(bytes.data());
  for (Bytes& bytes : outputs) out.push_back(bytes.data());
  runs.run(batch, in, out);
  return outputs;
}

}  // namespace

std::vector<Bytes> run_engine(Engine& engine, int64_t batch, const std::vector<Bytes>& inputs) {
  return run_on(engine, engine.outputs(), batch, inputs);
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

std::vector<Bytes> run_context(const Engine& engine, Context& context, int64_t batch,
                               const std::vector<Bytes>& inputs) {
  return run_on(context, engine.outputs(), batch, inputs);
}

void expect_same(const TensorInfo& info, const Bytes& expected, const Bytes& got, int steps) {
  ASSERT_EQ(expected.size(), got.size());
  if (steps == 0 && expected == got) return;
  const plain::View a{const_cast<std::byte*>(expected.data()), info};
  const plain::View b{const_cast<std::byte*>(got.data()), info};
  const auto count = static_cast<int64_t>(expected.size()) / element_bytes(info.type);
  const float epsilon = info.type == DataType::bf16 ? 0x1p-8F : 0x1p-23F;
  for (int64_t i = 0; i < count; ++i) {
    const float bound = info.type == DataType::u8 ? static_cast<float>(steps) * info.scale
                                                  : static_cast<float>(steps) * epsilon * std::abs(a.get(i));
    ASSERT_LE(std::abs(a.get(i) - b.get(i)), bound)
        << info.name << " element " << i << ": expected " << a.get(i) << ", got " << b.get(i);
  }
}

void expect_other_shapes_survived(const Plan& good) {
  int refused = 0, accepted = 0;
  const auto attempt = [&](const std::string& name, DataType type, std::vector<int64_t> shape) {
    Plan plan = good;
    Constant& changed = plan.constants.at(name);
    changed.type = type;
    while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
    changed.shape = std::move(shape);
    try {
      Engine engine(plan, {.threads = 1});
      run_engine(engine, 2, make_inputs(plan, 2, 1));
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  };
  for (const auto& [name, held] : good.constants) {
    const auto count = static_cast<int64_t>(held.bytes.size()) / element_bytes(held.type);
    for (int64_t first = 1; first <= count; ++first) {
      if (count % first != 0) continue;
      for (int64_t second = 1; second <= count / first; ++second) {
        if (count / first % second != 0) continue;
        for (const DataType type :
             {DataType::u8, DataType::i8, DataType::i32, DataType::f32, DataType::bf16}) {
          if (element_bytes(type) == element_bytes(held.type))
            attempt(name, type, {first, second, count / first / second});
        }
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 0);
}

bool gets_help(const Parallel& pool, int64_t tasks, std::chrono::milliseconds patience) {
  std::atomic<bool> helped = false;
  pool.run(tasks, [&](int64_t, int worker) {
    if (worker != 0) helped = true;
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!helped && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  return helped;
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return nlohmann::json::parse(text.str());
}

}  // namespace ulp::runtime::testing
