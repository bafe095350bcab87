// The optimizer loops on every instruction set against plain loops, bit for bit, for every rule, way of
// keeping the weights and type of gradient.
#include "ulp/kernels/training/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/helpers.h"
#include "ulp/base/error.h"
#include "ulp/formats/convert.h"
#include "ulp/kernels/common/float_bits.h"
#include "ulp/kernels/common/half.h"

namespace ulp::kernels::test {
namespace {

using formats::decode;
using formats::encode;

const formats::Format& bf16() {
  return formats::find("bf16");
}
const formats::Format& fp16() {
  return formats::find("fp16");
}
uint16_t to_bf16(float v) {
  return static_cast<uint16_t>(encode(bf16(), static_cast<double>(v)));
}
float from_bf16(uint16_t code) {
  return static_cast<float>(decode(bf16(), code));
}

TEST(Half, EveryCodeWidensExactly) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float expected = static_cast<float>(decode(fp16(), code));
    const float got = half_to_float(static_cast<uint16_t>(code));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << code;
    } else {
      ASSERT_EQ(float_to_bits(got), float_to_bits(expected)) << code;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  std::mt19937 engine(5);
  for (int i = 0; i < 300000; ++i) {
    // Every fourth value sits on or beside a tie or a code; the exponents reach past both ends of fp16.
    uint32_t bits = engine();
    if (i % 4 == 0) bits = (bits & 0xffffe000U) + 0xfffU + engine() % 3U;
    if (i % 2 == 0) bits = (bits & 0x807fffffU) | (97U + bits % 50U) << 23;
    const float value = bits_to_float(bits);
    const uint16_t got = float_to_half(value);
    if (std::isnan(value)) {
      ASSERT_GT(got & 0x7fff, 0x7c00) << bits;
    } else {
      ASSERT_EQ(got, encode(fp16(), static_cast<double>(value))) << value;
    }
  }
}

constexpr formats::RandomKey kKey = {7, 9};

/// All arrays of one parameter, with canaries around them.
struct Arrays {
  Arrays(int64_t n, WeightStore store, DataType type, uint32_t seed, MomentStore moments = MomentStore::f32)
      : size(n),
        store(store),
        type(type),
        moments(moments),
        gradient(2 * n),
        parameter(2 * n, 2 * (seed / 4 % 2)),  // whole lines and others are written by different means
        master(2 * n),
        first(2 * n),
        second(2 * n) {
    const auto g = random_floats(n, seed), w = random_floats(n, seed + 1, -2, 2);
    const auto m = random_floats(n, seed + 2), v = random_floats(n, seed + 3, 0, 1);
    for (int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<size_t>(i);
      put_gradient(i, g[k] * (i % 5 == 4 ? 1e-6F : 3.0F));
      put_weight(i, w[k]);
      put_moment(first, i, m[k], 0x8000);
      put_moment(second, i, v[k] * v[k], 0x8000);
    }
  }
  /// `random`: 16 bits, of which bf16 moments are rounded up in that many of 65,536 cases.
  void put_moment(Guarded<uint16_t>& moment, int64_t i, float v, uint32_t random) {
    if (moments == MomentStore::f32) {
      std::memcpy(moment.data() + 2 * i, &v, 4);
    } else {
      moment.data()[i] = static_cast<uint16_t>((float_to_bits(v) + random) >> 16);
    }
  }
  float get_moment(Guarded<uint16_t>& moment, int64_t i) const {
    float v;
    std::memcpy(&v, moment.data() + 2 * i, 4);
    return moments == MomentStore::f32 ? v : from_bf16(moment.data()[i]);
  }
  void put_gradient(int64_t i, float v) {
    if (type == DataType::f32) {
      std::memcpy(gradient.data() + 2 * i, &v, 4);
    } else {
      gradient.data()[i] =
          type == DataType::bf16 ? to_bf16(v) : static_cast<uint16_t>(encode(fp16(), static_cast<double>(v)));
    }
  }
  float get_gradient(int64_t i) {
    float v;
    std::memcpy(&v, gradient.data() + 2 * i, 4);
    const uint16_t code = gradient.data()[i];
    if (type == DataType::f32) return v;
    return type == DataType::bf16 ? from_bf16(code) : static_cast<float>(decode(fp16(), code));
  }
  /// Halves of the weight as the store defines them; the low half of a split weight is made from the rest.
  void put_weight(int64_t i, float w) {
    const uint16_t nearest = to_bf16(w);
    switch (store) {
      case WeightStore::f32:
        std::memcpy(parameter.data() + 2 * i, &w, 4);
        break;
      case WeightStore::bf16_master:
      case WeightStore::f16_master:
        std::memcpy(master.data() + 2 * i, &w, 4);
        break;
      case WeightStore::bf16_split: {
        const uint32_t bits = float_to_bits(w), high = (bits + 0x8000U) >> 16;
        parameter.data()[i] = static_cast<uint16_t>(high);
        master.data()[i] = static_cast<uint16_t>(bits - (high << 16));
        break;
      }
      case WeightStore::bf16_kahan:
        master.data()[i] = to_bf16(w - from_bf16(nearest));
        [[fallthrough]];
      case WeightStore::bf16_stochastic:
        parameter.data()[i] = nearest;
    }
  }
  float get_weight(int64_t i) {
    float v = 0;
    const uint16_t high = parameter.data()[i], rest = master.data()[i];
    switch (store) {
      case WeightStore::f32:
        std::memcpy(&v, parameter.data() + 2 * i, 4);
        return v;
      case WeightStore::bf16_master:
      case WeightStore::f16_master:
        std::memcpy(&v, master.data() + 2 * i, 4);
        return v;
      case WeightStore::bf16_split: {
        const int32_t low = rest < 0x8000 ? rest : rest - 0x10000;
        return bits_to_float((uint32_t{high} << 16) + static_cast<uint32_t>(low));
      }
      case WeightStore::bf16_kahan:
        return from_bf16(high) + from_bf16(rest);
      default:
        return from_bf16(high);
    }
  }
  OptimizerTensor tensor(const UpdateStep& step) {
    return {.size = size,
            .gradient = gradient.data(),
            .gradient_type = type,
            .parameter = parameter.data(),
            .store = store,
            .master = master.data(),
            .stream_copies = true,
            .first = first.data(),
            .second = second.data(),
            .moments = moments,
            .step = &step,
            .random = kKey};
  }
  bool intact() {
    return gradient.intact() && parameter.intact() && master.intact() && first.intact() && second.intact();
  }
  bool equal(Arrays& other) {
    const auto same = [](auto& a, auto& b) {
      const auto x = a.values(), y = b.values();
      return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0;
    };
    return same(gradient, other.gradient) && same(parameter, other.parameter) && same(master, other.master) &&
           same(first, other.first) && same(second, other.second);
  }

  int64_t size;
  WeightStore store;
  DataType type;
  MomentStore moments;
  Guarded<uint16_t> gradient, parameter, master, first, second;
};

/// The definitions of UpdateKind, one element at a time.
float updated(const UpdateStep& s, float g, float p, float& m, float& v) {
  if (s.kind == UpdateKind::adamw) p = p * s.decay;
  if (s.kind != UpdateKind::adamw && s.weight_decay != 0) g = std::fma(p, s.weight_decay, g);
  if (s.kind == UpdateKind::sgd) return std::fma(g, s.negative_lr, p);
  if (s.kind == UpdateKind::sgd_momentum) {
    m = s.first_step ? g : std::fma(g, s.one_minus_dampening, s.momentum * m);
    return std::fma(s.nesterov ? std::fma(m, s.momentum, g) : m, s.negative_lr, p);
  }
  m = std::fma(g, s.one_minus_beta1, s.beta1 * m);
  v = std::fma(s.one_minus_beta2 * g, g, s.beta2 * v);
  return p + s.negative_step_size * m / (std::sqrt(v) / s.sqrt_correction2 + s.eps);
}

void reference(Arrays& a, const UpdateStep& step, float inverse_scale, float clip) {
  for (int64_t i = 0; i < a.size; ++i) {
    const float g = a.get_gradient(i) * inverse_scale * clip;
    float m = a.get_moment(a.first, i), v = a.get_moment(a.second, i);
    const float w = updated(step, g, a.get_weight(i), m, v);
    const uint32_t word =
        formats::random_bits({kKey.seed ^ kMomentSeed, kKey.stream}, static_cast<uint64_t>(i));
    if (step.kind != UpdateKind::sgd) a.put_moment(a.first, i, m, word >> 16);
    if (step.kind == UpdateKind::adam || step.kind == UpdateKind::adamw)
      a.put_moment(a.second, i, v, word & 0xffff);
    if (a.store == WeightStore::bf16_stochastic) {
      const uint32_t random = random_half(kKey, static_cast<uint64_t>(i));
      a.parameter.data()[i] = static_cast<uint16_t>((float_to_bits(w) + random) >> 16);
      continue;
    }
    a.put_weight(i, w);
    if (a.store == WeightStore::bf16_master) a.parameter.data()[i] = to_bf16(w);
    if (a.store == WeightStore::f16_master)
      a.parameter.data()[i] = static_cast<uint16_t>(encode(fp16(), static_cast<double>(w)));
  }
}

std::vector<UpdateStep> steps() {
  const UpdateStep sgd{.negative_lr = -0.1F};
  UpdateStep decayed = sgd, momentum = sgd, first = sgd, nesterov = sgd;
  decayed.weight_decay = 0.3F;
  momentum.kind = first.kind = nesterov.kind = UpdateKind::sgd_momentum;
  momentum.momentum = first.momentum = nesterov.momentum = 0.9F;
  momentum.one_minus_dampening = 0.7F;
  first.first_step = true;
  nesterov.nesterov = true;
  nesterov.weight_decay = 0.01F;
  UpdateStep adamw{.kind = UpdateKind::adamw,
                   .beta1 = 0.9F,
                   .one_minus_beta1 = 0.1F,
                   .beta2 = 0.999F,
                   .one_minus_beta2 = 1e-3F,
                   .decay = 0.99F,
                   .negative_step_size = -0.03F,
                   .sqrt_correction2 = 0.2F,
                   .eps = 1e-8F};
  UpdateStep adam = adamw, adam_decayed = adamw;
  adam.kind = adam_decayed.kind = UpdateKind::adam;
  adam_decayed.weight_decay = 0.1F;
  return {sgd, decayed, momentum, first, nesterov, adamw, adam, adam_decayed};
}

class OptimizerLoops : public ::testing::TestWithParam<Isa> {};

TEST_P(OptimizerLoops, EveryUpdateEqualsThePlainOne) {
  const std::pair<int64_t, MomentStore> cases[] = {
      {1, MomentStore::f32}, {63, MomentStore::f32}, {700, MomentStore::f32}, {700, MomentStore::bf16}};
  uint32_t seed = 1;
  for (const UpdateStep& step : steps()) {
    for (int store = 0; store < kWeightStores; ++store) {
      for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
        for (const auto& [size, moments] : cases) {
          SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(step.kind) << " store " << store
                                            << " type " << to_string(type) << " size " << size << " moments "
                                            << static_cast<int>(moments) << "; " << repeat_command());
          const auto make = [&, size = size, moments = moments] {
            return Arrays(size, static_cast<WeightStore>(store), type, seed, moments);
          };
          Arrays expected = make(), got = make();
          ++seed;
          ASSERT_TRUE(got.equal(expected));
          reference(expected, step, 0.25F, 0.9F);
          ASSERT_FALSE(size > 1 && got.equal(expected)) << "the update does nothing";
          update_parameters({got.tensor(step)}, 0.25F, 0.9F, GetParam(), SerialParallel());
          ASSERT_TRUE(got.equal(expected));
          ASSERT_TRUE(got.intact());
        }
      }
    }
  }
}

/// Sizes with a rest behind the last byte of the mask, blocks that are streamed without one, and several chunks.
TEST_P(OptimizerLoops, HeldElementsKeepTheirBitsAndOthersAreAsWithoutAMask) {
  uint32_t seed = 500;
  for (const UpdateStep& step : steps()) {
    for (int store = 0; store < kWeightStores; ++store) {
      for (const MomentStore moments : {MomentStore::f32, MomentStore::bf16}) {
        for (const int64_t size : {1, 7, 300, 517, 16384 + 261}) {
          if (size > 16384 && (step.kind != UpdateKind::adamw || moments == MomentStore::f32)) continue;
          SCOPED_TRACE(::testing::Message()
                       << "kind " << static_cast<int>(step.kind) << " store " << store << " moments "
                       << static_cast<int>(moments) << " size " << size << "; " << repeat_command());
          const auto make = [&] {
            return Arrays(size, static_cast<WeightStore>(store), DataType::bf16, seed, moments);
          };
          Arrays before = make(), free = make(), held = make();
          ++seed;
          std::mt19937 engine(seed);
          std::vector<uint8_t> mask(static_cast<size_t>((size + 7) / 8));
          for (uint8_t& byte : mask) byte = static_cast<uint8_t>(engine());
          held.put_gradient(0, NAN);
          free.put_gradient(0, NAN);
          OptimizerTensor tensor = held.tensor(step);
          tensor.mask = mask.data();
          for (int round = 0; round < 2; ++round) {
            update_parameters({free.tensor(step)}, 0.25F, 0.9F, GetParam(), SerialParallel());
            update_parameters({tensor}, 0.25F, 0.9F, GetParam(), ThreadParallel(2));
          }
          const bool f32 = parameter_type(before.store) == DataType::f32;
          const bool wide_master =
              before.store == WeightStore::bf16_master || before.store == WeightStore::f16_master;
          const bool has_first = step.kind != UpdateKind::sgd;
          const bool has_second = has_first && step.kind != UpdateKind::sgd_momentum;
          const auto same = [](Guarded<uint16_t>& a, Guarded<uint16_t>& b, int64_t i, bool wide) {
            const int64_t bytes = wide ? 4 : 2;
            return std::memcmp(reinterpret_cast<const char*>(a.data()) + i * bytes,
                               reinterpret_cast<const char*>(b.data()) + i * bytes,
                               static_cast<size_t>(bytes)) == 0;
          };
          const bool wide = moments == MomentStore::f32;
          for (int64_t i = 0; i < size; ++i) {
            const bool trained = (mask[static_cast<size_t>(i / 8)] >> i % 8 & 1) != 0;
            Arrays& expected = trained ? free : before;
            ASSERT_TRUE(same(held.parameter, expected.parameter, i, f32)) << i;
            ASSERT_TRUE(same(held.master, expected.master, i, wide_master)) << i;
            if (trained) {
              ASSERT_TRUE(same(held.first, free.first, i, wide)) << i;
              ASSERT_TRUE(same(held.second, free.second, i, wide)) << i;
            } else {
              ASSERT_TRUE(!has_first || held.get_moment(held.first, i) == 0.0F) << i;
              ASSERT_TRUE(!has_second || held.get_moment(held.second, i) == 0.0F) << i;
            }
          }
          ASSERT_TRUE(held.intact());
        }
      }
    }
  }
}

TEST_P(OptimizerLoops, HeldGradientsAreNotInTheSum) {
  const UpdateStep unused;
  for (DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    Arrays all(20001, WeightStore::f32, type, 23), kept(20001, WeightStore::f32, type, 23);
    std::vector<uint8_t> mask((20001 + 7) / 8, 0x5b);
    for (int64_t i = 0; i < 20001; ++i) {
      if ((0x5b >> i % 8 & 1) != 0) continue;
      all.put_gradient(i, INFINITY);
      kept.put_gradient(i, 0);
    }
    OptimizerTensor tensor = all.tensor(unused);
    tensor.mask = mask.data();
    EXPECT_EQ(gradient_square_sum({tensor}, GetParam(), SerialParallel()),
              gradient_square_sum({kept.tensor(unused)}, GetParam(), SerialParallel()))
        << to_string(type) << "; " << repeat_command();
  }
}

TEST_P(OptimizerLoops, ManyTensorsOnManyThreadsGiveTheSameBits) {
  const UpdateStep step = steps()[5];
  const auto run = [&](Isa isa, const Parallel& parallel, std::vector<Arrays>& arrays) {
    std::vector<OptimizerTensor> tensors;
    uint32_t seed = 100;
    for (int64_t size : {40000, 0, 5, 16384, 16385, 1}) {
      for (int store = 0; store < kWeightStores; ++store) {
        for (MomentStore moments : {MomentStore::f32, MomentStore::bf16})
          arrays.emplace_back(size, static_cast<WeightStore>(store), DataType::bf16, seed++, moments);
      }
    }
    for (Arrays& each : arrays) tensors.push_back(each.tensor(step));
    update_parameters(tensors, 1, 1, isa, parallel);
    return gradient_square_sum(tensors, isa, parallel);
  };
  std::vector<Arrays> one, many;
  const double alone = run(Isa::portable, SerialParallel(), one);
  const double together = run(GetParam(), ThreadParallel(5), many);
  EXPECT_EQ(alone, together);
  ASSERT_EQ(one.size(), many.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(many[i])) << i << "; " << repeat_command();
}

TEST_P(OptimizerLoops, TheSquareSumIsThatOfAllGradients) {
  for (DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    for (int64_t size : {1, 15, 16, 40001}) {
      Arrays a(size, WeightStore::f32, type, 17);
      long double sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        const long double g = static_cast<long double>(a.get_gradient(i));
        sum += g * g;
      }
      const UpdateStep unused;
      const double got = gradient_square_sum({a.tensor(unused)}, GetParam(), SerialParallel());
      // Each of size additions of positive numbers rounds once.
      const double bound = static_cast<double>(sum) * static_cast<double>(size) * 0x1p-53;
      EXPECT_NEAR(got, static_cast<double>(sum), bound) << size << "; " << repeat_command();
    }
  }
  EXPECT_EQ(gradient_square_sum({}, GetParam(), SerialParallel()), 0);
}

TEST_P(OptimizerLoops, TheSquareSumShowsEveryInfinityAndNaN) {
  const UpdateStep unused;
  for (DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    Arrays a(37, WeightStore::f32, type, 3);
    for (int64_t i = 0; i < 37; ++i) a.put_gradient(i, type == DataType::f16 ? 65504.0F : 3.38e38F);
    EXPECT_TRUE(std::isfinite(gradient_square_sum({a.tensor(unused)}, GetParam(), SerialParallel())));
    for (int64_t i = 0; i < 37; ++i) {
      for (float bad : {INFINITY, -INFINITY, NAN}) {
        a.put_gradient(i, bad);
        EXPECT_FALSE(std::isfinite(gradient_square_sum({a.tensor(unused)}, GetParam(), SerialParallel())))
            << bad << " at " << i << "; " << repeat_command();
        a.put_gradient(i, 1);
      }
    }
  }
}

TEST_P(OptimizerLoops, InfinitiesAndNaNSurviveEveryStoreAndLargeNumbersTheExactOnes) {
  const float values[] = {INFINITY, -INFINITY,       NAN, std::numeric_limits<float>::max(),
                          -0.0F,    bits_to_float(1)};
  const UpdateStep nothing{.negative_lr = 0};
  for (WeightStore store :
       {WeightStore::f32, WeightStore::bf16_master, WeightStore::bf16_split, WeightStore::bf16_stochastic}) {
    Arrays a(std::size(values), store, DataType::f32, 1);
    for (size_t i = 0; i < std::size(values); ++i) a.put_weight(static_cast<int64_t>(i), values[i]);
    for (int round = 0; round < 3; ++round)
      update_parameters({a.tensor(nothing)}, 1, 1, GetParam(), SerialParallel());
    for (size_t i = 0; i < std::size(values); ++i) {
      const float got = a.get_weight(static_cast<int64_t>(i));
      if (store == WeightStore::bf16_stochastic && std::isfinite(values[i])) continue;
      EXPECT_TRUE(got == values[i] || (std::isnan(got) && std::isnan(values[i])))
          << "store " << static_cast<int>(store) << ": " << values[i] << " became " << got;
    }
  }
}

TEST_P(OptimizerLoops, ASplitWeightKeepsANaNOfAnyBits) {
  // The low half would carry into the sign if such a NaN were rounded as a number.
  Arrays a(2, WeightStore::bf16_split, DataType::f32, 1);
  a.put_gradient(0, bits_to_float(0x7fffffff));
  a.put_gradient(1, bits_to_float(0xffffffff));
  const UpdateStep step{.negative_lr = -1};
  for (int round = 0; round < 2; ++round)
    update_parameters({a.tensor(step)}, 1, 1, GetParam(), SerialParallel());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::isnan(from_bf16(a.parameter.data()[i])));
    EXPECT_TRUE(std::isnan(a.get_weight(i)));
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, OptimizerLoops, ::testing::ValuesIn(available_isas()), isa_name);

TEST(OptimizerTypes, RefusesGradientsThatAreNoFloats) {
  float parameter = 1;
  int32_t gradient = 1;
  const UpdateStep step = steps()[0];
  OptimizerTensor tensor;
  tensor.size = 1;
  tensor.gradient = &gradient;
  tensor.gradient_type = DataType::i32;
  tensor.parameter = &parameter;
  tensor.step = &step;
  EXPECT_THROW(update_parameters({tensor}, 1, 1, Isa::portable, SerialParallel()), Error);
  EXPECT_THROW(gradient_square_sum({tensor}, Isa::portable, SerialParallel()), Error);
  EXPECT_EQ(parameter, 1);
}

}  // namespace
}  // namespace ulp::kernels::test
