// Calls that a copied process serves (served.h) are those of the started program.
#include "served.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tool.h"

namespace {

using ulp::test::Outcome;
using ulp::test::plain_words;
using ulp::test::read_file;
using ulp::test::WithLeNet5;

using Words = std::vector<std::string>;

TEST(ServedWords, AreThoseOfAShell) {
  EXPECT_EQ(plain_words(""), Words());
  EXPECT_EQ(plain_words("  train --data  a,b.npy '--lr=0.1' "),
            (Words{"train", "--data", "a,b.npy", "--lr=0.1"}));
  EXPECT_EQ(plain_words("--explain '1,2;3 *' '' a'b c'd caf\xe9"),
            (Words{"--explain", "1,2;3 *", "", "ab cd", "caf\xe9"}));
  for (const char* more :
       {"formats >x", "formats; true", "run *.ulp", "run $HOME", "run '$HOME'", "run a\\ b", "run ~/m",
        "run \"m\"", "run 'm", "run {a,b}", "run m?", "run m | cat", "run m &", "run #m", "run `m`"})
    EXPECT_FALSE(plain_words(more)) << more;
}

class Served : public WithLeNet5 {};

TEST_F(Served, CallsGiveWhatTheProgramGives) {
  for (const char* args :
       {"", "--help", "--version", "nonsense", "train --help", "train --no-such-flag",
        "formats 0.1 --as e4m3 --json", "devices --json", "inspect m.safetensors --json", "eval none.ulp",
        "inspect resnet20 --dot", "quantize --explain '1,2;3,4' --granularity token"}) {
    const Outcome served = shop_->ulp(args), started = shop_->started(args);
    EXPECT_EQ(served.code, started.code) << args;
    EXPECT_EQ(served.out, started.out) << args;
    EXPECT_EQ(served.err, started.err) << args;
  }
}

TEST_F(Served, FilesHaveTheSameBytes) {
  for (const std::string args : {"train --model mlp --data data --batch 16 --max-steps 12 --lr 0.02 "
                                 "--precision bf16 --masters split --out ",
                                 "quantize m.safetensors --data data --samples 64 --test 0 --out ",
                                 "export m.safetensors --to onnx --out "}) {
    const std::string name = args.starts_with("train")    ? ".safetensors"
                             : args.starts_with("export") ? ".onnx"
                                                          : ".ulp";
    EXPECT_EQ(shop_->ulp(args + "served" + name).code, 0) << args;
    EXPECT_EQ(shop_->started(args + "started" + name).code, 0) << args;
    EXPECT_TRUE(read_file(*shop_ / ("served" + name)) == read_file(*shop_ / ("started" + name))) << args;
  }
}

TEST_F(Served, AVariableThatLibrariesReadAsTheyLoadActs) {
  const std::string shown = "OPENMP DISPLAY ENVIRONMENT BEGIN";
  EXPECT_EQ(shop_->ulp("devices").err.find(shown), std::string::npos);
  ::setenv("OMP_DISPLAY_ENV", "true", 1);
  const Outcome displayed = shop_->ulp("devices");
  ::unsetenv("OMP_DISPLAY_ENV");
  EXPECT_NE(displayed.err.find(shown), std::string::npos) << displayed.err;
  EXPECT_EQ(shop_->ulp("devices").err.find(shown), std::string::npos);
}

}  // namespace
