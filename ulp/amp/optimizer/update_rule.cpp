#include "ulp/amp/optimizer/update_rule.h"

#include <string_view>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kWhere = "amp.UpdateRule";

void expect_at_least_0(const char* name, double value) {
  if (!(value >= 0)) fail(kWhere, "expected ", name, " >= 0, got ", value);
}

}  // namespace

void validate(const UpdateRule& rule) {
  std::visit(
      [](const auto& chosen) {
        for_each_field(chosen, [](std::string_view name, auto value) {
          if (name == "dampening") return;  // PyTorch allows any
          expect_at_least_0(name.data(), static_cast<double>(value));
          if (name.starts_with("beta") && value >= 1)
            fail(kWhere, "expected ", name, " in [0, 1), got ", value);
        });
      },
      rule);
  const auto* sgd = std::get_if<SgdRule>(&rule);
  if (sgd != nullptr && sgd->nesterov && (sgd->momentum == 0 || sgd->dampening != 0))
    fail(kWhere, "expected momentum > 0 and dampening 0 with nesterov, got momentum ", sgd->momentum,
         " and dampening ", sgd->dampening);
}

const char* name_of(const UpdateRule& rule) {
  constexpr const char* kNames[] = {"SGD", "Adam", "AdamW"};
  return kNames[rule.index()];
}

const char* to_string(MasterWeights masters) {
  return word_of(masters);
}

std::optional<c10::ScalarType> master_type(c10::ScalarType parameter, MasterWeights masters) {
  if (parameter == c10::kFloat || masters == MasterWeights::stochastic) return std::nullopt;
  if (parameter == c10::kHalf || masters == MasterWeights::fp32) return c10::kFloat;
  return masters == MasterWeights::split ? c10::kShort : c10::kBFloat16;
}

MasterWeights find_masters(const std::string& name) {
  return require_word<MasterWeights>("amp.MasterWeights", "masters", name);
}

const char* to_string(MomentFormat moments) {
  return word_of(moments);
}

MomentFormat find_moments(const std::string& name) {
  return require_word<MomentFormat>("amp.MomentFormat", "moments", name);
}

c10::ScalarType moment_type(MomentFormat moments) {
  return moments == MomentFormat::fp32 ? c10::kFloat : c10::kBFloat16;
}

}  // namespace ulp::amp
