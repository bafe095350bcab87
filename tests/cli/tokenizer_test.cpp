// ulp tokenizer, and what reads the tokens of one.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::Workshop;
using ulp::test::write_file;

struct Pieces : Workshop {
  Pieces() {
    std::string book, lines;
    for (int i = 0; i < 300; ++i) {
      const std::string number = std::to_string(i * 7 % 100);
      book += "Line " + number + " of the caf\xC3\xA9's book.\n";
      lines += i % 2 == 0 ? "good\ta fine day " + number + "\n" : "bad\tan awful hour " + number + "\n";
    }
    write_file(*this / "book.txt", book);
    write_file(*this / "lines.tsv", lines);
    good("tokenizer book.txt --vocab-size 300 --out bpe.json");
    good("tokenizer lines.tsv --kind wordpiece --vocab-size 200 --out wordpiece.json");
  }
  Outcome good(const std::string& args) const {
    const Outcome outcome = ulp(args);
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome;
  }
};

TEST(TokenizerTool, ALanguageModelReadsAndWritesTokens) {
  const Pieces shop;
  shop.good(
      "train --model gpt2 --data book.txt --tokenizer bpe.json --length 12 --batch 8 --max-steps 30 "
      "--threads 1 --out gpt2.safetensors");
  const Outcome shown = shop.good("inspect gpt2.safetensors");
  EXPECT_NE(shown.out.find("--json shows them"), std::string::npos) << "a tokenizer is long: " << shown.out;
  const Outcome quality = shop.good("eval gpt2.safetensors --data book.txt");
  EXPECT_NE(quality.out.find("bits a token"), std::string::npos) << quality.out;
  shop.good("lower gpt2.safetensors --continued time --out gpt2.ulp");
  const std::string generate = "generate gpt2.ulp --prompt 'Line 7' --count 6 --temperature 0 --json";
  const Outcome inside = shop.good(generate), outside = shop.good(generate + " --tokenizer bpe.json");
  const auto text = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["text"].get<std::string>();
  };
  EXPECT_EQ(text(inside), text(outside));
  EXPECT_FALSE(text(inside).empty());
  expect_error(shop.ulp("generate gpt2.ulp --tokenizer wordpiece.json --prompt a"), 3,
               "the model was trained with");
  shop.good("quantize gpt2.safetensors --mode weight-only --data book.txt --out q.ulp");
  shop.good("train --init gpt2.safetensors --data book.txt --batch 8 --max-steps 2 --threads 1");
}

TEST(TokenizerTool, AClassifierReadsTheTemplateAndPadding) {
  const Pieces shop;
  for (const std::string model : {"bert", "distilbert"}) {
    shop.good("train --model " + model +
              " --data lines.tsv --tokenizer wordpiece.json --length 8 --batch 8 "
              "--max-steps 60 --threads 1 --out " +
              model + ".safetensors");
    const Outcome quality = shop.good("eval " + model + ".safetensors --data lines.tsv --json");
    EXPECT_GT(nlohmann::json::parse(quality.out)["accuracy_percent"].get<double>(), 90) << model;
  }
}

TEST(TokenizerTool, RefusesWhatIsNoTokenizer) {
  const Pieces shop;
  EXPECT_EQ(read_file(shop / "bpe.json"), (shop.good("tokenizer book.txt --vocab-size 300 --out again.json"),
                                           read_file(shop / "again.json")))
      << "the same text gives the same tokenizer";
  const std::string train = "train --data book.txt --max-steps 1 --tokenizer ";
  expect_error(shop.ulp(train + "book.txt"), 3, "book.txt");
  expect_error(shop.ulp(train + "none.json"), 3, "none.json");
  expect_error(shop.ulp(train + "bpe.json --init x.safetensors"), 2, "--tokenizer");
  expect_error(shop.ulp("tokenizer none.txt --out x.json"), 3, "none.txt");
  expect_error(shop.ulp("tokenizer book.txt --vocab-size 200 --out x.json"), 2, "256");
  expect_error(shop.ulp("tokenizer book.txt --kind unigram --out x.json"), 2, "--kind");
  for (const char* flag : {"--lowercase", "--no-lowercase", "--alphabet 50"})
    expect_error(shop.ulp(std::string("tokenizer book.txt --kind bpe --out x.json ") + flag), 2,
                 "is for --kind wordpiece, got --kind bpe");
  EXPECT_FALSE(std::filesystem::exists(shop / "x.json"));
}

}  // namespace
