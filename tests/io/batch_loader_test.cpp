#include "ulp/io/batch_loader.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/base/error.h"

namespace {

using ulp::io::BatchLoader;
using ulp::io::BatchLoaderOptions;

/// Image i holds the pixels i, i+1, ...; its label is i.
ulp::io::ImageDataset counting(int64_t samples, int64_t channels = 1, int64_t side = 4) {
  ulp::io::ImageDataset data;
  const auto pixels =
      torch::arange(channels * side * side).unsqueeze(0) + torch::arange(samples).unsqueeze(1);
  data.images = pixels.to(torch::kByte).reshape({samples, channels, side, side});
  data.labels = torch::arange(samples, torch::kLong);
  data.num_classes = samples;
  return data;
}

std::vector<int64_t> epoch_labels(BatchLoader& loader) {
  std::vector<int64_t> labels;
  while (auto batch = loader.next()) {
    for (int64_t i = 0; i < batch->labels.numel(); ++i) labels.push_back(batch->labels[i].item<int64_t>());
  }
  return labels;
}

TEST(BatchLoader, AnEpochShowsEverySampleOnceInAnOrderOfItsOwn) {
  BatchLoader loader(counting(10), {.batch_size = 4, .seed = 1});
  EXPECT_EQ(loader.batches(), 3);
  auto first = epoch_labels(loader), second = epoch_labels(loader);
  EXPECT_EQ(loader.epoch(), 2);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(BatchLoader, SeedsDecideTheOrder) {
  const auto order = [](uint64_t seed) {
    BatchLoader loader(counting(20), {.seed = seed});
    return epoch_labels(loader);
  };
  EXPECT_EQ(order(3), order(3));
  EXPECT_NE(order(3), order(4));
}

TEST(BatchLoader, TheOrderIsTheSameOnEveryMachine) {
  BatchLoader loader(counting(8), {.seed = 42});
  const auto order = epoch_labels(loader);
  EXPECT_EQ(order, (std::vector<int64_t>{7, 6, 4, 5, 0, 3, 2, 1}));
}

TEST(BatchLoader, DropLastLeavesOutThePartialBatch) {
  BatchLoader loader(counting(10), {.batch_size = 4, .shuffle = false, .drop_last = true});
  EXPECT_EQ(loader.batches(), 2);
  EXPECT_EQ(epoch_labels(loader), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(BatchLoader, PixelsAreNormalisedPerChannel) {
  auto data = counting(3, /*channels=*/2);
  data.mean = {0.1, 0.2};
  data.std = {0.5, 0.25};
  const auto mean = torch::tensor(data.mean).reshape({1, 2, 1, 1}),
             std = torch::tensor(data.std).reshape({1, 2, 1, 1});
  const auto expected = (data.images.to(torch::kDouble) / 255.0 - mean) / std;
  for (bool channels_last : {false, true}) {
    BatchLoader loader(data, {.shuffle = false, .channels_last = channels_last});
    const auto images = loader.next()->images;
    EXPECT_TRUE(torch::allclose(images.to(torch::kDouble), expected, 1e-6, 1e-7));
    EXPECT_EQ(images.is_contiguous(at::MemoryFormat::ChannelsLast), channels_last);
    EXPECT_EQ(images.is_contiguous(), !channels_last);
  }
}

TEST(BatchLoader, FlipsMirrorAboutHalfOfTheImages) {
  const auto data = counting(200, /*channels=*/3);
  BatchLoader loader(data, {.batch_size = 200, .shuffle = false, .random_flip = true, .seed = 5});
  const auto images = loader.next()->images;
  const auto plain = data.images.to(torch::kFloat) / 255.0f;
  int flipped = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const bool same = torch::allclose(images[i], plain[i]);
    EXPECT_TRUE(same || torch::allclose(images[i], plain[i].flip(2))) << "image " << i;
    flipped += same ? 0 : 1;
  }
  EXPECT_GT(flipped, 60);
  EXPECT_LT(flipped, 140);
}

TEST(BatchLoader, ShiftsAreCropsOfThePaddedImage) {
  const auto data = counting(60, /*channels=*/2);
  BatchLoader loader(data,
                     {.batch_size = 60, .shuffle = false, .random_flip = true, .max_shift = 1, .seed = 6});
  const auto images = loader.next()->images;
  const auto padded = torch::constant_pad_nd(data.images.to(torch::kFloat) / 255.0f, {1, 1, 1, 1}, 0);
  std::set<int> seen;
  for (int64_t i = 0; i < 60; ++i) {
    int matches = 0;
    for (int down = 0; down < 3; ++down) {
      for (int right = 0; right < 3; ++right) {
        for (int flip = 0; flip < 2; ++flip) {
          // The loader mirrors first and moves afterwards.
          const auto source = flip ? padded[i].flip(2) : padded[i];
          const auto crop = source.slice(1, down, down + 4).slice(2, right, right + 4);
          if (torch::allclose(images[i], crop)) {
            ++matches;
            seen.insert(down * 6 + right * 2 + flip);
          }
        }
      }
    }
    EXPECT_GE(matches, 1) << "image " << i;
  }
  EXPECT_GT(seen.size(), 12u);
}

TEST(BatchLoader, ARestoredLoaderContinuesExactly) {
  const BatchLoaderOptions options{.batch_size = 3, .random_flip = true, .max_shift = 1, .seed = 9};
  for (int taken = 0; taken < 9; ++taken) {  // within, at the end of, and after the first epoch
    BatchLoader first(counting(10), options);
    for (int i = 0; i < taken; ++i) first.next();
    BatchLoader second(counting(10), {.batch_size = 3, .random_flip = true, .max_shift = 1, .seed = 1});
    second.restore(first.state());
    for (int i = 0; i < 8; ++i) {
      const auto a = first.next(), b = second.next();
      ASSERT_EQ(a.has_value(), b.has_value()) << taken << ' ' << i;
      if (!a) continue;
      EXPECT_TRUE(torch::equal(a->images, b->images)) << taken << ' ' << i;
      EXPECT_TRUE(torch::equal(a->labels, b->labels)) << taken << ' ' << i;
    }
  }
}

TEST(BatchLoader, StatesOfOtherRunsAreRefused) {
  BatchLoader loader(counting(10), {.batch_size = 4});
  EXPECT_THROW(loader.restore("nonsense"), ulp::FileError);
  EXPECT_THROW(loader.restore("{}"), ulp::FileError);
  EXPECT_THROW(loader.restore(BatchLoader(counting(11), {.batch_size = 4}).state()), ulp::FileError);
  EXPECT_THROW(loader.restore(BatchLoader(counting(10), {.batch_size = 5}).state()), ulp::FileError);
  EXPECT_THROW(loader.restore(R"({"epoch":0,"position":11,"seed":0,"samples":10,"batch_size":4})"),
               ulp::FileError);
}

TEST(BatchLoader, BadDataAndOptionsAreRefused) {
  const auto with = [](auto change) {
    auto data = counting(4);
    change(data);
    return data;
  };
  EXPECT_THROW(BatchLoader(ulp::io::ImageDataset{}), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.images = d.images.to(torch::kFloat); })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.images = d.images.squeeze(1); })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.labels = d.labels.slice(0, 0, 3); })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.labels[1] = 4; })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.labels[1] = -1; })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.mean = {0, 0}; })), ulp::Error);
  EXPECT_THROW(BatchLoader(with([](auto& d) { d.std = {0}; })), ulp::Error);
  EXPECT_THROW(BatchLoader(counting(4), {.batch_size = 0}), ulp::Error);
  EXPECT_THROW(BatchLoader(counting(4), {.max_shift = 4}), ulp::Error);
}

}  // namespace
