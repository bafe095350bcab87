#include "ulp/quant/analysis/explain.h"

#include <torch/utils.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/formats/format.h"

namespace ulp::quant {
namespace {

constexpr const char* kBlanks = " \t\n";

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// The pieces between separators; a trailing separator gives an empty last piece.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces{""};
  for (const char c : text) {
    if (c == separator) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

float parse_number(const std::string& text) {
  const std::string number = trimmed(text);
  char* end = nullptr;
  const float value = std::strtof(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !std::isfinite(value)) {
    fail("quant.parse_matrix", "expected a finite number, got '", number, "'");
  }
  return value;
}

std::string span(const char* name, int64_t first, int64_t count) {
  std::ostringstream text;
  text << name << (count == 1 ? " " : "s ") << first;
  if (count > 1) text << '-' << first + count - 1;
  return text.str();
}

// Names of the blocks of `down` x `across` that cover the matrix, row by row.
std::vector<std::string> block_names(at::IntArrayRef shape, int64_t down, int64_t across) {
  std::vector<std::string> names;
  for (int64_t row = 0; row < shape[0]; row += down) {
    for (int64_t column = 0; column < shape[1]; column += across) {
      names.push_back(span("row", row, std::min(down, shape[0] - row)) + ", " +
                      span("column", column, std::min(across, shape[1] - column)));
    }
  }
  return names;
}

std::vector<std::string> part_names(const Granularity& granularity, at::IntArrayRef shape) {
  if (const auto* group = std::get_if<PerGroup>(&granularity)) return block_names(shape, 1, group->size);
  if (const auto* block = std::get_if<PerBlock>(&granularity))
    return block_names(shape, block->rows, block->columns);
  if (std::holds_alternative<PerTensor>(granularity)) return {"all"};
  const char* name = std::holds_alternative<PerToken>(granularity) ? "row" : "channel";
  std::vector<std::string> names;
  for (int64_t i = 0; i < scale_shape(granularity, shape)[0]; ++i) names.push_back(span(name, i, 1));
  return names;
}

const Granularity& granularity_of(const Target& target) {
  return std::visit([](const auto& scheme) -> const Granularity& { return scheme.granularity; }, target);
}

void explain_integers(Explanation& result, const Scheme& scheme, at::IntArrayRef shape) {
  const QParams params = choose_qparams(result.min.reshape(shape), result.max.reshape(shape), scheme);
  const at::Tensor codes = quantize(result.input, params);
  result.lowest = static_cast<double>(scheme.qmin());
  result.highest = static_cast<double>(scheme.qmax());
  result.scale = params.scale.reshape(-1);
  result.zero_point = params.zero_point.reshape(-1);
  result.codes = codes.to(at::kInt);
  result.values = dequantize(codes, params);
}

void explain_floats(Explanation& result, const FloatScheme& scheme, at::IntArrayRef shape) {
  const at::Tensor amax = at::maximum(result.min.abs(), result.max.abs());
  const FloatQParams params = choose_qparams(amax.reshape(shape), scheme);
  const at::Tensor codes = quantize(result.input, params);
  result.lowest = formats::find(scheme.format).lowest();
  result.highest = scheme.max();
  result.scale = params.scale.reshape(-1);
  result.codes = codes.to(at::kInt);
  result.values = dequantize(codes, params);
}

}  // namespace

at::Tensor parse_matrix(const std::string& text) {
  std::vector<float> values;
  const std::vector<std::string> rows = split(text, ';');
  for (const std::string& row : rows) {
    for (const std::string& number : split(row, ',')) values.push_back(parse_number(number));
    const size_t columns = split(rows[0], ',').size(), got = split(row, ',').size();
    if (got != columns) {
      fail("quant.parse_matrix", "expected ", columns, " numbers in each row, got ", got, " in '", row, "'");
    }
  }
  const auto count = static_cast<int64_t>(rows.size());
  return torch::tensor(values).reshape({count, static_cast<int64_t>(values.size()) / count});
}

Explanation explain(const at::Tensor& x, const Target& target, std::optional<ClipRange> clip) {
  constexpr const char* kWhere = "quant.explain";
  const at::NoGradGuard no_grad;
  if (x.dim() != 2 || x.numel() == 0) fail(kWhere, "expected a matrix, got shape ", x.sizes());
  if (clip && !(std::isfinite(clip->min) && std::isfinite(clip->max) && clip->min < clip->max)) {
    fail(kWhere, "expected a finite clip range min < max, got ", clip->min, " and ", clip->max);
  }
  std::visit([](const auto& scheme) { scheme.validate(); }, target);
  const Granularity& granularity = granularity_of(target);
  const std::vector<int64_t> shape = scale_shape(granularity, x.sizes());
  Explanation result;
  result.input = x.detach().to(at::kFloat);
  result.target = std::visit([](const auto& scheme) { return scheme.to_string(); }, target);
  result.parts = part_names(granularity, x.sizes());
  const at::Tensor rows = to_rows(result.input, granularity);
  result.min = clip ? at::full({rows.size(0)}, clip->min, at::kFloat) : at::amin(rows, 1);
  result.max = clip ? at::full({rows.size(0)}, clip->max, at::kFloat) : at::amax(rows, 1);
  if (const auto* scheme = std::get_if<Scheme>(&target)) {
    explain_integers(result, *scheme, shape);
  } else {
    explain_floats(result, std::get<FloatScheme>(target), shape);
  }
  result.error = quantization_error(result.input, result.values);
  return result;
}

}  // namespace ulp::quant
