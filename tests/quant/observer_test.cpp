#include "ulp/quant/observers/observer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "error_of.h"
#include "golden_data.h"
#include "plain_histogram.h"
#include "schemes.h"
#include "ulp/base/error.h"
#include "ulp/quant/observers/histogram_observer.h"

namespace ulp::quant {
namespace {

using nlohmann::json;

const Scheme kS8Channel{.is_signed = true, .mapping = Mapping::symmetric, .granularity = PerChannel{0}};

std::shared_ptr<Observer> make_golden_observer(const std::string& name) {
  const auto channel = [](Scheme scheme) {
    scheme.granularity = PerChannel{0};
    return scheme;
  };
  const size_t cut = name.rfind('_', name.rfind('_') - 1);
  const std::string kind = name.substr(0, cut);
  const Scheme scheme = scheme_of(name.substr(cut + 1));
  if (kind == "min_max") return std::make_shared<MinMaxObserver>(name, scheme);
  if (kind == "moving") return std::make_shared<MovingAverageObserver>(name, scheme);
  if (kind == "channel") return std::make_shared<MinMaxObserver>(name, channel(scheme));
  if (kind == "channel_moving") return std::make_shared<MovingAverageObserver>(name, channel(scheme));
  if (kind == "histogram") return std::make_shared<HistogramObserver>(name, scheme);
  fail("test", "expected a known observer, got ", name);
}

/// Scales and zero points are those that PyTorch recorded. Bounds are exact; the search over a histogram ends
/// at the same bins with each of LibTorch's builds of its kernels, whose sums differ in their last bits.
TEST(Observer, EqualsPyTorchBitForBit) {
  std::ifstream file(ULP_SOURCE_DIR "/tests/golden/observers.json");
  const json golden = json::parse(file);
  ASSERT_EQ(golden["cases"].size(), 18U);
  for (const auto& [name, one] : golden["cases"].items()) {
    for (const auto& [kind, expected] : one["results"].items()) {
      const auto observer = make_golden_observer(kind);
      test::PlainHistogram plain;
      for (const auto& batch : one["batches"]) {
        const at::Tensor values = test::make(batch[0], batch[1], batch[2]) * batch[3].get<double>();
        observer->forward(values.reshape({golden["channels"].get<int64_t>(), -1}));
        plain.add(values);
      }
      const QParams params = observer->qparams();
      for (size_t c = 0; c < expected["scale"].size(); ++c) {
        const auto index = static_cast<int64_t>(c);
        EXPECT_EQ(params.scale[index].item<float>(), expected["scale"][c].get<float>())
            << name << ' ' << kind;
        EXPECT_EQ(params.zero_point[index].item<int>(), expected["zero_point"][c].get<int>())
            << name << ' ' << kind;
      }
      EXPECT_EQ(params.scale.numel(), static_cast<int64_t>(expected["scale"].size())) << name << ' ' << kind;
      if (const auto* histogram = dynamic_cast<HistogramObserver*>(observer.get())) {
        EXPECT_TRUE(histogram->histogram().equal(torch::tensor(plain.bins))) << name << ' ' << kind;
        EXPECT_NEAR(plain.moment(), expected["moment"].get<double>(), plain.movable) << name << ' ' << kind;
      }
    }
  }
}

TEST(Observer, ReturnsItsInputUnchangedAndKeepsItsGradient) {
  MinMaxObserver observer("x", kU8);
  const at::Tensor x = torch::randn({4}).requires_grad_();
  EXPECT_TRUE(observer.forward(x).is_same(x));
}

struct Keep : c10::WarningHandler {
  std::string text;
  void process(const c10::Warning& warning) override { text += warning.msg(); }
};

TEST(Observer, NothingButNonFiniteDataIsNotNone) {
  Keep keep;
  const c10::WarningUtils::WarningHandlerGuard guard(&keep);
  MinMaxObserver observer("output of 'fc'", kU8);
  observer.forward(torch::tensor({NAN, INFINITY, NAN, -INFINITY, NAN}));
  EXPECT_EQ(observer.qparams().scale.item<float>(), 1.0F);
  EXPECT_NE(keep.text.find("got only 3 NaN and 2 infinite values for 'output of 'fc''"), std::string::npos)
      << keep.text;
  EXPECT_NE(ulp::test::error_of([&] { observer.bounds(); }).find("got only 3 NaN and 2 infinite values"),
            std::string::npos);
}

TEST(Observer, NeverCalledWarnsByName) {
  Keep keep;
  const c10::WarningUtils::WarningHandlerGuard guard(&keep);
  const HistogramObserver observer("output of 'layer1.0.conv1'", kU8);
  const QParams params = observer.qparams();
  EXPECT_EQ(params.scale.item<float>(), 1.0F);
  EXPECT_EQ(params.zero_point.item<int>(), 0);
  EXPECT_NE(keep.text.find("layer1.0.conv1"), std::string::npos) << keep.text;
  EXPECT_THROW(observer.bounds(), Error);
}

TEST(Observer, EveryKindNamesItselfWhenNeverCalled) {
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::moving_average, ObserverKind::histogram,
        ObserverKind::percentile, ObserverKind::entropy, ObserverKind::mse}) {
    const auto observer = make_observer({kU8, kind}, "output of 'fc'");
    EXPECT_FALSE(observer->seen());
    try {
      observer->bounds();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("got none for 'output of 'fc''"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Observer, NonFiniteValuesAreLeftOutAndCounted) {
  const at::Tensor clean = torch::tensor({{-1.0F, 2.0F, 0.5F}, {0.25F, 3.0F, -4.0F}});
  const at::Tensor dirty = torch::tensor({{NAN, -1.0F, 2.0F, 0.5F}, {0.25F, 3.0F, INFINITY, -4.0F}});
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::moving_average, ObserverKind::histogram,
        ObserverKind::percentile, ObserverKind::entropy, ObserverKind::mse}) {
    const auto a = make_observer({kU8, kind}, "a"), b = make_observer({kU8, kind}, "b");
    a->forward(clean);
    b->forward(dirty);
    EXPECT_EQ(b->nan_count(), 1);
    EXPECT_EQ(b->inf_count(), 1);
    EXPECT_TRUE(a->qparams().scale.equal(b->qparams().scale)) << kind;
    EXPECT_TRUE(a->qparams().zero_point.equal(b->qparams().zero_point));
  }
  MinMaxObserver nothing("x", kU8);
  nothing.forward(torch::full({3}, NAN));
  EXPECT_FALSE(nothing.seen());
  EXPECT_EQ(nothing.nan_count(), 3);
}

TEST(Observer, ChannelWithoutFiniteValuesRepresentsZero) {
  MinMaxObserver observer("x", kS8Channel);
  observer.forward(torch::tensor({{NAN, NAN}, {1.0F, -2.0F}}));
  EXPECT_EQ(observer.qparams().scale[0].item<float>(), 0x1p-23F);
  EXPECT_FLOAT_EQ(observer.qparams().scale[1].item<float>(), 2.0F / 127.5F);
}

TEST(Observer, ChannelCountMustNotChange) {
  MinMaxObserver observer("weights of 'fc'", kS8Channel);
  observer.forward(torch::ones({3, 2}));
  EXPECT_THROW(observer.forward(torch::ones({4, 2})), Error);
  MinMaxObserver other("weights of 'fc'", kS8Channel);
  other.forward(torch::ones({4, 2}));
  EXPECT_THROW(observer.merge(other), Error);
}

TEST(Observer, AxisOutOfRangeNamesTheLayer) {
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::moving_average, ObserverKind::percentile}) {
    const auto observer = make_observer({Scheme{.granularity = PerChannel{2}}, kind}, "weights of 'fc'");
    try {
      observer->forward(torch::ones({3, 2}));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a dimension 2, got shape [3, 2] for 'weights of 'fc''"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Observer, BoundsOfGroupsTokensAndBlocks) {
  torch::manual_seed(8);
  const at::Tensor first = torch::randn({4, 6}), second = torch::randn({4, 6});
  for (const Granularity& granularity :
       {Granularity(PerGroup{4}), Granularity(PerToken{}), Granularity(PerBlock{2, 3})}) {
    const Scheme scheme{.granularity = granularity};
    MinMaxObserver observer("x", scheme);
    observer.forward(first);
    observer.forward(second);
    const at::Tensor both = at::cat({to_rows(first, granularity), to_rows(second, granularity)}, 1);
    const std::vector<int64_t> shape = scale_shape(granularity, first.sizes());
    EXPECT_TRUE(observer.bounds().max.equal(both.amax(1).reshape(shape)));
    EXPECT_EQ(observer.qparams().scale.sizes(), at::IntArrayRef(shape));
    EXPECT_THROW(observer.forward(torch::randn({8, 12})), Error);
  }
}

TEST(FixedObserver, GivesTheFixedParametersOfTheTfliteSpecification) {
  const Scheme scheme{.is_signed = true};
  FixedObserver softmax("softmax", scheme, 0, 255.0 / 256), tanh("tanh", scheme, -1, 127.0 / 128);
  softmax.forward(torch::tensor({NAN, 7.0F}));
  EXPECT_EQ(softmax.nan_count(), 1);
  EXPECT_EQ(softmax.qparams().scale.item<float>(), 1.0F / 256);
  EXPECT_EQ(softmax.qparams().zero_point.item<int>(), -128);
  EXPECT_EQ(tanh.qparams().scale.item<float>(), 1.0F / 128);
  EXPECT_EQ(tanh.qparams().zero_point.item<int>(), 0);
  EXPECT_THROW(softmax.merge(tanh), Error);
  EXPECT_NO_THROW(tanh.merge(FixedObserver("other", scheme, -1, 127.0 / 128)));
  EXPECT_THROW(FixedObserver("x", scheme, 1, 1), Error);
  EXPECT_THROW(FixedObserver("x", scheme, 0, INFINITY), Error);
  EXPECT_THROW(FixedObserver("x", kS8Channel, 0, 1), Error);
}

TEST(Observer, MergeOfHalvesIsTheWhole) {
  torch::manual_seed(1);
  at::Tensor first = torch::randn({5000}), second = torch::randn({5000});
  first[0] = second[0] = -6.0;  // the same range, where the histograms' bins agree
  first[1] = second[1] = 6.0;
  for (const ObserverKind kind : {ObserverKind::min_max, ObserverKind::histogram}) {
    const auto whole = make_observer({kU8, kind}, "w"), a = make_observer({kU8, kind}, "a"),
               b = make_observer({kU8, kind}, "b");
    whole->forward(first);
    whole->forward(second);
    a->forward(first);
    b->forward(second);
    a->merge(*b);
    EXPECT_TRUE(a->qparams().scale.equal(whole->qparams().scale));
    EXPECT_TRUE(a->bounds().max.equal(whole->bounds().max));
  }
  HistogramObserver empty("e", kU8), full("f", kU8);
  full.forward(first);
  empty.merge(full);
  EXPECT_TRUE(empty.qparams().scale.equal(full.qparams().scale));
}

TEST(Observer, MergeOfDifferentRangesKeepsBoundsAndTotal) {
  torch::manual_seed(2);
  HistogramObserver a("a", kU8), b("b", kU8);
  a.forward(torch::rand({1000}));
  b.forward(torch::rand({3000}) * 4 - 2);
  a.merge(b);
  EXPECT_NEAR(a.histogram().sum().item<float>(), 4000, 0.01);
  EXPECT_THROW(a.merge(MinMaxObserver("m", kU8)), Error);
  EXPECT_THROW(a.merge(HistogramObserver("s", kS8)), Error);
  EXPECT_THROW(HistogramObserver("c", kS8Channel), Error);
  EXPECT_THROW(HistogramObserver("t", Scheme{.granularity = PerToken{}}), Error);
}

TEST(Observer, ThreadCountDoesNotMatter) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({400000}) * torch::rand({400000});
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> scales;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    HistogramObserver observer("x", kU8);
    observer.forward(x);
    observer.forward(x * 1.7);
    scales.push_back(observer.qparams().scale);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(scales[0].equal(scales[1]) && scales[0].equal(scales[2]));
}

TEST(HistogramObserver, ClipsAnOutlierAndSurvivesExtremes) {
  torch::manual_seed(4);
  HistogramObserver observer("x", Scheme{.bits = 4});
  observer.forward(torch::cat({torch::randn({100000}), torch::tensor({100.0F})}));
  EXPECT_LT(observer.bounds().max.item<float>(), 20.0F);
  HistogramObserver wide("x", kU8);
  wide.forward(torch::tensor({3e38F, -3e38F, 1.0F, 0.5F}));
  EXPECT_EQ(wide.inf_count(), 2);
  EXPECT_LE(wide.bounds().max.item<float>(), 1.001F);
  HistogramObserver small("x", kU8);
  small.forward(torch::tensor({1e-44F, 0.0F, -1e-45F}));
  EXPECT_EQ(small.qparams().scale.item<float>(), 0x1p-23F);
}

/// PyTorch's search gives up a side of the range from 1e15 on.
TEST(HistogramObserver, BoundsFollowTheUnitOfTheValues) {
  torch::manual_seed(5);
  const at::Tensor uniform = torch::rand({4000}) * 2 - 1, normal = torch::randn({4000}),
                   one_sided = torch::randn({4000}).relu(), two = torch::tensor({-1.0F, 1.0F});
  for (const at::Tensor& values : {uniform, normal, one_sided, two}) {
    for (const Scheme& scheme : {kU8, kS8, Scheme{.bits = 4}}) {
      HistogramObserver plain("x", scheme);
      plain.forward(values);
      plain.forward(values * 1.5);
      const Bounds expected = plain.bounds();
      for (const int exponent : {-100, -50, 30, 48, 50, 53, 70, 100, 110}) {
        const double unit = std::ldexp(1.0, exponent);
        HistogramObserver observer("x", scheme);
        observer.forward(values * unit);
        observer.forward(values * 1.5 * unit);
        const Bounds got = observer.bounds();
        EXPECT_EQ(got.min.item<double>(), expected.min.item<double>() * unit) << exponent;
        EXPECT_EQ(got.max.item<double>(), expected.max.item<double>() * unit) << exponent;
      }
    }
  }
  for (const double magnitude : {1e14, 1e15, 1e18, 1e24, 1e30, 9e33}) {
    HistogramObserver observer("x", kU8);
    observer.forward(uniform * magnitude);
    const double range = (uniform.max() - uniform.min()).item<double>() * magnitude;
    EXPECT_NEAR(observer.qparams().scale.item<double>(), range / 255, 0.002 * range / 255) << magnitude;
  }
}

/// Uniform values of drawn magnitudes and offsets in one to three batches: nothing is cut.
TEST(HistogramObserver, BoundsOfRandomMagnitudesAreTheRange) {
  torch::manual_seed(6);
  std::mt19937_64 random(6);
  const auto draw = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 40; ++i) {
    const double magnitude = std::pow(10.0, 15 + 18.9 * draw()), offset = draw() - 0.5;
    HistogramObserver observer("x", i % 2 == 0 ? kU8 : Scheme{.is_signed = true});
    double least = 0, most = 0;
    for (int batch = 0; batch <= i % 3; ++batch) {
      const at::Tensor values = (torch::rand({4000}) * 2 - 1 + offset) * magnitude;
      observer.forward(values);
      least = std::min(least, values.min().item<double>());
      most = std::max(most, values.max().item<double>());
    }
    EXPECT_EQ(observer.inf_count(), 0) << magnitude;
    const double step = (most - least) / 255;
    EXPECT_NEAR(observer.qparams().scale.item<double>(), step, 0.01 * step) << magnitude << ' ' << offset;
  }
}

/// Beyond 1e34 values are left out and counted, whatever else there is.
TEST(HistogramObserver, RandomMagnitudesBeyondItsArithmeticAreCounted) {
  torch::manual_seed(7);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    const double magnitude = std::pow(10.0, 34.1 + 4.3 * static_cast<double>(random() >> 11) * 0x1p-53);
    const at::Tensor far = (torch::rand({50}) + 1) * (magnitude / 2), near = torch::rand({4000}) * 2 - 1;
    HistogramObserver observer("x", kU8), plain("x", kU8);
    observer.forward(torch::cat({near, far, -far}));
    plain.forward(near);
    EXPECT_EQ(observer.inf_count(), (far > 1e34).sum().item<int64_t>() * 2) << magnitude;
    if (observer.inf_count() < 100) continue;
    EXPECT_EQ(observer.bounds().min.item<float>(), plain.bounds().min.item<float>());
    EXPECT_EQ(observer.bounds().max.item<float>(), plain.bounds().max.item<float>());
  }
}

TEST(Observer, DisabledAndEmptyRecordNothing) {
  MinMaxObserver observer("x", kU8);
  observer.forward(torch::zeros({0, 3}));
  observer.set_enabled(false);
  observer.forward(torch::ones({3}));
  EXPECT_FALSE(observer.seen());
}

}  // namespace
}  // namespace ulp::quant
