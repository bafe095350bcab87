#include "ulp/io/sample_order.h"

#include <gtest/gtest.h>

#include <vector>

#include "ulp/base/error.h"

namespace {

using ulp::io::SampleOrder;
using ulp::io::SampleOrderOptions;
using Samples = std::vector<int64_t>;

/// The samples of one epoch in the order given, batches after one another.
Samples epoch_of(SampleOrder& order) {
  Samples all;
  for (auto batch = order.next(); !batch.empty(); batch = order.next())
    all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(SampleOrder, TheOrderIsTheSameOnEveryMachine) {
  SampleOrder order({.samples = 8, .batch_size = 3, .seed = 42});
  EXPECT_EQ(order.batches(), 3);
  EXPECT_EQ(epoch_of(order), (Samples{7, 6, 4, 5, 0, 3, 2, 1}));
  EXPECT_EQ(order.epoch(), 1);
  Samples second = epoch_of(order);
  EXPECT_NE(second, (Samples{7, 6, 4, 5, 0, 3, 2, 1}));
  std::sort(second.begin(), second.end());
  EXPECT_EQ(second, (Samples{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SampleOrder, DropLastLeavesOutThePartialBatch) {
  SampleOrder order({.samples = 8, .batch_size = 3, .shuffle = false, .drop_last = true});
  EXPECT_EQ(order.batches(), 2);
  EXPECT_EQ(epoch_of(order), (Samples{0, 1, 2, 3, 4, 5}));
}

TEST(SampleOrder, ARestoredOrderContinuesExactly) {
  SampleOrder first({.samples = 10, .batch_size = 4, .seed = 3});
  first.next();
  SampleOrder second({.samples = 10, .batch_size = 4, .seed = 4});
  second.restore(first.state());
  EXPECT_EQ(epoch_of(first), epoch_of(second));
  EXPECT_EQ(epoch_of(first), epoch_of(second));
}

TEST(SampleOrder, ThePartsOfProcessesMakeTheBatches) {
  const SampleOrderOptions options{.samples = 23, .batch_size = 6, .seed = 5};
  SampleOrder whole(options);
  std::vector<SampleOrder> parts;
  for (int64_t part = 0; part < 3; ++part) {
    SampleOrderOptions own = options;
    own.part = part;
    own.parts = 3;
    parts.emplace_back(own);
  }
  for (int i = 0; i < 10; ++i) {  // the last batch of an epoch has 5 samples
    const auto expected = whole.next();
    Samples together;
    for (SampleOrder& part : parts) {
      const auto own = part.next();
      together.insert(together.end(), own.begin(), own.end());
    }
    EXPECT_EQ(together, Samples(expected.begin(), expected.end())) << "batch " << i;
    for (const SampleOrder& part : parts) EXPECT_EQ(part.state(), whole.state());
  }
  EXPECT_THROW(SampleOrder({.samples = 4, .batch_size = 2, .part = 2, .parts = 2}), ulp::Error);
  EXPECT_THROW(SampleOrder({.samples = 4, .batch_size = 2, .parts = 3}), ulp::Error);
}

TEST(SampleOrder, BadSizesAndForeignStatesAreRefused) {
  EXPECT_THROW(SampleOrder({.samples = 0}), ulp::Error);
  EXPECT_THROW(SampleOrder({.samples = 4, .batch_size = 0}), ulp::Error);
  SampleOrder order({.samples = 10, .batch_size = 4});
  EXPECT_THROW(order.restore("{}"), ulp::FileError);
  EXPECT_THROW(order.restore(SampleOrder({.samples = 10, .batch_size = 5}).state()), ulp::FileError);
}

}  // namespace
