#include "ulp/amp/optimizer/update_rule.h"

#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>

#include "ulp/amp/optimizer/moment_store.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

/// What is wrong with a number of a rule; empty where nothing is.
std::string number_problem(std::string_view name, double value) {
  const char* expected = "";
  if (name != "dampening" && !(value >= 0)) {  // PyTorch allows any dampening
    expected = " >= 0";
  } else if (name.starts_with("beta") && value >= 1) {
    expected = " in [0, 1)";
  } else if (!(std::fabs(value) <= std::numeric_limits<float>::max())) {
    expected = " to be finite in fp32";
  }
  if (*expected == '\0') return {};
  std::ostringstream text;
  text << "expected " << name << expected << ", got " << value;
  return text.str();
}

}  // namespace

std::string rule_problem(const UpdateRule& rule) {
  std::string problem;
  const auto look = [&](const char* name, auto value) {
    if (problem.empty()) problem = number_problem(name, static_cast<double>(value));
  };
  std::visit([&](const auto& chosen) { for_each_field(chosen, look); }, rule);
  const auto* sgd = std::get_if<SgdRule>(&rule);
  if (problem.empty() && sgd != nullptr && sgd->nesterov && (sgd->momentum == 0 || sgd->dampening != 0)) {
    std::ostringstream text;
    text << "expected momentum > 0 and dampening 0 with nesterov, got momentum " << sgd->momentum
         << " and dampening " << sgd->dampening;
    problem = text.str();
  }
  return problem;
}

void validate(const UpdateRule& rule) {
  if (const std::string problem = rule_problem(rule); !problem.empty()) fail("amp.UpdateRule", problem);
}

const char* name_of(const UpdateRule& rule) {
  constexpr const char* kNames[] = {"SGD", "Adam", "AdamW"};
  return kNames[rule.index()];
}

const char* to_string(MasterWeights masters) {
  return enum_name(masters);
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
  return enum_name(moments);
}

MomentFormat find_moments(const std::string& name) {
  return require_word<MomentFormat>("amp.MomentFormat", "moments", name);
}

MomentFormat moment_format(MomentFormat moments, int64_t elements) {
  const bool blocks = moments == MomentFormat::int8 || moments == MomentFormat::int4;
  return blocks && elements < kLeastBlockElements ? MomentFormat::fp32 : moments;
}

c10::ScalarType moment_type(MomentFormat moments, int64_t elements) {
  switch (moment_format(moments, elements)) {
    case MomentFormat::fp32:
      return c10::kFloat;
    case MomentFormat::bf16:
      return c10::kBFloat16;
    case MomentFormat::int8:
    case MomentFormat::int4:
      break;
  }
  return c10::kByte;
}

int64_t moment_bytes(MomentFormat moments, int64_t elements) {
  const kernels::MomentStore store = moment_store(moments, elements);
  return kernels::moment_bytes(store, elements) + 4 * moment_block_count(store, elements);
}

}  // namespace ulp::amp
