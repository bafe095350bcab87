// ulp formats: the traits of every number format, and what becomes of a number in them.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/formats_page.h"
#include "ulp/formats/format.h"

namespace ulp::cli {

namespace {

struct FormatsFlags : CommonFlags {
  std::vector<std::string> values;
  std::vector<std::string> names;
  std::string rounding = "nearest_even";
  std::string report;
  bool markdown = false;
};

double parse_number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  const bool whole = !text.empty() && !std::isspace(static_cast<unsigned char>(text[0])) && *end == '\0';
  if (!whole) throw CLI::ValidationError("value", "expected a number, got '" + text + "'");
  if (errno == ERANGE && (value == 0 || std::isinf(value))) {
    throw CLI::ValidationError("value", "expected a number that fp64 holds, got '" + text + "'");
  }
  return value;
}

void run(const FormatsFlags& flags) {
  if (flags.markdown) {
    std::cout << formats_markdown();
    return;
  }
  std::vector<double> values;
  for (const std::string& text : flags.values) values.push_back(parse_number(text));
  const auto rounding =
      flags.rounding == "toward_zero" ? formats::Rounding::toward_zero : formats::Rounding::nearest_even;
  const report::Table conversions =
      as_usage([&] { return conversions_table(values, flags.names, rounding); });
  if (!flags.report.empty()) formats_report(conversions).write_html(flags.report);
  if (!values.empty()) return flags.json ? print_json(to_json(conversions)) : print_table(conversions);
  if (flags.json)
    return print_json({{"formats", to_json(traits_table())}, {"blocks", to_json(blocks_table())}});
  print_table(traits_table());
  std::cout << '\n';
  print_table(blocks_table());
}

void add_formats(CLI::App& app) {
  auto flags = std::make_shared<FormatsFlags>();
  CLI::App* command = add_command(
      app, "formats", "Show the number formats, or what a number becomes in them",
      "  ulp formats\n  ulp formats 0.1 --as e4m3,bf16\n  ulp formats 70000 -1e-8 --as fp16 --json\n"
      "  ulp formats --report formats.html\n",
      *flags);
  command->add_option("value", flags->values, "Numbers to convert (decimal, 0x1p-3, inf, nan)");
  command->add_option("--as", flags->names, "Only these formats")->delimiter(',');
  command->add_option("--rounding", flags->rounding, "nearest_even or toward_zero")
      ->check(CLI::IsMember({"nearest_even", "toward_zero"}))
      ->capture_default_str();
  command->add_option("--report", flags->report, "Write an HTML page with the tables and a chart of ranges");
  command->add_flag("--markdown", flags->markdown, "Print the page docs/formats.md");
  command->callback([flags] { run(*flags); });
}

const Command kFormatsCommand("formats", add_formats);

}  // namespace

}  // namespace ulp::cli
