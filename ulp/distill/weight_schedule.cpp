#include "ulp/distill/weight_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ulp::distill {

namespace {

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string text_of(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, error == std::errc() ? end : buffer};
}

}  // namespace

double WeightSchedule::at(double share) const {
  if (share >= end) return to;
  if (share <= begin) return from;
  return from + (to - from) * (share - begin) / (end - begin);
}

std::string WeightSchedule::text() const {
  if (is_constant()) return text_of(from);
  std::string text = text_of(from) + '>' + text_of(to);
  if (begin != 0 || end != 1) text += ':' + text_of(begin) + '-' + text_of(end);
  return text;
}

std::optional<WeightSchedule> WeightSchedule::from_text(const std::string& text) {
  const std::string_view all = text;
  const size_t arrow = all.find('>');
  if (arrow == std::string_view::npos) {
    const auto value = number_of(all);
    return value ? std::optional(constant(*value)) : std::nullopt;
  }
  const size_t colon = all.find(':', arrow);
  const auto from = number_of(all.substr(0, arrow));
  const auto to =
      number_of(all.substr(arrow + 1, colon == std::string_view::npos ? colon : colon - arrow - 1));
  if (!from || !to) return std::nullopt;
  WeightSchedule ramp{*from, *to};
  if (colon == std::string_view::npos) return ramp;
  const std::string_view shares = all.substr(colon + 1);
  size_t dash = shares.find('-', 1);
  if (dash != std::string_view::npos && shares[dash - 1] == 'e') dash = shares.find('-', dash + 1);  // 1e-04
  if (dash == std::string_view::npos) return std::nullopt;
  const auto begin = number_of(shares.substr(0, dash)), end = number_of(shares.substr(dash + 1));
  if (!begin || !end || *begin < 0 || *begin > *end || *end > 1) return std::nullopt;
  ramp.begin = *begin;
  ramp.end = *end;
  return ramp;
}

}  // namespace ulp::distill
