#include "ulp/quant/weights/mixed_precision_search.h"

#include <charconv>
#include <cmath>
#include <set>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

constexpr const char* kSearchWhere = "quant.MixedPrecisionSearch";

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find('/', begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

std::string WeightFormat::text() const {
  std::string text = std::to_string(bits);
  if (bits < 8) text += '/' + std::to_string(group);
  if (affine) text += "/affine";
  if (method != WeightMethod::rtn) text += std::string("/") + enum_name(method);
  return text;
}

/// Bits, then a group, "affine" and a method, each at most once and in this order.
std::optional<WeightFormat> WeightFormat::from_text(const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  const std::optional<int64_t> bits = whole_number(parts[0]);
  if (!bits) return std::nullopt;
  WeightFormat format{.bits = *bits};
  size_t next = 1;
  if (next < parts.size()) {
    if (const std::optional<int64_t> group = whole_number(parts[next])) {
      format.group = *group;
      ++next;
    }
  }
  if (next < parts.size() && parts[next] == "affine") {
    format.affine = true;
    ++next;
  }
  if (next < parts.size()) {
    const std::optional<WeightMethod> method = from_word<WeightMethod>(parts[next]);
    if (!method) return std::nullopt;
    format.method = *method;
    ++next;
  }
  if (next < parts.size()) return std::nullopt;
  return format;
}

std::vector<std::string> MixedPrecisionSearch::default_candidates() {
  return {"8", "4/16/gptq", "4/32/gptq", "4/64/gptq", "4/128/gptq", "4/-1/gptq"};
}

void MixedPrecisionSearch::visit_fields(FieldVisitor& visit) {
  visit({.name = "max_bytes", .help = "Size of all weights of the model", .absent = ""}, max_bytes);
  visit({.name = "max_loss",
         .help = "Loss beyond that of the float model, within which the smallest mix is searched for",
         .min = 0,
         .absent = ""},
        max_loss);
  visit({"candidates",
         "What each weight may be stored as: bits, group, affine and method, as 4/32/affine/gptq"},
        candidates);
  visit({"finalists", "So many mixes are measured", 1, 1000}, finalists);
}

std::vector<WeightFormat> MixedPrecisionSearch::formats() const {
  std::vector<WeightFormat> formats;
  for (const std::string& text : candidates) {
    const std::optional<WeightFormat> format = WeightFormat::from_text(text);
    if (!format) {
      fail(kSearchWhere,
           "expected candidates of bits, group, affine and method as 8, 4/32 or 3/64/affine/gptq, got '",
           text, "'");
    }
    formats.push_back(*format);
  }
  return formats;
}

void MixedPrecisionSearch::validate() const {
  if (!max_bytes && !max_loss) fail(kSearchWhere, "expected max_bytes, max_loss or both, got none");
  if (max_loss && !std::isfinite(*max_loss))
    fail(kSearchWhere, "expected a finite max_loss, got ", *max_loss);
  check_limits(kSearchWhere, *this);
  if (candidates.empty()) fail(kSearchWhere, "expected at least one candidate, got none");
  std::set<std::string> seen;
  for (const WeightFormat& format : formats()) {
    if (!seen.insert(format.text()).second)
      fail(kSearchWhere, "expected candidates once each, got ", format.text(), " twice");
  }
}

}  // namespace ulp::quant
