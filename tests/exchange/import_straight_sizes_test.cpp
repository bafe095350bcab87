// Numbers that a graph computes from the sizes of its inputs: right at every size, or refused by name.
#include <gtest/gtest.h>

#include "error_of.h"
#include "onnx_case.h"

namespace {

using torch::Tensor;
using ulp::test::OnnxCase;

/// x [batch, time], and `n`: the size of a dimension as a tensor [1].
OnnxCase with_size(int64_t dim) {
  OnnxCase file;
  file.input("x", {-1, -2}).tensor("dim", torch::tensor({dim})).node("Shape", {"x"}, {"sizes"});
  file.node("Gather", {"sizes", "dim"}, {"n"}).tensor("five", torch::tensor({5}));
  return file;
}

/// x plus the number `value`, of any type.
OnnxCase& plus(OnnxCase& file, const std::string& value) {
  return file.node("Cast", {value}, {"number"}, {{"to", int64_t{1}}})
      .node("Add", {"x", "number"}, {"y"})
      .output("y");
}

TEST(StraightSizes, WhatBendsIsRefusedByName) {
  for (const int64_t dim : {0, 1}) {
    for (const std::string op : {"Min", "Max", "Mod", "Div", "Greater", "Less", "Equal"}) {
      OnnxCase file = with_size(dim);
      file.node(op, {"n", "five"}, {"bent"});
      EXPECT_ERROR(plus(file, "bent").import(),
                   "node 'the_" + op + "' (" + op +
                       "): expected a number that follows the sizes of the inputs by a polynomial");
    }
    for (const std::string op : {"Relu", "Abs", "Sign"}) {
      OnnxCase file = with_size(dim);
      file.node("Sub", {"n", "five"}, {"less"}).node(op, {"less"}, {"bent"});
      EXPECT_ERROR(plus(file, "bent").import(),
                   "node 'the_" + op + "' (" + op + "): expected a number that follows");
    }
    OnnxCase file = with_size(dim);
    file.node("Cast", {"n"}, {"real"}, {{"to", int64_t{1}}}).node("Sqrt", {"real"}, {"bent"});
    EXPECT_ERROR(plus(file, "bent").import(), "node 'the_Sqrt' (Sqrt): expected a number that follows");
  }
}

TEST(StraightSizes, TheMessageSaysWhere) {
  OnnxCase file = with_size(0);
  file.node("Min", {"n", "five"}, {"bent"});
  EXPECT_ERROR(plus(file, "bent").import(), "got one that leaves it where the batch is 6");
}

TEST(StraightSizes, WhatBendsNowhereIsRead) {
  OnnxCase file = with_size(1);
  file.tensor("minus", torch::tensor({-1}))
      .tensor("one", torch::tensor({1}))
      .tensor("third", torch::tensor({1.0F / 4}));
  file.node("Equal", {"n", "minus"}, {"free"}).node("Where", {"free", "one", "n"}, {"chosen"});
  file.node("Max", {"chosen", "one"}, {"positive"}).node("Mul", {"positive", "positive"}, {"square"});
  file.node("Cast", {"square"}, {"real"}, {{"to", int64_t{1}}}).node("Mul", {"real", "third"}, {"scaled"});
  plus(file, "scaled");
  for (const int64_t time : {1, 2, 7, 40}) {
    const Tensor x = torch::randn({3, time});
    EXPECT_TRUE(torch::equal(file.run({x}), x + static_cast<float>(time * time) / 4)) << time;
  }
}

TEST(StraightSizes, ASizeThatIsGivenMayBend) {
  OnnxCase file = with_size(1);
  file.node("Min", {"n", "five"}, {"bent"});
  plus(file, "bent");
  const Tensor x = torch::randn({2, 9});
  EXPECT_TRUE(torch::equal(file.run({x}, 18, {.sizes = {{"time", {.min = 9, .max = 9}}}}), x + 5));
}

TEST(StraightSizes, SlicesToTheFrontAreRightAtEverySize) {
  struct Places {
    int64_t start, end, step;
  };
  constexpr int64_t kAll = std::numeric_limits<int64_t>::min();
  for (const Places& p : {Places{3, 0, -1}, Places{-1, kAll, -1}, Places{10, 0, -1}, Places{6, 192, -1},
                          Places{-1, 5, -1}, Places{-2, -4, -1}, Places{9, -100, -3}, Places{-1, 2, -2}}) {
    for (const int64_t dim : {0, 1}) {
      OnnxCase file;
      file.input("x", {-1, -2})
          .tensor("start", torch::tensor({p.start}))
          .tensor("end", torch::tensor({p.end}));
      file.tensor("axis", torch::tensor({dim})).tensor("step", torch::tensor({p.step}));
      file.node("Slice", {"x", "start", "end", "axis", "step"}, {"y"}).output("y");
      const auto module = file.import();
      for (const int64_t size : {2, 3, 5, 7, 12, 13}) {
        const Tensor x = dim == 0 ? torch::randn({size, 4}) : torch::randn({4, size});
        // As ONNX has it: places from the back count from the size, and end inside.
        const int64_t from = std::clamp<int64_t>(p.start < 0 ? p.start + size : p.start, 0, size - 1);
        const int64_t to =
            p.end == kAll ? -1 : std::clamp<int64_t>(p.end < 0 ? p.end + size : p.end, -1, size - 1);
        std::vector<int64_t> places;
        for (int64_t i = from; i > to; i += p.step) places.push_back(i);
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(torch::equal(module->forward_all({x}).at(0),
                                 x.index_select(dim, torch::tensor(places, torch::kLong))))
            << p.start << ' ' << p.end << ' ' << p.step << " of " << size << " along " << dim;
      }
    }
  }
}

}  // namespace
