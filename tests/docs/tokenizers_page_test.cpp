// The sample of docs/tokenizers.md: a tokenizer learned from a few lines.
#include <gtest/gtest.h>

#include <fstream>

#include "in_temporary_folder.h"
#include "tokenizers/train.includes.h"

namespace {

TEST(TokenizersPage, ATokenizerIsLearnedWrittenAndRead) {
  const ulp::docs::InTemporaryFolder here;
  std::ofstream("book.txt") << "It was a dark night.\nIt was a dark night, it was.\n";
#include "tokenizers/train.inc"
  EXPECT_EQ(encoded.ids.size(), 8U) << "six of the text, [CLS] and [SEP]";
  EXPECT_EQ(text, "it was a dark night.");
}

}  // namespace
