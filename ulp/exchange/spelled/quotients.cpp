// Whole parts, remainders and quotients without them.
#include <cmath>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;

void trunc(Formula& f) {
  V x = f.x();
  f.result(f.floats() ? f.trunc(x) : f.map("aten::clone", x));
}

void frac(Formula& f) {
  V x = f.x();
  f.result(f.sub(x, f.trunc(x)));
}

V remainder_of(Formula& f, V a) {
  if (f.is_tensor("other")) return f.both("aten::remainder.Tensor", a, f.tensor("other"));
  return f.spell().map("aten::remainder.Scalar", {a, c10::IValue(scalar_arg(f.node(), "other"))});
}

/// The remainder of floats with the sign of the dividend, exact as the one of magnitudes is.
V signed_rest(Formula& f, V x) {
  V rest = f.is_tensor("other")
               ? f.both("aten::remainder.Tensor", f.abs(x), f.abs(f.tensor("other")))
               : f.spell().map("aten::remainder.Scalar",
                               {f.abs(x), c10::IValue(std::abs(number_arg(f.node(), "other")))});
  return f.where(f.compare("aten::lt", x, 0.0), f.map("aten::neg", rest), rest);
}

void fmod(Formula& f) {
  V x = f.x();
  if (!f.floats()) {  // less the divisor, where the other remainder has its sign and the dividend another one
    if (f.is_tensor("other")) return;
    const int64_t by = scalar_arg(f.node(), "other").toLong();
    V rest = remainder_of(f, x);
    V apart = f.both("aten::logical_and", f.compare(by < 0 ? "aten::gt" : "aten::lt", x, 0.0),
                     f.compare("aten::ne", rest, 0.0));
    return f.result(f.where(apart, f.spell().map("aten::sub.Scalar", {rest, c10::IValue(by)}), rest));
  }
  f.result(signed_rest(f, x));
}

/// Of floats: the quotient rounded to 0; or the dividend less its remainder, a multiple of the divisor, by
/// that. By a divisor that may be infinite LibTorch's way: less the remainder with the dividend's sign, and
/// one less where the divisor has another one.
void divide(Formula& f) {
  const bool floor_divides = f.node().is("aten::floor_divide");
  if (!f.floats()) return;
  if (!floor_divides && (!has_arg(f.node(), "rounding_mode") || f.node().arg("rounding_mode").is_none()))
    return;
  const std::string mode = floor_divides ? "floor" : text_arg(f.node(), "rounding_mode");
  V x = f.x();
  const auto divided = [&](V a) {
    return f.is_tensor("other") ? f.div(a, f.tensor("other")) : f.div(a, number_arg(f.node(), "other"));
  };
  if (mode == "trunc") return f.result(f.trunc(divided(x)));
  if (!f.is_tensor("other") && std::isfinite(number_arg(f.node(), "other"))) {
    const bool none = number_arg(f.node(), "other") == 0;
    return f.result(none ? divided(x) : f.map("aten::round", divided(f.sub(x, remainder_of(f, x)))));
  }
  V rest = signed_rest(f, x), whole = f.map("aten::round", divided(f.sub(x, rest)));
  V signs = f.map("aten::sign", rest);
  if (f.is_tensor("other")) {
    signs = f.mul(signs, f.map("aten::sign", f.tensor("other")));
  } else if (number_arg(f.node(), "other") < 0) {
    signs = f.map("aten::neg", signs);
  }
  whole = f.where(f.compare("aten::lt", signs, 0.0), f.add(whole, -1), whole);
  if (!f.is_tensor("other")) return f.result(whole);
  f.result(f.where(f.compare("aten::eq", f.tensor("other"), 0.0), divided(x), whole));
}

}  // namespace

SpelledTable spelled_quotients() {
  static constexpr SpelledRow kTable[] = {{"aten::trunc", trunc}, {"aten::fix", trunc},
                                          {"aten::frac", frac},   {"aten::fmod", fmod},
                                          {"aten::div", divide},  {"aten::floor_divide", divide}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
