#include "cli/quantize_explain.h"

#include <iostream>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/quant/analysis/explain.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

using quant::Explanation;

constexpr const char* kGroup = "Explain";

quant::Target target_of(const ExplainFlags& flags) {
  const quant::Granularity granularity = quant::parse_granularity(flags.granularity);
  if (!flags.format.empty()) return quant::FloatScheme{flags.format, granularity};
  return quant::Scheme{.bits = flags.bits,
                       .is_signed = flags.is_signed,
                       .mapping = flags.symmetric ? quant::Mapping::symmetric : quant::Mapping::affine,
                       .range = flags.restricted ? quant::Range::restricted : quant::Range::full,
                       .granularity = granularity};
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape(-1).to(at::kDouble);
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

std::vector<std::vector<double>> matrix(const at::Tensor& tensor) {
  std::vector<std::vector<double>> rows;
  for (const at::Tensor& row : tensor.unbind(0)) rows.push_back(numbers(row));
  return rows;
}

std::string shown(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

report::Table parameters_table(const Explanation& e) {
  report::Table table{.title = e.target + ": " + (e.zero_point.defined() ? "codes " : "numbers ") +
                               shown(e.lowest) + " to " + shown(e.highest),
                      .columns = {{"part"}, {"min"}, {"max"}, {"scale"}, {"zero point"}}};
  const auto min = numbers(e.min), max = numbers(e.max), scale = numbers(e.scale);
  for (size_t i = 0; i < e.parts.size(); ++i) {
    const report::Cell zero =
        e.zero_point.defined() ? report::Cell(shown(numbers(e.zero_point)[i])) : report::Cell();
    table.add_row({e.parts[i], shown(min[i]), shown(max[i]), shown(scale[i]), zero});
  }
  return table;
}

/// The matrix, its codes, what they stand for and the difference, one row of the matrix after the other.
report::Table values_table(const Explanation& e) {
  report::Table table{.title = "Values", .columns = {{"row"}, {"what"}}};
  for (int64_t column = 0; column < e.input.size(1); ++column) {
    table.columns.push_back({"column " + std::to_string(column)});
  }
  const struct {
    const char* name;
    at::Tensor values;
  } kinds[] = {
      {"value", e.input}, {"code", e.codes}, {"dequantized", e.values}, {"error", e.input - e.values}};
  for (int64_t row = 0; row < e.input.size(0); ++row) {
    for (const auto& kind : kinds) {
      std::vector<report::Cell> cells{std::to_string(row), kind.name};
      for (const double value : numbers(kind.values[row])) cells.emplace_back(shown(value));
      table.add_row(std::move(cells));
    }
  }
  return table;
}

report::Table errors_table(const Explanation& e) {
  report::Table table{.title = "Errors",
                      .columns = {{"mean squared"}, {"largest"}, {"SQNR", "dB"}, {"cosine similarity"}}};
  table.add_row({shown(e.error.mse), shown(e.error.max_abs), shown(e.error.sqnr_db), shown(e.error.cosine)});
  return table;
}

nlohmann::json to_json(const Explanation& e) {
  nlohmann::json parts = nlohmann::json::array();
  for (size_t i = 0; i < e.parts.size(); ++i) {
    parts.push_back({{"part", e.parts[i]},
                     {"min", numbers(e.min)[i]},
                     {"max", numbers(e.max)[i]},
                     {"scale", numbers(e.scale)[i]}});
    if (e.zero_point.defined()) parts.back()["zero_point"] = numbers(e.zero_point)[i];
  }
  return {{"scheme", e.target},
          {"lowest", e.lowest},
          {"highest", e.highest},
          {"parts", parts},
          {"input", matrix(e.input)},
          {"codes", matrix(e.codes)},
          {"dequantized", matrix(e.values)},
          {"mse", e.error.mse},
          {"max_abs", e.error.max_abs},
          {"sqnr_db", e.error.sqnr_db},
          {"cosine", e.error.cosine}};
}

at::Tensor parse_explained(const std::string& text) {
  try {
    return quant::parse_matrix(text);
  } catch (const Error& error) {
    throw CLI::ValidationError("--explain", error.what());
  }
}

}  // namespace

void ExplainFlags::add_to(CLI::App& command) {
  explain = command
                .add_option("--explain", matrix,
                            "Show what becomes of this matrix, \"1.5,-2;0.3,4\" (rows parted by ';'), and "
                            "quantize no model")
                ->group(kGroup);
  const auto flag = [&](CLI::Option* option) { option->needs(explain)->group(kGroup); };
  bits_option = command.add_option("--bits", bits, "Bits of a code; of a model those of its weights")
                    ->check(CLI::Range(2, 8))
                    ->group(kGroup)
                    ->default_str("8 of --explain");
  flag(command.add_flag("--signed", is_signed, "Signed codes (default: unsigned)"));
  flag(command.add_flag("--symmetric", symmetric, "Zero point fixed (default: affine)"));
  flag(command.add_flag("--restricted", restricted, "Signed codes without the lowest one"));
  flag(command
           .add_option("--granularity", granularity,
                       "What shares a scale: tensor, channel:AXIS, group:SIZE, token or block:ROWSxCOLUMNS")
           ->capture_default_str());
  flag(command.add_option("--format", format,
                          "A small floating-point format in place of integers: e4m3fn, e5m2, ..."));
  flag(command.add_option("--clip", clip, "MIN,MAX to represent in place of the values' own range")
           ->delimiter(',')
           ->expected(2));
}

void ExplainFlags::run(const CommonFlags& common) const {
  const at::Tensor x = parse_explained(matrix);
  std::optional<quant::ClipRange> range;
  if (!clip.empty()) range = quant::ClipRange{clip[0], clip[1]};
  const Explanation explanation = as_usage([&] { return quant::explain(x, target_of(*this), range); });
  if (common.json) return print_json(to_json(explanation));
  print_table(parameters_table(explanation));
  std::cout << '\n';
  print_table(values_table(explanation));
  std::cout << '\n';
  print_table(errors_table(explanation));
}

}  // namespace ulp::cli
