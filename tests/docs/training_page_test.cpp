// The samples of docs/training.md.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <iostream>

#include "training/threads.includes.h"

namespace {

TEST(TrainingPage, Threads) {
  const int before = at::get_num_threads();
  int batches = 0;
  const auto train_one_batch = [&] { ++batches; };
  {
#include "training/threads.inc"
    EXPECT_EQ(threads.most(), before);
  }
  EXPECT_EQ(batches, 100);
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
