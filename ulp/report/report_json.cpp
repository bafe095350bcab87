#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/base/fields_json.h"
#include "ulp/base/parse_json.h"
#include "ulp/report/report.h"

namespace ulp::report {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;
constexpr const char* kFormat = "ulp.report";

// One description of each struct's fields, read by the writer and the reader below.
template <typename A>
void fields(A& a, Column& v) {
  a("name", v.name), a("unit", v.unit), a("better", v.better), a("decimals", v.decimals);
}
template <typename A>
void fields(A& a, Mark& v) {
  a("row", v.row), a("column", v.column), a("text", v.text);
}
template <typename A>
void fields(A& a, Table& v) {
  a("title", v.title), a("caption", v.caption), a("columns", v.columns), a("rows", v.rows);
  a("marks", v.marks);
}
template <typename A>
void fields(A& a, Axis& v) {
  a("title", v.title), a("unit", v.unit), a("scale", v.scale), a("better", v.better);
  a("minimum", v.minimum), a("maximum", v.maximum);
}
template <typename A>
void fields(A& a, Series& v) {
  a("name", v.name), a("x", v.x), a("y", v.y), a("labels", v.labels);
  a("joined", v.joined);
}
template <typename A>
void fields(A& a, Band& v) {
  a("from", v.from), a("to", v.to), a("label", v.label), a("detail", v.detail), a("warn", v.warn);
}
template <typename A>
void fields(A& a, Chart& v) {
  a("kind", v.kind), a("title", v.title), a("caption", v.caption), a("x", v.x), a("y", v.y);
  a("series", v.series), a("bands", v.bands), a("smoothing", v.smoothing);
}
template <typename A>
void fields(A& a, Headline& v) {
  a("value", v.value), a("label", v.label);
}
template <typename A>
void fields(A& a, Fact& v) {
  a("name", v.name), a("value", v.value);
}
template <typename A>
void fields(A& a, Report& v) {
  a("title", v.title), a("subtitle", v.subtitle), a("created", v.created), a("headlines", v.headlines);
  a("tables", v.tables), a("charts", v.charts), a("notes", v.notes);
  a("settings", v.settings), a("machine", v.machine);
}

constexpr const char* kBetter[] = {"none", "higher", "lower"};
constexpr const char* kScale[] = {"linear", "log10", "log2"};
constexpr const char* kKind[] = {"line", "step", "histogram", "scatter", "bars", "ranges"};
auto& names(Better) {
  return kBetter;
}
auto& names(Scale) {
  return kScale;
}
auto& names(ChartKind) {
  return kKind;
}

struct ReportWriter {
  Json& out;

  template <typename T>
  void operator()(const char* name, const T& value) {
    out[name] = json(value);
  }
  template <typename T>
  static Json json(const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      if (std::isfinite(value)) return value;
      return {{"number", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
    } else if constexpr (std::is_same_v<T, Cell>) {
      if (const auto* number = std::get_if<double>(&value)) return json(*number);
      if (const auto* text = std::get_if<std::string>(&value)) return *text;
      return nullptr;
    } else if constexpr (std::is_same_v<T, std::optional<double>>) {
      return value ? json(*value) : Json(nullptr);
    } else if constexpr (std::is_enum_v<T>) {
      return names(value)[static_cast<int>(value)];
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else {
      return compound(value);
    }
  }
  template <typename T>
  static Json compound(const std::vector<T>& values) {
    Json array = Json::array();
    for (const T& value : values) array.push_back(json(value));
    return array;
  }
  template <typename T>
  static Json compound(const T& value) {
    Json object = Json::object();
    ReportWriter writer{object};
    fields(writer, const_cast<T&>(value));  // the writer only reads
    return object;
  }
};

struct ReportReader {
  const Json& in;
  std::string at;

  template <typename T>
  void operator()(const char* name, T& value) {
    const auto found = in.find(name);
    if (found == in.end()) return;  // a field added later keeps its default in an older file
    read(*found, at.empty() ? name : at + "." + name, value);
  }
  [[noreturn]] static void expected(const char* what, const std::string& at, const Json& got) {
    fail_file("report.from_json", "expected ", what, " at '", at, "', got ", got.type_name());
  }
  static void read(const Json& in, const std::string& at, std::string& value) {
    if (!in.is_string()) expected("text", at, in);
    value = in.get<std::string>();
  }
  static void read(const Json& in, const std::string& at, double& value) {
    if (in.is_number()) {
      value = in.get<double>();
      return;
    }
    const std::string word =
        in.is_object() && in.contains("number") && in["number"].is_string() ? in["number"] : "";
    if (word != "nan" && word != "inf" && word != "-inf") expected("a number", at, in);
    value = word == "nan" ? NAN : word == "inf" ? INFINITY : -INFINITY;
  }
  static void read(const Json& in, const std::string& at, bool& value) {
    if (!in.is_boolean()) expected("true or false", at, in);
    value = in.get<bool>();
  }
  static void read(const Json& in, const std::string& at, int& value) {
    if (!in.is_number_integer()) expected("an integer", at, in);
    value = in.get<int>();
  }
  static void read(const Json& in, const std::string& at, Cell& value) {
    if (in.is_null()) {
      value = std::monostate();
    } else if (in.is_string()) {
      value = in.get<std::string>();
    } else {
      double number = 0;
      read(in, at, number);
      value = number;
    }
  }
  static void read(const Json& in, const std::string& at, std::optional<double>& value) {
    value.reset();
    if (!in.is_null()) read(in, at, value.emplace());
  }
  template <typename T>
  static void read(const Json& in, const std::string& at, std::vector<T>& values) {
    if (!in.is_array()) expected("an array", at, in);
    values.clear();
    values.reserve(in.size());
    for (const Json& element : in) {
      const std::string place = at + "[" + std::to_string(values.size()) + "]";
      read(element, place, values.emplace_back());
    }
  }
  template <typename T>
  static void read(const Json& in, const std::string& at, T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::string word;
      read(in, at, word);
      const auto& all = names(value);
      const auto* found = std::find(std::begin(all), std::end(all), word);
      if (found == std::end(all)) fail_file("report.from_json", "unknown word '", word, "' at '", at, "'");
      value = static_cast<T>(found - std::begin(all));
    } else {
      if (!in.is_object()) expected("an object", at, in);
      ReportReader reader{in, at};
      fields(reader, value);
    }
  }
};

}  // namespace

std::string Report::to_json(int indent) const {
  Json out = {{"format", kFormat}, {"version", kVersion}};
  ReportWriter writer{out};
  fields(writer, const_cast<Report&>(*this));  // the writer only reads
  return out.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Report Report::from_json(std::string_view text) {
  const Json in = parse_json_or_discarded(text);
  if (in.is_discarded())
    fail_file("report.from_json", "expected a JSON report, got text that does not parse");
  if (!in.is_object() || in.value("format", Json()) != kFormat) {
    fail_file("report.from_json", "expected an object with \"format\": \"", kFormat, "\"");
  }
  const Json version = in.value("version", Json());
  if (!version.is_number_integer()) fail_file("report.from_json", "expected an integer 'version'");
  if (version != kVersion) {
    fail_file("report.from_json", "expected a report of version ", kVersion, ", got version ",
              shown(version));
  }
  Report report;
  ReportReader reader{in, ""};
  fields(reader, report);
  return report;
}

}  // namespace ulp::report
