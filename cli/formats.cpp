// ulp formats: the traits of every number format, and what becomes of a number in them.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "ulp/formats/convert.h"
#include "ulp/formats/format.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::vector<double> values;
  std::vector<std::string> names;
};

report::Table traits() {
  const formats::Table source = formats::formats_table();
  report::Table table{.title = "Number formats"};
  for (const std::string& name : source.header) table.columns.push_back({name});
  for (const auto& row : source.rows) table.add_row({row.begin(), row.end()});
  return table;
}

std::string hexadecimal(uint64_t code, int bits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%0*llx", (bits + 3) / 4, static_cast<unsigned long long>(code));
  return text;
}

report::Table conversions(const Flags& flags) {
  report::Table table{
      .title = "Nearest values",
      .columns = {{"number"}, {"format"}, {"code"}, {"value"}, {"error"}, {"relative error"}}};
  const auto number = [](double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.10g", value);
    return std::string(text);
  };
  for (double value : flags.values) {
    for (const formats::Format& format : formats::all()) {
      const auto is_this = [&](const std::string& name) { return &formats::find(name) == &format; };
      if (!flags.names.empty() && std::none_of(flags.names.begin(), flags.names.end(), is_this)) continue;
      const uint64_t code = formats::encode(format, value);
      const double back = formats::decode(format, code);
      table.add_row({number(value), std::string(format.name), hexadecimal(code, format.bits()), number(back),
                     number(back - value), value != 0 ? number((back - value) / value) : std::string("-")});
    }
  }
  return table;
}

void run(const Flags& flags) {
  for (const std::string& name : flags.names)
    formats::find(name);  // an unknown name is an error that lists all
  const report::Table table = flags.values.empty() ? traits() : conversions(flags);
  if (flags.json) return print_json(to_json(table));
  print_table(table);
}

}  // namespace

void add_formats(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = add_command(
      app, "formats", "Show the number formats, or what a number becomes in them",
      "  ulp formats\n  ulp formats 0.1 --as bf16,fp8_e4m3fn\n  ulp formats 70000 --as fp16 --json\n",
      *flags);
  command->add_option("value", flags->values, "Numbers to convert");
  command->add_option("--as", flags->names, "Only these formats")->delimiter(',');
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
