// ulp quantize over networks that read text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tool.h"

namespace {

using ulp::test::expect_error;
using ulp::test::Outcome;
using ulp::test::Workshop;
using ulp::test::write_file;

/// An LSTM that predicts bytes and a BERT that tells two kinds of lines apart, each trained for a moment.
struct Texts : Workshop {
  Texts() {
    std::string book, lines;
    for (int i = 0; i < 300; ++i) {
      const std::string number = std::to_string(i * 7 % 100);
      book += "line " + number + " of the book.\n";
      lines += i % 2 == 0 ? "good\ta fine day " + number + "\n" : "bad\tan awful hour " + number + "\n";
    }
    write_file(*this / "book.txt", book);
    write_file(*this / "lines.tsv", lines);
    train("--model lstm --data book.txt --out lstm.safetensors");
    train("--model gpt2 --data book.txt --out gpt2.safetensors");
    train("--model bert --data lines.tsv --out bert.safetensors");
  }
  void train(const std::string& what) const {
    const Outcome outcome = ulp("train " + what + " --length 24 --batch 8 --max-steps 40 --threads 1");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
};

TEST(QuantizeText, ModesWithoutDataTakeNetworksOverText) {
  const Texts shop;
  for (const char* mode : {"dynamic", "weight-only"}) {
    for (const char* what : {"lstm.safetensors --data book.txt", "bert.safetensors --data lines.tsv",
                             "gpt2.safetensors --data book.txt"}) {
      const Outcome outcome =
          shop.ulp(std::string("quantize ") + what + " --out q.ulp --json --mode " + mode);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const auto json = nlohmann::json::parse(outcome.out);
      EXPECT_NEAR(json["loss"], json["float_loss"], mode[0] == 'd' ? 0.02 : 0.5) << mode << " " << what;
      const std::string data = std::string(what).substr(std::string(what).find("--data"));
      const Outcome eval = shop.ulp("eval q.ulp --json " + data);
      ASSERT_EQ(eval.code, 0) << eval.err;
      EXPECT_NEAR(nlohmann::json::parse(eval.out)["loss"], json["loss"], 1e-5) << "the engine file by itself";
      EXPECT_LT(json["weight_bytes"], json["float_weight_bytes"]) << mode << " " << what;
    }
  }
  const Outcome table = shop.ulp("quantize lstm.safetensors --data book.txt --mode dynamic --out q.ulp -v");
  EXPECT_NE(table.out.find("loss"), std::string::npos) << table.out;
  EXPECT_NE(table.err.find("lstm quantizes its input as it runs"), std::string::npos) << table.err;
}

TEST(QuantizeText, ModesWithDataCalibrateAndTrainOnText) {
  const Texts shop;
  const std::string bert = "bert.safetensors --data lines.tsv", gpt2 = "gpt2.safetensors --data book.txt";
  for (const auto& [mode, networks] :
       {std::pair<std::string, std::vector<std::string>>{"static --compare", {bert, gpt2}},
        {"qat --max-steps 4 --batch 8", {bert}}}) {
    for (const std::string& what : networks) {
      const Outcome outcome =
          shop.ulp("quantize " + what + " --threads 1 --out q.ulp --json -v --mode " + mode);
      ASSERT_EQ(outcome.code, 0) << mode << ' ' << what << ": " << outcome.err;
      EXPECT_NE(outcome.err.find("attention quantized"), std::string::npos)
          << mode << ' ' << what << outcome.err;
      const auto json = nlohmann::json::parse(outcome.out);
      EXPECT_NEAR(json["loss"], json["float_loss"], 0.2) << mode << ' ' << what;
      EXPECT_LT(json["weight_bytes"], json["float_weight_bytes"]) << mode << ' ' << what;
      EXPECT_EQ(shop.ulp("eval q.ulp" + what.substr(what.find(" --data"))).code, 0) << mode << ' ' << what;
    }
  }
}

TEST(Generate, WritesOnFromAPrompt) {
  const Texts shop;
  ASSERT_EQ(shop.ulp("lower gpt2.safetensors --continued time --out gpt2.ulp").code, 0);
  const Outcome greedy = shop.ulp("generate gpt2.ulp --prompt line --count 12 --temperature 0 --json");
  ASSERT_EQ(greedy.code, 0) << greedy.err;
  const auto json = nlohmann::json::parse(greedy.out);
  EXPECT_EQ(json["prompt"], "line");
  EXPECT_FALSE(json["full"].get<bool>());
  EXPECT_GT(json["ms_per_token"], 0);
  const Outcome shown = shop.ulp("generate gpt2.ulp --prompt line --count 12 --temperature 0");
  EXPECT_EQ(shown.out.substr(0, 4), "line");
  const std::string first = json["text"].get<std::string>().substr(0, 1);
  const Outcome none =
      shop.ulp("generate gpt2.ulp --prompt line --count 12 --temperature 0 --stop '" + first + "'");
  EXPECT_EQ(none.out, "line\n") << "the prompt is shown where nothing follows it";
  const std::string seeded = "generate gpt2.ulp --prompt line --count 12 --top-k 5 --json --seed ";
  EXPECT_EQ(nlohmann::json::parse(shop.ulp(seeded + "1").out)["text"],
            nlohmann::json::parse(shop.ulp(seeded + "1").out)["text"]);
  const Outcome full = shop.ulp("generate gpt2.ulp --prompt line --count 100 --json");
  EXPECT_TRUE(nlohmann::json::parse(full.out)["full"].get<bool>()) << "24 bytes are the longest text";
  ASSERT_EQ(
      shop.ulp("quantize gpt2.safetensors --mode weight-only --data book.txt --continued time --out q.ulp")
          .code,
      0);
  EXPECT_EQ(shop.ulp("generate q.ulp --prompt line --count 12").code, 0);
  EXPECT_EQ(shop.ulp("eval q.ulp --data book.txt").code, 0) << "whole texts, one after the other";
}

TEST(Generate, RefusesWhatItCannotGoOnFrom) {
  const Texts shop;
  ASSERT_EQ(shop.ulp("lower gpt2.safetensors --continued time --out gpt2.ulp").code, 0);
  ASSERT_EQ(shop.ulp("lower gpt2.safetensors --out plain.ulp").code, 0);
  expect_error(shop.ulp("generate gpt2.ulp --prompt \"\""), 2, "--prompt");
  expect_error(shop.ulp("generate gpt2.ulp --prompt aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 1,
               "expected a prompt of at most 24 bytes");
  expect_error(shop.ulp("generate plain.ulp --prompt a"), 3, "runs continue each other");
  expect_error(shop.ulp("generate none.ulp --prompt a"), 3, "none.ulp");
  expect_error(shop.ulp("generate gpt2.ulp --prompt a --temperature -1"), 2, "--temperature");
  expect_error(shop.ulp("generate gpt2.ulp --prompt a --top-k -3"), 2, "--top-k");
  expect_error(shop.ulp("lower lstm.safetensors --continued time --out l.ulp"), 1,
               "only looks back along 'time'");
  expect_error(shop.ulp("lower gpt2.safetensors --continued length --out l.ulp"), 1, "got 'length'");
}

TEST(QuantizeText, WhatDoesNotFitIsSaid) {
  const Texts shop;
  expect_error(shop.ulp("quantize bert.safetensors --data book.txt --out q.ulp"), 1, "of kind 'language'");
  EXPECT_EQ(shop.ulp("quantize lstm.safetensors --mode dynamic --test 0 --out q.ulp").code, 0);
}

}  // namespace
