#include "ulp/quant/methods/static_methods.h"

#include <algorithm>
#include <charconv>

#include "ulp/base/error.h"

namespace ulp::quant {

std::string SmoothAlpha::text() const {
  if (searched) return "auto";
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  return {digits, end};
}

std::optional<SmoothAlpha> SmoothAlpha::from_text(const std::string& text) {
  if (text == "auto") return SmoothAlpha{.searched = true};
  double value = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const bool is_number = error == std::errc() && end == last && !text.empty();
  if (!is_number || !(value >= 0 && value <= 1)) return std::nullopt;
  return SmoothAlpha{.value = value};
}

bool StaticMethods::has(StaticMethod one) const {
  return std::ranges::find(method, enum_name(one)) != method.end();
}

StaticMethods StaticMethods::behind_scaling() const {
  const StaticMethods plain;
  StaticMethods rest = *this;
  for (const StaticMethod done : {StaticMethod::rotate, StaticMethod::cle, StaticMethod::smoothquant})
    std::erase(rest.method, enum_name(done));
  rest.smoothquant_alpha = plain.smoothquant_alpha;
  rest.replace_relu6 = plain.replace_relu6;
  return rest;
}

void StaticMethods::visit_fields(FieldVisitor& visit) {
  visit({"method",
         "Methods, with commas between them: rotate (the residual stream of a transformer is rotated, which "
         "spreads outliers), cle (ranges of neighbouring layers are made equal), smoothquant "
         "(norms take the size of large channels), adaround (rounding is learned), bias_correction (biases "
         "take the mean error)"},
        method);
  visit({"smoothquant_alpha", "smoothquant: a number in [0, 1], or auto: the least error of each layer"},
        smoothquant_alpha);
  visit({"replace_relu6", "cle: a relu6 between two layers becomes a relu"}, replace_relu6);
  visit({"adaround_iterations", "adaround: steps of learning for each layer", 1}, adaround_iterations);
  visit({"recompute",
         "Methods with data: each layer's inputs are computed from the start: less memory, more time"},
        recompute);
}

void StaticMethods::validate(const char* where) const {
  for (size_t i = 0; i < method.size(); ++i) {
    require_word<StaticMethod>(where, "method", method[i]);
    if (std::ranges::count(method, method[i]) > 1)
      fail(where, "expected each method once, got '", method[i], "' twice");
  }
  const auto expect = [&](StaticMethod one, bool is_default, const char* field) {
    if (!has(one) && !is_default) fail(where, "expected the method ", enum_name(one), " for ", field);
  };
  const StaticMethods plain;
  if (!smoothquant_alpha.searched && !(smoothquant_alpha.value >= 0 && smoothquant_alpha.value <= 1))
    fail(where, "expected smoothquant_alpha of ", SmoothAlpha::kExpected, ", got ", smoothquant_alpha.value);
  expect(StaticMethod::smoothquant, smoothquant_alpha == plain.smoothquant_alpha, "smoothquant_alpha");
  expect(StaticMethod::cle, replace_relu6 == plain.replace_relu6, "replace_relu6");
  expect(StaticMethod::adaround, adaround_iterations == plain.adaround_iterations, "adaround_iterations");
  if (recompute && !has(StaticMethod::adaround) && !has(StaticMethod::bias_correction))
    fail(where, "expected the method adaround or bias_correction for recompute");
  check_limits(where, *this);
}

}  // namespace ulp::quant
