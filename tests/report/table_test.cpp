#include "ulp/report/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/report/sample.h"
#include "ulp/base/error.h"
#include "ulp/report/format.h"

namespace ulp::report {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Table, AlignsNumbersRightTextLeftAndMarksTheBest) {
  Table table{.title = "T",
              .columns = {{"name"}, {"time", "ms", Better::lower, 1}, {"rate", "images/s", Better::higher}}};
  table.add_row({"a", 10.25, 1200.0});
  table.add_row({"long name", 9.0, 99.0});
  EXPECT_EQ(to_text(table, {.unicode = false}),
            "T\n"
            "\n"
            "           time         rate\n"
            "name       (ms)   (images/s)\n"
            "---------  -----  -----------\n"
            "a          10.2        1,200*\n"
            "long name   9.0*          99\n"
            "* best of the column\n");
}

TEST(Table, MarkedCellsSayWhyAndTheirColumnHasNoBest) {
  Table table{.title = "T",
              .columns = {{"name"}, {"time", "ms", Better::lower, 1}, {"rate", "", Better::higher}}};
  table.add_row({"a", 10.2, 1200.0});
  table.add_row({"b", 9.0, 99.0});
  table.mark_last("time", "busy: others took 38 %");
  EXPECT_EQ(to_text(table, {.unicode = false}),
            "T\n"
            "\n"
            "      time\n"
            "name  (ms)    rate\n"
            "----  -----  ------\n"
            "a     10.2   1,200*\n"
            "b      9.0!     99\n"
            "* best of the column\n"
            "! busy: others took 38 %\n");
  EXPECT_NE(to_markdown(table).find("| b | 9.0 (busy: others took 38 %) | 99 |"), std::string::npos)
      << to_markdown(table);
}

TEST(Table, MarksSayWhatTheyHaveInCommonOnce) {
  Table table{.columns = {{"a"}}};
  for (const char* text : {"busy: others took 5 %", "busy: others took 58 %", "busy: others took 5 %"}) {
    table.add_row({1.0});
    table.mark_last("a", text);
  }
  EXPECT_EQ(lines_of(to_text(table)).back(), "! busy: others took 5 %, 58 %");
  table.add_row({1.0});
  table.mark_last("a", "guessed");
  EXPECT_EQ(lines_of(to_text(table)).back(), "! busy: others took 5 %, busy: others took 58 %, guessed");
}

TEST(Table, MarksOutsideOfTheTableAreErrors) {
  Table table{.columns = {{"name"}}};
  EXPECT_THROW(table.mark_last("name", "no row yet"), Error);
  table.add_row({"a"});
  EXPECT_THROW(table.mark_last("time", "no such column"), Error);
  table.marks = {{.row = 1, .column = 0, .text = "no such row"}};
  EXPECT_THROW(to_text(table), Error);
}

TEST(Table, AlignsByWhatIsSeenNotByBytes) {
  Table table{.columns = {{"name"}, {"value"}}};
  for (const char* name : {"é", "漢字", "e\xCC\x81", "plain"}) table.add_row({name, 1.0});
  const auto lines = lines_of(to_text(table));
  ASSERT_EQ(lines.size(), 6u);
  for (const auto& line : lines) EXPECT_EQ(display_width(line), 12) << line;
}

TEST(Table, ShowsAMissingValueAsADashAndNeverAsTheBest) {
  const ShownTable shown = show(sample_table());
  EXPECT_EQ(shown.cells[2][2], "");
  EXPECT_TRUE(shown.best[1][2]);
  EXPECT_TRUE(shown.best[2][4]);
  EXPECT_NE(to_text(sample_table()).find("–"), std::string::npos);
}

TEST(Table, MarksAllThatReadTheSameAndNothingWhenThereIsOne) {
  Table table{.columns = {{"v", "", Better::higher, 1}}};
  table.add_row({1.0});
  EXPECT_FALSE(show(table).best[0][0]);
  table.add_row({1.01});
  EXPECT_TRUE(show(table).best[0][0]);
  EXPECT_TRUE(show(table).best[1][0]);
}

TEST(Table, KeepsThreeDigitsOfTheSmallestValue) {
  Table table{.columns = {{"v"}}};
  table.add_row({0.1234});
  table.add_row({12.5});
  EXPECT_EQ(show(table).cells[0][0], "0.123");
  EXPECT_EQ(show(table).cells[1][0], "12.500");
}

TEST(Table, RefusesARowOfAnotherLength) {
  Table table{.title = "T", .columns = {{"a"}, {"b"}}};
  EXPECT_THROW(table.add_row({1.0}), Error);
  table.rows.push_back({1.0});
  EXPECT_THROW(to_text(table), Error);
}

TEST(Table, MarkdownEscapesAndMarks) {
  Table table{.columns = {{"na|me"}, {"v", "s", Better::lower, 0}}};
  table.add_row({"a*b\nc", 2.0});
  table.add_row({"<b>", 1.0});
  EXPECT_EQ(to_markdown(table),
            "| na\\|me | v (s) |\n"
            "| --- | ---: |\n"
            "| a\\*b\\\\nc | 2 |\n"
            "| \\<b\\> | **1** |\n");
}

TEST(Format, WritesNumbersAsPeopleReadThem) {
  EXPECT_EQ(format_number(1234567, 0), "1,234,567");
  EXPECT_EQ(format_number(-1234.5, 1), "-1,234.5");
  EXPECT_EQ(format_number(-999, 0), "-999");
  EXPECT_EQ(format_number(0.41234), "0.4123");
  EXPECT_EQ(format_number(12.5), "12.5");
  EXPECT_EQ(format_number(100), "100");
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(-0.0001, 2), "0.00");
  EXPECT_EQ(format_number(3e-7), "3e-07");
  EXPECT_EQ(format_number(NAN), "nan");
  EXPECT_EQ(format_number(-INFINITY), "-inf");
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(723), "12:03");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(NAN), "-:--");
  EXPECT_EQ(format_bytes(812), "812 B");
  EXPECT_EQ(format_bytes(1.19 * 1024 * 1024), "1.19 MiB");
  EXPECT_EQ(format_bytes(1023 * 1024), "1.00 MiB");
}

TEST(Format, CleansWhatWouldDisturbATerminal) {
  EXPECT_EQ(clean_line("a\nb\x1b[31mc"), "a b [31mc");
  EXPECT_EQ(ulp::report::escape_controls("a\n\tb\x1b[31mc\x7f"), "a\\n\\tb\\x1b[31mc\\x7f");
  EXPECT_EQ(ulp::report::escape_controls("a\xE2\x80\xAE\xff é"), "a\\u202e\xEF\xBF\xBD é");
  EXPECT_EQ(ulp::report::first_line("one\ntwo\n"), "one");
  EXPECT_EQ(ulp::report::first_line("one"), "one");
  EXPECT_EQ(clean_line("ok\xff\xc3"), "ok\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(clean_line("\xc0\xaf"), "\xEF\xBF\xBD\xEF\xBF\xBD");          // overlong '/'
  EXPECT_EQ(clean_line("\xed\xa0\x80").find("\xed"), std::string::npos);  // surrogate
  EXPECT_EQ(clean_line("a\xE2\x80\xAE"
                       "b"),
            "a b");  // right-to-left override
  EXPECT_EQ(clean_line("漢字 é 😀"), "漢字 é 😀");
}

TEST(Format, TruncatesBetweenCharacters) {
  EXPECT_EQ(truncate_to_width("漢字漢字", 5), "漢字…");
  EXPECT_EQ(truncate_to_width("漢字", 4), "漢字");
  EXPECT_EQ(truncate_to_width("abcdef", 3, false), "ab.");
  EXPECT_EQ(truncate_to_width("abc", 0), "");
}

}  // namespace
}  // namespace ulp::report
