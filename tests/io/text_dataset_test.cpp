// Text as bytes: windows for language modelling, labelled lines for classification.
#include "ulp/io/text_dataset.h"

#include <torch/torch.h>

#include "temp_folder.h"
#include "ulp/io/tokenizer/train_tokenizer.h"

namespace {

using namespace ulp::io;

std::string text_of(const at::Tensor& row) {
  std::string text;
  for (int64_t i = 0; i < row.numel(); ++i) text += static_cast<char>(row[i].item<int64_t>());
  return text;
}

class Text : public TempFolder {};

TEST_F(Text, WindowsPredictEveryByteOnce) {
  write("text", "abcdefghijk");
  const auto data = load_text(at("text"), 4);
  EXPECT_FALSE(data.labelled());
  EXPECT_EQ(data.length(), 4);
  ASSERT_EQ(data.size(), 2);
  const int64_t samples[] = {1, 0};
  const auto batch = data.gather(samples);
  EXPECT_EQ(batch.tokens.scalar_type(), at::kLong);
  EXPECT_EQ(text_of(batch.tokens[0]), "efgh");
  EXPECT_EQ(text_of(batch.targets[0]), "fghi");
  EXPECT_EQ(text_of(batch.tokens[1]), "abcd");
  EXPECT_EQ(text_of(batch.targets[1]), "bcde");
  EXPECT_TRUE(batch.tokens.is_contiguous() && batch.targets.is_contiguous());
}

TEST_F(Text, WindowsMayOverlapAndHoldAnyByte) {
  write("text", std::string("\0\xff\x80z!", 5));
  const auto data = load_text(at("text"), 2, /*stride=*/1);
  ASSERT_EQ(data.size(), 3);
  const int64_t samples[] = {0};
  EXPECT_TRUE(torch::equal(data.gather(samples).tokens, torch::tensor({{0, 255}})));
  EXPECT_TRUE(torch::equal(data.gather(samples).targets, torch::tensor({{255, 128}})));
}

TEST_F(Text, FilesShorterThanAWindowAreRefused) {
  write("text", "abc");
  EXPECT_EQ(load_text(at("text"), 2).size(), 1);
  expect_file_error("at least 4 bytes", [&] { load_text(at("text"), 3); });
  write("empty", "");
  expect_file_error("empty", [&] { load_text(at("empty"), 1); });
  expect_file_error("nowhere", [&] { load_text(at("nowhere"), 1); });
  expect_file_error("expected a file", [&] { load_text(folder_, 1); });
  EXPECT_THROW(load_text(at("text"), 0), ulp::Error);
  EXPECT_THROW(load_text(at("text"), 1, -1), ulp::Error);
}

TEST_F(Text, LabelledLinesArePaddedAndCut) {
  write("train.tsv", "spam\tbuy now\r\nham\thi\nspam\ta\tb");
  const auto data = load_labelled_text(at("train.tsv"), 5);
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"ham", "spam"}));
  EXPECT_EQ(data.length(), 5);
  const int64_t samples[] = {0, 1, 2};
  const auto batch = data.gather(samples);
  EXPECT_TRUE(torch::equal(batch.targets, torch::tensor({1, 0, 1})));
  EXPECT_EQ(text_of(batch.tokens[0]), "buy n");
  EXPECT_EQ(text_of(batch.tokens[1]), std::string("hi\0\0\0", 5));
  EXPECT_EQ(text_of(batch.tokens[2]), std::string("a\tb\0\0", 5));
}

TEST_F(Text, TheTestFileTakesTheClassesOfTheTrainingFile) {
  write("test.tsv", "b\ttext\n");
  EXPECT_EQ(load_labelled_text(at("test.tsv"), 4, {"a", "b"}).labels[0].item<int64_t>(), 1);
  expect_file_error("unknown label 'b' in line 1", [&] { load_labelled_text(at("test.tsv"), 4, {"a"}); });
}

TEST_F(Text, LinesThatAreNoneAreRefusedByNumber) {
  const auto refuse = [&](const std::string& file, const std::string& what) {
    write("bad.tsv", file);
    expect_file_error(what, [&] { load_labelled_text(at("bad.tsv"), 4); });
    expect_file_error("bad.tsv", [&] { load_labelled_text(at("bad.tsv"), 4); });
  };
  refuse("", "got none");
  refuse("a\tx\nno tab\n", "line 2");
  refuse("a\tx\n\nb\ty\n", "line 2");
  refuse("\ttext\n", "line 1");
  refuse("label\t\n", "line 1");
  refuse("label\t\r\n", "line 1");
  refuse(std::string("a\tx\na\t\0y\n", 9), "zero byte in line 2");
  expect_file_error("nowhere", [&] { load_labelled_text(at("nowhere"), 4); });
  write("ok.tsv", "a\tx\n");
  EXPECT_THROW(load_labelled_text(at("ok.tsv"), 0), ulp::Error);
}

TEST_F(Text, SlicesShareTheSamples) {
  write("text", "abcdefghi");
  const auto data = load_text(at("text"), 2);
  const auto part = slice(data, 1, 3);
  ASSERT_EQ(part.size(), 2);
  const int64_t first[] = {0};
  EXPECT_EQ(text_of(part.gather(first).tokens[0]), "cd");
  write("lines", "a\tx\nb\ty\n");
  EXPECT_EQ(slice(load_labelled_text(at("lines"), 2), 1, 2).labels[0].item<int64_t>(), 1);
  EXPECT_THROW(slice(data, 2, 2), ulp::Error);
  EXPECT_THROW(slice(data, 0, 5), ulp::Error);
  const int64_t outside[] = {4}, negative[] = {-1};
  EXPECT_THROW(data.gather(outside), ulp::Error);
  EXPECT_THROW(data.gather(negative), ulp::Error);
}

TEST_F(Text, TokensOfATokenizerStandInWindows) {
  const auto tokenizer =
      train_tokenizer("low low lower\nlow lower\n", {.vocab_size = 262, .min_frequency = 1});
  write("text", "low lower\nlow\n low");
  const auto data = load_text(at("text"), 2, /*stride=*/0, &tokenizer);
  const std::vector<int64_t> ids = encode_lines(tokenizer, read("text"));
  ASSERT_EQ(data.size(), (static_cast<int64_t>(ids.size()) - 1) / 2);
  const int64_t samples[] = {0};
  EXPECT_TRUE(torch::equal(data.gather(samples).tokens, torch::tensor({{ids[0], ids[1]}})));
  EXPECT_TRUE(torch::equal(data.gather(samples).targets, torch::tensor({{ids[1], ids[2]}})));
  expect_file_error("at least 51 tokens", [&] { load_text(at("text"), 50, 0, &tokenizer); });
  write("text", "fine\n\xff\n");
  expect_file_error(
      "[io.Tokenizer.encode] expected a text in UTF-8, got another one at byte 0 of line 2 in '",
      [&] { load_text(at("text"), 1, 0, &tokenizer); });
}

TEST_F(Text, LabelledTokensHaveATemplateAndPadding) {
  const auto tokenizer =
      train_tokenizer("spam ham spam ham\n", {.kind = TokenizerKind::wordpiece, .min_frequency = 1});
  write("lines.tsv", "a\tspam ham spam\nb\tham\n");
  const auto data = load_labelled_text(at("lines.tsv"), 4, {}, &tokenizer);
  const int64_t spam = *tokenizer.id_of("spam"), ham = *tokenizer.id_of("ham");
  const int64_t samples[] = {0, 1};
  EXPECT_TRUE(
      torch::equal(data.gather(samples).tokens, torch::tensor({{2L, spam, ham, 3L}, {2L, ham, 3L, 0L}})));
  expect_file_error("template", [&] { load_labelled_text(at("lines.tsv"), 1, {}, &tokenizer); });
}

TEST_F(Text, LinesOfPaddingOnlyAreRefused) {
  const auto tokenizer = train_tokenizer("spam ham\n", {.vocab_size = 258, .min_frequency = 1});
  write("lines.tsv", "a\tspam\nb\t<|endoftext|>\n");  // which is the padding, too
  expect_file_error("a token that is no padding, got none in line 2 of '",
                    [&] { load_labelled_text(at("lines.tsv"), 4, {}, &tokenizer); });
}

}  // namespace
