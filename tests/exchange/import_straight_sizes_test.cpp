// Numbers that a graph computes from the sizes of its inputs: right at every size, or refused by name.
#include <gtest/gtest.h>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/base/error.h"

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

/// x[:, :value].
OnnxCase& cut(OnnxCase& file, const std::string& value) {
  return file.tensor("zero", torch::tensor({0}))
      .tensor("columns", torch::tensor({1}))
      .node("Cast", {value}, {"end"}, {{"to", int64_t{7}}})
      .node("Slice", {"x", "zero", "end", "columns"}, {"y"})
      .output("y");
}

OnnxCase& bent_by(OnnxCase& file, const std::string& op) {
  if (op == "Sqrt") {
    file.node("Cast", {"n"}, {"real"}, {{"to", int64_t{1}}}).node("Sqrt", {"real"}, {"bent"});
  } else if (op == "Relu" || op == "Abs" || op == "Sign") {
    file.node("Sub", {"n", "five"}, {"less"}).node(op, {"less"}, {"bent"});
  } else {
    file.node(op, {"n", "five"}, {"bent"});
  }
  return file;
}

constexpr const char* kBending[] = {"Min",   "Max",  "Mod", "Div",  "Greater", "Less",
                                    "Equal", "Relu", "Abs", "Sign", "Sqrt"};

TEST(StraightSizes, ArgumentsThatBendAreRefusedByName) {
  for (const int64_t dim : {0, 1}) {
    for (const std::string op : kBending) {
      OnnxCase file = with_size(dim);
      EXPECT_ERROR(
          cut(bent_by(file, op), "bent").import(),
          "node 'the_" + op + "' (" + op + "): expected a number that follows the sizes of the inputs");
    }
  }
}

/// What x plus the bent number is.
Tensor right(const std::string& op, const Tensor& x, int64_t n) {
  const Tensor size = torch::tensor({n}), five = torch::tensor({5});
  const Tensor number = op == "Min"       ? torch::minimum(size, five)
                        : op == "Max"     ? torch::maximum(size, five)
                        : op == "Mod"     ? torch::remainder(size, five)
                        : op == "Div"     ? torch::floor_divide(size, five)
                        : op == "Greater" ? size.gt(five)
                        : op == "Less"    ? size.lt(five)
                        : op == "Equal"   ? size.eq(five)
                        : op == "Relu"    ? torch::relu(size - five)
                        : op == "Abs"     ? torch::abs(size - five)
                        : op == "Sign"    ? torch::sign(size - five)
                                          : torch::sqrt(size.to(torch::kFloat));
  return x + number.to(torch::kFloat);
}

TEST(StraightSizes, TensorsThatBendAreRightAtEverySizeOrRefused) {
  int read = 0;
  for (const int64_t dim : {0, 1}) {
    for (const std::string op : kBending) {
      OnnxCase file = with_size(dim);
      plus(bent_by(file, op), "bent");
      std::shared_ptr<ulp::graph::GraphModule> module;
      try {
        module = file.import();
      } catch (const ulp::Error&) {
        continue;  // taken for a constant
      }
      ++read;
      for (const int64_t size : {1, 4, 5, 6, 9, 30}) {
        const Tensor x = dim == 0 ? torch::randn({size, 4}) : torch::randn({4, size});
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(torch::allclose(module->forward_all({x}).at(0), right(op, x, size)))
            << op << ' ' << dim << ' ' << size;
      }
    }
  }
  EXPECT_GT(read, 4);
}

TEST(StraightSizes, TheMessageSaysWhere) {
  OnnxCase file = with_size(0);
  EXPECT_ERROR(cut(bent_by(file, "Min"), "bent").import(), "got one that leaves it where the batch is 6");
}

TEST(StraightSizes, WhatFollowsWhatBendsIsRefused) {
  OnnxCase file = with_size(0);
  bent_by(file, "Min").node("Add", {"bent", "five"}, {"more"});
  EXPECT_ERROR(cut(file, "more").import(), "node 'the_Min' (Min)");
}

TEST(StraightSizes, SizesOfWhatIsCutAreSeenFarAway) {
  OnnxCase file;
  file.input("x", {-1, -2}).tensor("zero", torch::tensor({0})).tensor("five", torch::tensor({5}));
  file.tensor("w", torch::ones({1, 1})).node("Slice", {"x", "zero", "five", "zero"}, {"part"});
  file.node("Shape", {"part"}, {"sizes"}).node("Expand", {"w", "sizes"}, {"y"}).output("y");
  EXPECT_ERROR(file.import(), "leaves it where the batch is 9");
}

TEST(StraightSizes, GraphsInsideNodesAreLookedInto) {
  OnnxCase file = with_size(0), body;
  body.input("i", {}, torch::kLong).input("go", {}, torch::kBool).input("state", {-1, -2});
  body.node("Less", {"n", "five"}, {"few"}).node("Cast", {"few"}, {"number"}, {{"to", int64_t{1}}});
  body.node("Add", {"state", "number"}, {"next"}).node("Identity", {"go"}, {"goes_on"});
  body.output("goes_on").output("next");
  file.tensor("steps", torch::tensor(1)).tensor("yes", torch::tensor(true));
  file.node("Loop", {"steps", "yes", "x"}, {"y"}, {{"body", body.branch()}}).output("y");
  EXPECT_ERROR(file.import(), "node 'the_Less' (Less): expected a number");
}

/// A loop of so many steps with x and a number of its own, whose body is given.
OnnxCase& looped(OnnxCase& file, const OnnxCase& body, int64_t steps) {
  file.tensor("steps", torch::tensor(steps))
      .tensor("yes", torch::tensor(true))
      .tensor("none", torch::tensor({0}));
  return file.node("Loop", {"steps", "yes", "none"}, {"last"}, {{"body", body.branch()}});
}

OnnxCase body_of_loop() {
  OnnxCase body;
  body.input("i", {}, torch::kLong).input("go", {}, torch::kBool).input("state", {1}, torch::kLong);
  return body.node("Identity", {"go"}, {"goes_on"}).output("goes_on").output("next");
}

TEST(StraightSizes, WhatBendsInALoopBendsBehindIt) {
  for (const int64_t dim : {0, 1}) {
    OnnxCase file = with_size(dim), body = body_of_loop();
    file.tensor("fifty", torch::tensor({50}));
    body.node("Min", {"n", "fifty"}, {"few"}).node("Add", {"state", "few"}, {"next"});
    EXPECT_ERROR(cut(looped(file, body, 2), "last").import(), "node 'the_Min' (Min): expected a number");
  }
}

TEST(StraightSizes, NumbersOfEarlierStepsAreNoConstants) {
  OnnxCase file = with_size(1), body = body_of_loop();
  body.tensor("first", torch::tensor(0)).node("Equal", {"i", "first"}, {"begins"});
  body.tensor("nothing", torch::tensor({0})).node("Where", {"begins", "n", "nothing"}, {"more"});
  body.node("Add", {"state", "more"}, {"next"});
  file.tensor("two", torch::tensor({2}));
  looped(file, body, 3).node("Sub", {"last", "two"}, {"less"});
  cut(file, "less");
  for (const int64_t time : {5, 17, 40}) {
    const Tensor x = torch::randn({2, time});
    EXPECT_TRUE(torch::equal(file.run({x}), x.slice(1, 0, time - 2))) << time;
  }
}

TEST(StraightSizes, StepsThatEndByASizeAreRefused) {
  OnnxCase file = with_size(0), body;
  body.input("i", {}, torch::kLong).input("go", {}, torch::kBool).input("state", {-1, -2});
  body.node("Less", {"i", "n"}, {"all"}).node("Squeeze", {"all"}, {"goes_on"});
  body.node("Add", {"state", "state"}, {"next"}).output("goes_on").output("next");
  file.tensor("steps", torch::tensor(2)).tensor("yes", torch::tensor(true));
  file.node("Loop", {"steps", "yes", "x"}, {"y"}, {{"body", body.branch()}}).output("y");
  EXPECT_ERROR(file.import(),
               "(Less): expected a number that follows the sizes of the inputs by a polynomial");
}

TEST(StraightSizes, WhatBendsNowhereIsRead) {
  OnnxCase file = with_size(1);
  file.tensor("minus", torch::tensor({-1})).tensor("one", torch::tensor({1}));
  file.node("Equal", {"n", "minus"}, {"free"}).node("Where", {"free", "one", "n"}, {"chosen"});
  file.node("Max", {"chosen", "one"}, {"positive"}).node("Sub", {"positive", "one"}, {"less"});
  cut(file, "less");
  for (const int64_t time : {2, 7, 40}) {
    const Tensor x = torch::randn({3, time});
    EXPECT_TRUE(torch::equal(file.run({x}), x.slice(1, 0, time - 1))) << time;
  }
}

TEST(StraightSizes, ASizeThatIsGivenMayBend) {
  OnnxCase file = with_size(1);
  cut(bent_by(file, "Min"), "bent");
  const Tensor x = torch::randn({2, 9});
  EXPECT_TRUE(torch::equal(file.run({x}, 18, {.sizes = {{"time", {.min = 9, .max = 9}}}}), x.slice(1, 0, 5)));
}

TEST(StraightSizes, SlicesToTheFrontAreRightAtEverySize) {
  struct Places {
    int64_t start, end, step;
  };
  constexpr int64_t kAll = std::numeric_limits<int64_t>::min();
  for (const Places& p : {Places{3, 0, -1}, Places{-1, kAll, -1}, Places{10, 0, -1}, Places{6, 192, -1},
                          Places{-1, 5, -1}, Places{-2, -4, -1}, Places{-3, kAll, -2}, Places{-5, 0, -1},
                          Places{-4, -1, -1}, Places{9, -100, -3}, Places{-1, 2, -2}}) {
    for (const int64_t dim : {0, 1}) {
      OnnxCase file;
      file.input("x", {-1, -2})
          .tensor("start", torch::tensor({p.start}))
          .tensor("end", torch::tensor({p.end}));
      file.tensor("axis", torch::tensor({dim})).tensor("step", torch::tensor({p.step}));
      file.node("Slice", {"x", "start", "end", "axis", "step"}, {"y"}).output("y");
      const auto module = file.import();
      for (const int64_t size : {1, 2, 3, 5, 7, 12, 13}) {
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
