// Observers that keep a histogram: exact merging, and bounds against plain numpy code
// (tests/golden/make_calibration.py).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "golden_data.h"
#include "schemes.h"
#include "ulp/base/error.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/quant/observers/calibration_observer.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

using nlohmann::json;

// "mse u8_affine", "percentile s8_symmetric 99.9"
std::shared_ptr<CalibrationObserver> calibration_observer(const std::string& name) {
  std::istringstream words(name);
  std::string kind, scheme;
  double percent = 100;
  words >> kind >> scheme >> percent;
  if (kind == "mse") return std::make_shared<MseObserver>(name, scheme_of(scheme));
  if (kind == "entropy") return std::make_shared<EntropyObserver>(name, scheme_of(scheme));
  return std::make_shared<PercentileObserver>(name, scheme_of(scheme), percent);
}

const json& calibration_golden() {
  static const json file = json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/calibration.json"));
  return file["cases"];
}

std::vector<at::Tensor> batches_of(const json& one) {
  std::vector<at::Tensor> batches;
  for (const auto& batch : one["batches"]) {
    batches.push_back(test::make(batch[0], batch[1], batch[2]) * batch[3].get<double>());
  }
  return batches;
}

void expect_near(double got, double expected, const std::string& what) {
  EXPECT_LE(std::abs(got - expected), 1e-6 * std::abs(expected))
      << what << ": " << got << " against " << expected;
}

TEST(Calibration, BoundsAreThoseOfThePlainSearches) {
  ASSERT_EQ(calibration_golden().size(), 11U);
  int compared = 0;
  for (const auto& [name, one] : calibration_golden().items()) {
    const auto batches = batches_of(one);
    for (const auto& [kind, expected] : one["results"].items()) {
      if (kind.starts_with("exact")) continue;
      const auto observer = calibration_observer(kind);
      for (const at::Tensor& batch : batches) observer->forward(batch);
      const Bounds bounds = observer->bounds();
      expect_near(bounds.min.item<double>(), expected["min"], name + " " + kind);
      expect_near(bounds.max.item<double>(), expected["max"], name + " " + kind);
      ++compared;
    }
  }
  EXPECT_EQ(compared, 11 * 16);
}

// The histogram's quantile lies in the same bin as the exact one.
TEST(Percentile, IsWithinABinOfTheExactQuantile) {
  for (const auto& [name, one] : calibration_golden().items()) {
    for (const double percent : {99.0, 80.0}) {
      PercentileObserver observer(name, kU8, percent);
      for (const at::Tensor& batch : batches_of(one)) observer.forward(batch);
      const double low = one["results"][percent == 99 ? "exact 0.005" : "exact 0.1"],
                   high = one["results"][percent == 99 ? "exact 0.995" : "exact 0.9"], width = one["width"];
      EXPECT_LE(std::abs(observer.bounds().min.item<double>() - low), width) << name << percent;
      EXPECT_LE(std::abs(observer.bounds().max.item<double>() - high), width) << name << percent;
    }
  }
}

TEST(Percentile, OneHundredKeepsEverything) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({10000});
  PercentileObserver all("x", kU8, 100);
  all.forward(x);
  EXPECT_TRUE(all.bounds().min.equal(x.min()));
  EXPECT_TRUE(all.bounds().max.equal(x.max()));
  EXPECT_THROW(PercentileObserver("x", kU8, 0), Error);
  EXPECT_THROW(PercentileObserver("x", kU8, 101), Error);
}

// No other pair of bounds on a grid has a smaller error on the data itself.
TEST(Mse, NoOtherBoundsAreBetter) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({20000}) * torch::rand({20000}).exp() + 0.3;
  for (const char* name : {"u4_affine", "s4_restricted", "s3_symmetric"}) {
    const Scheme scheme = scheme_of(name);
    MseObserver observer(name, scheme);
    observer.forward(x);
    const auto error = [&](double low, double high) {
      return quantization_error(
                 x, quantize_dequantize(x, choose_qparams(torch::tensor(low), torch::tensor(high), scheme)))
          .mse;
    };
    const double low = observer.bounds().min.item<double>(), high = observer.bounds().max.item<double>();
    const double found = error(low, high);
    EXPECT_LT(found, 0.8 * error(x.min().item<double>(), x.max().item<double>())) << name;
    for (int i = -10; i <= 10; ++i) {
      for (int k = -10; k <= 10; ++k) {
        EXPECT_GE(error(low * std::exp2(i / 10.0), high * std::exp2(k / 10.0)), 0.995 * found)
            << name << i << ' ' << k;
      }
    }
  }
}

TEST(Entropy, CutsAFewOutliersAndKeepsWhatIsDense) {
  torch::manual_seed(3);
  const at::Tensor dense = torch::randn({200000});
  EntropyObserver with("x", kS8), without("x", kS8);
  without.forward(dense);
  with.forward(at::cat({dense, torch::full({3}, 60.0F)}));
  EXPECT_LT(with.bounds().max.item<float>(), 10.0F);
  EXPECT_GT(without.bounds().max.item<float>(), 3.0F);
  EntropyObserver relu("x", kU8);
  relu.forward(at::relu(dense));
  EXPECT_EQ(relu.bounds().min.item<float>(), 0.0F);
  EXPECT_GT(relu.bounds().max.item<float>(), 2.5F);
}

template <typename T>
std::shared_ptr<CalibrationObserver> of_kind(const Scheme& scheme) {
  return std::make_shared<T>("x", scheme);
}
using Make = std::shared_ptr<CalibrationObserver> (*)(const Scheme&);
const Make kMakers[] = {of_kind<PercentileObserver>, of_kind<EntropyObserver>, of_kind<MseObserver>};

void expect_same(const CalibrationObserver& a, const CalibrationObserver& b) {
  EXPECT_TRUE(a.counts().equal(b.counts()));
  EXPECT_TRUE(a.bounds().min.equal(b.bounds().min));
  EXPECT_TRUE(a.bounds().max.equal(b.bounds().max));
}

TEST(Calibration, MergingIsExactWhateverTheRanges) {
  torch::manual_seed(4);
  std::vector<at::Tensor> parts;
  for (const double factor : {1.0, 1000.0, 1e-4, 0.0, 3.0}) parts.push_back(torch::randn({4, 500}) * factor);
  for (const Make make : kMakers) {
    for (const Granularity& granularity : {Granularity(PerTensor{}), Granularity(PerChannel{0})}) {
      Scheme scheme = kS8;
      scheme.granularity = granularity;
      const auto whole = make(scheme), batched = make(scheme), backwards = make(scheme),
                 merged = make(scheme);
      whole->forward(at::cat(parts, 1));
      for (const at::Tensor& part : parts) batched->forward(part);
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        backwards->forward(*part);
        const auto one = make(scheme);
        one->forward(*part);
        merged->merge(*one);
      }
      expect_same(*whole, *batched);
      expect_same(*whole, *backwards);
      expect_same(*whole, *merged);
    }
  }
}

TEST(Calibration, CountsEveryFiniteValueOnceInItsBin) {
  const at::Tensor x =
      torch::tensor({0.0F, 1.0F, -1.0F, 1.5F, -1e-30F, 3.4e38F, -3.4e38F, 1e-45F, NAN, INFINITY});
  MseObserver observer("x", kS8);
  observer.forward(x.slice(0, 0, 4));
  constexpr int64_t kSide = CalibrationHistogram::kBinsPerSide;
  for (const double value : {0.0, 1.0, -1.0, 1.5}) {  // bins of 2 / 4096
    const auto bin = static_cast<int64_t>(std::floor(value * kSide / 2)) + kSide;
    EXPECT_EQ(observer.counts()[0][bin].item<int64_t>(), 1) << value;
  }
  observer.forward(x.slice(0, 4));
  EXPECT_EQ(observer.counts().sum().item<int64_t>(), 8);
  EXPECT_EQ(observer.counts()[0][0].item<int64_t>(), 0);  // |3.4e38| is below 2^128
  EXPECT_EQ(observer.counts()[0][kSide - 1].item<int64_t>(), 2);
  EXPECT_EQ(observer.counts()[0][kSide].item<int64_t>(), 4);
  EXPECT_EQ(observer.nan_count(), 1);
  EXPECT_EQ(observer.inf_count(), 1);
}

TEST(Calibration, ChannelsAreObservedAlone) {
  torch::manual_seed(5);
  const at::Tensor x =
      torch::randn({3, 4, 6, 6}) * torch::tensor({1.0F, 100.0F, 0.01F, 0.0F}).view({1, 4, 1, 1});
  for (const Make make : kMakers) {
    Scheme scheme = kS8;
    scheme.granularity = PerChannel{1};
    const auto all = make(scheme);
    all->forward(x);
    EXPECT_EQ(all->qparams().scale.numel(), 4);
    for (int64_t c = 0; c < 4; ++c) {
      const auto one = make(kS8);
      one->forward(x.select(1, c));
      EXPECT_TRUE(all->qparams().scale[c].equal(one->qparams().scale[0])) << c;
    }
    EXPECT_EQ(all->qparams().scale[3].item<float>(), 0x1p-23F);  // the channel of zeros
    EXPECT_THROW(all->forward(torch::randn({3, 5, 6, 6})), Error);
  }
}

TEST(Calibration, ThreadCountDoesNotMatter) {
  torch::manual_seed(6);
  const at::Tensor x = torch::randn({500000}) * torch::rand({500000});
  const int threads = at::get_num_threads();
  for (const Make make : kMakers) {
    at::set_num_threads(1);
    const auto one = make(kU8), many = make(kU8);
    one->forward(x);
    at::set_num_threads(4);
    many->forward(x);
    expect_same(*one, *many);
  }
  at::set_num_threads(threads);
}

// Tensors alive, and at most alive, after 10 and after 1,000 batches whose range grows all the time.
TEST(Calibration, MemoryDoesNotGrowWithBatches) {
  torch::manual_seed(7);
  for (const ObserverKind kind :
       {ObserverKind::min_max, ObserverKind::moving_average, ObserverKind::histogram,
        ObserverKind::percentile, ObserverKind::entropy, ObserverKind::mse}) {
    const measure::MemoryMeter meter;
    const auto observer = make_observer({kU8, kind}, "x");
    const auto observe = [&](int from, int to) {
      for (int i = from; i < to; ++i) observer->forward(torch::randn({500}) * i);
    };
    observe(1, 10);
    const int64_t live = meter.live_bytes(), peak = meter.peak_bytes();
    observe(10, 1000);
    EXPECT_EQ(meter.live_bytes(), live) << kind;
    EXPECT_EQ(meter.peak_bytes(), peak) << kind;
    EXPECT_GT(live, 0);
    EXPECT_LT(live, 70000);
  }
}

TEST(Calibration, RefusesWhatItCannotObserve) {
  EXPECT_THROW(MseObserver("x", Scheme{.granularity = PerGroup{4}}), Error);
  PercentileObserver a("x", kU8, 99), b("x", kU8, 98);
  b.forward(torch::ones({3}));
  EXPECT_THROW(a.merge(b), Error);
  EXPECT_THROW(a.merge(MseObserver("x", kU8)), Error);
  EntropyObserver nothing("x", kU8);
  nothing.forward(torch::full({3}, NAN));
  EXPECT_FALSE(nothing.seen());
  EXPECT_THROW(nothing.bounds(), Error);
  EXPECT_EQ(nothing.nan_count(), 3);
  nothing.forward(torch::ones({3}));
  EXPECT_EQ(nothing.bounds().max.item<float>(), 1.0F);
}

TEST(Calibration, MergingOtherChannelsIsRefused) {
  const Scheme scheme{.granularity = PerChannel{0}};
  for (const float first : {1.0F, NAN}) {
    for (const auto& [ours, theirs] : {std::pair{1, 4}, {4, 1}, {3, 4}}) {
      MseObserver a("'fc'", scheme), b("b", scheme);
      a.forward(torch::full({ours, 2}, first));
      b.forward(torch::ones({theirs, 2}));
      EXPECT_THROW(a.merge(b), Error) << ours << ' ' << theirs << ' ' << first;
    }
  }
}

// One channel without finite values beside others.
TEST(Calibration, ChannelOfNaNRepresentsZero) {
  MseObserver observer("x", Scheme{.is_signed = true, .granularity = PerChannel{0}});
  observer.forward(torch::tensor({{NAN, NAN}, {1.0F, -2.0F}}));
  EXPECT_TRUE(observer.bounds().min.equal(torch::tensor({0.0F, -2.0F})));
  EXPECT_EQ(observer.qparams().scale[0].item<float>(), 0x1p-23F);
  EXPECT_EQ(observer.nan_count(), 2);
}

}  // namespace
}  // namespace ulp::quant
