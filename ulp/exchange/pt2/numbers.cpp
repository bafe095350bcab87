#include "ulp/exchange/pt2/numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

using c10::IValue;
using Numbers = std::vector<IValue>;

bool is_whole(const IValue& value) {
  return value.isInt() || value.isBool();
}

int64_t whole(const IValue& value) {
  return value.isBool() ? int64_t{value.toBool()} : value.toInt();
}

double real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(whole(value));
}

bool truth(const IValue& value) {
  return value.isDouble() ? value.toDouble() != 0 : whole(value) != 0;
}

[[noreturn]] void too_large() {
  fail_file(kImportPt2Where, "expected whole numbers of 64 bits");
}

int64_t whole_of(double value) {
  constexpr double kMost = 0x1p62;
  if (!(std::abs(value) <= kMost)) too_large();
  return static_cast<int64_t>(value);
}

/// Rounded down, as Python divides.
int64_t floor_divided(int64_t a, int64_t b) {
  if (b == 0) fail_file(kImportPt2Where, "expected no division by 0");
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) too_large();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// What the division leaves, with the sign of the divisor.
int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == 0) fail_file(kImportPt2Where, "expected no division by 0");
  if (b == -1) return 0;  // of the lowest number, too, which the processor cannot divide so
  const int64_t left = a % b;
  return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

IValue power(const IValue& a, const IValue& b) {
  if (!is_whole(a) || !is_whole(b) || whole(b) < 0) return std::pow(real(a), real(b));
  constexpr int64_t kMost = 64;
  int64_t result = 1;
  if (whole(b) > kMost) return IValue(whole_of(std::pow(real(a), real(b))));
  for (int64_t i = 0; i < whole(b); ++i) {
    if (__builtin_mul_overflow(result, whole(a), &result)) too_large();
  }
  return result;
}

/// One of whole numbers where both are, else of others.
template <typename OfWhole, typename OfReal>
IValue both(const Numbers& v, const OfWhole& of_whole, const OfReal& of_real) {
  if (!is_whole(v[0]) || !is_whole(v[1])) return IValue(of_real(real(v[0]), real(v[1])));
  int64_t result = 0;
  if (of_whole(whole(v[0]), whole(v[1]), &result)) too_large();
  return result;
}

template <typename Compare>
IValue compared(const Numbers& v, const Compare& compare) {
  return is_whole(v[0]) && is_whole(v[1]) ? compare(whole(v[0]), whole(v[1]))
                                          : compare(real(v[0]), real(v[1]));
}

struct Function {
  size_t arguments;
  IValue (*value)(const Numbers&);
};

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = {
      {"add",
       {2,
        [](const Numbers& v) {
          return both(
              v, [](int64_t a, int64_t b, int64_t* c) { return __builtin_add_overflow(a, b, c); },
              [](double a, double b) { return a + b; });
        }}},
      {"sub",
       {2,
        [](const Numbers& v) {
          return both(
              v, [](int64_t a, int64_t b, int64_t* c) { return __builtin_sub_overflow(a, b, c); },
              [](double a, double b) { return a - b; });
        }}},
      {"mul",
       {2,
        [](const Numbers& v) {
          return both(
              v, [](int64_t a, int64_t b, int64_t* c) { return __builtin_mul_overflow(a, b, c); },
              [](double a, double b) { return a * b; });
        }}},
      {"floordiv",
       {2,
        [](const Numbers& v) {
          return both(
              v, [](int64_t a, int64_t b, int64_t* c) { return *c = floor_divided(a, b), false; },
              [](double a, double b) { return std::floor(a / b); });
        }}},
      {"mod",
       {2,
        [](const Numbers& v) {
          return both(
              v, [](int64_t a, int64_t b, int64_t* c) { return *c = floor_remainder(a, b), false; },
              [](double a, double b) { return a - std::floor(a / b) * b; });
        }}},
      {"truediv", {2, [](const Numbers& v) { return IValue(real(v[0]) / real(v[1])); }}},
      {"pow", {2, [](const Numbers& v) { return power(v[0], v[1]); }}},
      {"neg",
       {1,
        [](const Numbers& v) {
          return both(
              {IValue(int64_t{0}), v[0]},
              [](int64_t a, int64_t b, int64_t* c) { return __builtin_sub_overflow(a, b, c); },
              [](double, double b) { return -b; });
        }}},
      {"pos", {1, [](const Numbers& v) { return v[0]; }}},
      {"eq",
       {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a == b); }); }}},
      {"ne",
       {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a != b); }); }}},
      {"lt", {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a < b); }); }}},
      {"le",
       {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a <= b); }); }}},
      {"gt", {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a > b); }); }}},
      {"ge",
       {2, [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(a >= b); }); }}},
      {"and_", {2, [](const Numbers& v) { return IValue(truth(v[0]) && truth(v[1])); }}},
      {"or_", {2, [](const Numbers& v) { return IValue(truth(v[0]) || truth(v[1])); }}},
      {"not_", {1, [](const Numbers& v) { return IValue(!truth(v[0])); }}},
      {"sym_not", {1, [](const Numbers& v) { return IValue(!truth(v[0])); }}},
      {"sym_max",
       {2,
        [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(std::max(a, b)); }); }}},
      {"sym_min",
       {2,
        [](const Numbers& v) { return compared(v, [](auto a, auto b) { return IValue(std::min(a, b)); }); }}},
      {"sym_ite", {3, [](const Numbers& v) { return truth(v[0]) ? v[1] : v[2]; }}},
      {"sym_float", {1, [](const Numbers& v) { return IValue(real(v[0])); }}},
      {"sym_int", {1, [](const Numbers& v) { return IValue(whole_of(std::trunc(real(v[0])))); }}},
      {"trunc", {1, [](const Numbers& v) { return IValue(whole_of(std::trunc(real(v[0])))); }}},
      {"ceil", {1, [](const Numbers& v) { return IValue(whole_of(std::ceil(real(v[0])))); }}},
      {"floor", {1, [](const Numbers& v) { return IValue(whole_of(std::floor(real(v[0])))); }}},
      {"round", {1, [](const Numbers& v) { return IValue(whole_of(std::nearbyint(real(v[0])))); }}},
      {"_sym_sqrt", {1, [](const Numbers& v) { return IValue(std::sqrt(real(v[0]))); }}}};
  return all;
}

}  // namespace

bool is_check(const std::string& target) {
  static const std::set<std::string> kChecks = {
      "torch.ops.aten._assert_scalar.default", "torch.ops.aten._assert_tensor_metadata.default",
      "torch.ops.aten._assert_async.msg", "torch.ops.aten.sym_constrain_range.default",
      "torch.ops.aten.sym_constrain_range_for_size.default"};
  return kChecks.contains(target);
}

bool is_number_function(const std::string& target) {
  const size_t dot = target.rfind('.');
  if (dot == std::string::npos) return false;
  const std::string module = target.substr(0, dot);
  const bool known = module == "_operator" || module == "math" || module == "torch" || module == "builtins";
  return known && functions().contains(target.substr(dot + 1));
}

IValue number_function(const std::string& target, const Numbers& arguments) {
  const auto found = functions().find(target.substr(target.rfind('.') + 1));
  if (found == functions().end())
    fail_file(kImportPt2Where, "expected a function of numbers that is known, got '", target, "'");
  const bool numbers =
      std::ranges::all_of(arguments, [](const IValue& one) { return is_whole(one) || one.isDouble(); });
  if (!numbers || arguments.size() != found->second.arguments)
    fail_file(kImportPt2Where, "expected ", found->second.arguments, " numbers, got ", arguments.size(),
              numbers ? "" : " values, of which one is none");
  return found->second.value(arguments);
}

}  // namespace ulp::exchange::pt2
