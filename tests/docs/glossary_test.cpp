// The glossary has the terms of the field, the pages use them, and names of files, types and functions do not go back to
// words that were given up for them (retired_words.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "page.h"

namespace {

namespace fs = std::filesystem;
using NameSet = std::set<std::string>;

const fs::path kGlossaryRoot = ULP_SOURCE_DIR;

/// The terms that the documentation has to have, as a search for them would be typed.
const std::vector<std::string> kFieldTerms = {"activation checkpointing",
                                              "autocast",
                                              "autoregressive",
                                              "autotun",
                                              "calibration",
                                              "channel pruning",
                                              "collective",
                                              "decompos",
                                              "delegate",
                                              "depth-first",
                                              "dynamic shape",
                                              "early exit",
                                              "epilogue",
                                              "fake quantization",
                                              "fallback",
                                              "functionalization",
                                              "gradient accumulation",
                                              "gradient checkpointing",
                                              "hyperparameter",
                                              "im2col",
                                              "incremental",
                                              "knowledge distillation",
                                              "KV cache",
                                              "loss scaling",
                                              "lottery ticket",
                                              "master weights",
                                              "microkernel",
                                              "observer",
                                              "optimizer state",
                                              "P2P",
                                              "partitioner",
                                              "pipeline",
                                              "post-training quantization",
                                              "prepack",
                                              "pretrained",
                                              "QDQ",
                                              "QOperator",
                                              "qparams",
                                              "quantization-aware training",
                                              "recomput",
                                              "rematerialization",
                                              "shard",
                                              "sparsity",
                                              "straight-through",
                                              "structured pruning",
                                              "symbolic",
                                              "tensor parallel",
                                              "timing cache",
                                              "unstructured pruning",
                                              "ZeRO"};

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string file_text(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Glossary, ItHasEveryTermAndSoHasThePageOfTheSubject) {
  const std::string glossary = in_lower_case(file_text(kGlossaryRoot / "docs/glossary.md"));
  std::string pages = in_lower_case(file_text(kGlossaryRoot / "README.md"));
  for (const auto& entry : fs::directory_iterator(kGlossaryRoot / "docs"))
    if (entry.path().filename() != "glossary.md") pages += in_lower_case(file_text(entry.path()));
  for (const std::string& term : kFieldTerms) {
    EXPECT_NE(glossary.find(in_lower_case(term)), std::string::npos) << "docs/glossary.md lacks " << term;
    EXPECT_NE(pages.find(in_lower_case(term)), std::string::npos) << "no other page of docs/ has " << term;
  }
}

TEST(Glossary, EachRowOfItHasATermItsMeaningAndWhereItIs) {
  int rows = 0;
  for (const std::string& line : ulp::docs::read_page(kGlossaryRoot, "docs/glossary.md").lines) {
    if (!line.starts_with("| ") || line.starts_with("| term ")) continue;
    ++rows;
    std::vector<std::string> cells;
    std::istringstream in(line.substr(2));
    for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 3u) << line;
    for (const std::string& cell : cells) EXPECT_GT(cell.size(), 3u) << line;
  }
  EXPECT_GT(rows, 50);
}

/// A word that names no longer have.
struct RetiredWord {
  std::string word, term;
  NameSet files, names, fine;  ///< still to be renamed; `fine`: the word means something else there
};

using NameList = NameSet RetiredWord::*;

/// The list that "files:", "names:" or "fine:" begins; null for all else.
NameList list_called(const std::string& item) {
  if (item == "files:") return &RetiredWord::files;
  if (item == "names:") return &RetiredWord::names;
  if (item == "fine:") return &RetiredWord::fine;
  return nullptr;
}

/// Reads "word: term" and below it, indented, the lists. Says what is wrong by `refuse(line, why)`.
template <typename Refuse>
std::vector<RetiredWord> read_retired_words(std::istream& in, const Refuse& refuse) {
  std::vector<RetiredWord> words;
  NameList list = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    if (!line.starts_with(" ")) {
      const size_t colon = line.find(": ");
      if (colon == 0 || colon == std::string::npos || colon + 2 == line.size())
        refuse(line, "expected 'word: term'");
      else
        words.push_back({.word = line.substr(0, colon), .term = line.substr(colon + 2)});
      list = nullptr;
      continue;
    }
    std::istringstream items(line);
    for (std::string item; items >> item;) {
      if (const NameList begun = list_called(item))
        list = begun;
      else if (item.ends_with(":"))
        refuse(line, "expected files:, names: or fine:");
      else if (list == nullptr || words.empty())
        refuse(line, "expected a list's name before its items");
      else if (!(words.back().*list).insert(item).second)
        refuse(line, "expected each name once");
    }
  }
  return words;
}

std::vector<RetiredWord> read_retired_words() {
  std::ifstream in(kGlossaryRoot / "tests/docs/retired_words.txt");
  return read_retired_words(in, [](const std::string& line, const char* why) {
    ADD_FAILURE() << "tests/docs/retired_words.txt: " << why << ", got '" << line << "'";
  });
}

TEST(Glossary, ListsOfRetiredWordsAreRefusedWhereTheyAreMalformed) {
  const auto faults = [](const std::string& text) {
    std::istringstream in(text);
    int count = 0;
    read_retired_words(in, [&](const std::string&, const char*) { ++count; });
    return count;
  };
  EXPECT_EQ(faults("# a remark\ncrew: barrier\n  files: crew\n    more\n  fine: a_crew\nmail: p2p\n"), 0);
  EXPECT_EQ(faults("  files: crew\n"), 1);                                    // of no word
  EXPECT_EQ(faults("crew: barrier\n  crew\n"), 1);                            // in no list
  EXPECT_EQ(faults("crew: barrier\n  files: crew\nmail: p2p\n  mail\n"), 1);  // in the list of another word
  EXPECT_EQ(faults("crew: barrier\n  file: crew\n"), 2);
  EXPECT_EQ(faults("crew\n"), 1);
  EXPECT_EQ(faults("crew: \n"), 1);
  EXPECT_EQ(faults("\n"), 1);
  EXPECT_EQ(faults("crew: barrier\n  files: crew crew\n"), 1);
}

/// "PartitionedModel" as "_partitioned_model_".
std::string as_words(const std::string& name) {
  std::string words = "_";
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (i > 0 && std::isupper(c) && (std::islower(name[i - 1]) || std::isdigit(name[i - 1]))) words += '_';
    words += static_cast<char>(std::tolower(c));
  }
  return words + '_';
}

bool has_word(const std::string& name, const RetiredWord& retired) {
  return as_words(name).find('_' + retired.word + '_') != std::string::npos;
}

/// Those of `names` that have a word: all are listed, and all that are listed are there.
void expect_listed(const RetiredWord& retired, const NameSet& names, const NameSet& listed,
                   const std::string& kind) {
  NameSet found;
  for (const std::string& name : names) {
    if (has_word(name, retired) && !retired.fine.contains(name)) found.insert(name);
  }
  for (const std::string& name : found)
    EXPECT_TRUE(listed.contains(name)) << kind << " '" << name << "' has the word '" << retired.word
                                       << "'; the field says: " << retired.term;
  for (const std::string& name : listed)
    EXPECT_TRUE(found.contains(name)) << "no " << kind << " is called '" << name
                                      << "' any more: take it out of tests/docs/retired_words.txt";
}

/// Names of the files of ulp/ and cli/, without their endings.
NameSet file_names() {
  NameSet stems;
  for (const char* folder : {"ulp", "cli"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kGlossaryRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp") stems.insert(entry.path().stem());
    }
  }
  return stems;
}

TEST(Glossary, NoFileIsNamedByARetiredWord) {
  const NameSet stems = file_names();
  ASSERT_GT(stems.size(), 500u);
  const auto words = read_retired_words();
  ASSERT_GT(words.size(), 50u);
  for (const RetiredWord& retired : words) expect_listed(retired, stems, retired.files, "file");
}

/// The headers that the rooms install, and those above the rooms.
std::vector<fs::path> public_headers() {
  static const std::regex call(R"(ulp_room\(([^)]*)\))"), comment("#[^\n]*");
  std::vector<fs::path> headers;
  for (const auto& entry : fs::recursive_directory_iterator(kGlossaryRoot / "ulp")) {
    const fs::path folder = entry.path().parent_path();
    if (entry.path().extension() == ".h" && folder == kGlossaryRoot / "ulp") headers.push_back(entry.path());
    if (entry.path().filename() != "CMakeLists.txt") continue;
    const std::string text = std::regex_replace(file_text(entry.path()), comment, "");
    std::smatch match;
    if (!std::regex_search(text, match, call)) continue;
    std::istringstream words(match[1].str());
    bool is_public = false;
    for (std::string word; words >> word;) {
      if (std::ranges::all_of(word, [](char c) { return c == '_' || (c >= 'A' && c <= 'Z'); }))
        is_public = word == "PUBLIC";
      else if (is_public && word.find('*') == std::string::npos)
        headers.push_back(folder / word);
    }
  }
  return headers;
}

/// The types that a header names, and what stands before a parenthesis.
void add_declared_names(const fs::path& header, NameSet& names) {
  static const std::regex silent(R"(//[^\n]*|/\*[^]*?\*/|"(?:\\.|[^"\\\n])*")"),
      type(R"(\b(?:enum\s+class|struct|class|enum|using)\s+(?:ULP_API\s+)?([A-Za-z_]\w*))"),
      function(R"(\b([A-Za-z_]\w*)\s*\()");
  const std::string text = std::regex_replace(file_text(header), silent, "");
  for (const std::regex* pattern : {&type, &function})
    for (auto at = std::sregex_iterator(text.begin(), text.end(), *pattern); at != std::sregex_iterator();
         ++at)
      names.insert((*at)[1]);
}

NameSet public_names() {
  NameSet names;
  for (const fs::path& header : public_headers()) add_declared_names(header, names);
  return names;
}

TEST(Glossary, NoPublicNameHasARetiredWord) {
  ASSERT_GT(public_headers().size(), 100u);
  const NameSet names = public_names();
  ASSERT_GT(names.size(), 1000u);
  for (const RetiredWord& retired : read_retired_words())
    expect_listed(retired, names, retired.names, "public name");
}

TEST(Glossary, EachFineNameIsThereAndHasTheWord) {
  NameSet all = file_names();
  all.merge(public_names());
  for (const RetiredWord& retired : read_retired_words())
    for (const std::string& name : retired.fine)
      EXPECT_TRUE(all.contains(name) && has_word(name, retired))
          << "no file and no public name '" << name << "' has the word '" << retired.word
          << "' any more: take it out of tests/docs/retired_words.txt";
}

/// A comment whose first words are "What", "The same" or "Of" leaves its subject to the reader. The number that are left only
/// gets smaller.
TEST(Glossary, CommentsOfPublicHeadersBeginWithASubject) {
  static const std::regex comment(R"(^\s*///? )"), riddle(R"(^\s*///? (?:What|The same|Of)\b)");
  int riddles = 0;
  for (const fs::path& header : public_headers()) {
    std::ifstream in(header);
    bool before = false;
    for (std::string line; std::getline(in, line);) {
      const bool is_comment = std::regex_search(line, comment);
      if (is_comment && !before && std::regex_search(line, riddle)) ++riddles;
      before = is_comment;
    }
  }
  EXPECT_LE(riddles, 78);
}

/// The list of what is still to be renamed only gets shorter: these are its lengths at the moment.
TEST(Glossary, WhatIsToBeRenamedOnlyShrinks) {
  size_t files = 0, names = 0;
  for (const RetiredWord& retired : read_retired_words()) {
    files += retired.files.size();
    names += retired.names.size();
  }
  EXPECT_LE(files, 75u);
  EXPECT_LE(names, 82u);
}

}  // namespace
