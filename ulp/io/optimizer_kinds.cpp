#include "ulp/io/optimizer_kinds.h"

#include "ulp/amp/optimizer/fused_optimizer.h"

namespace ulp::io {

namespace {

using nlohmann::json;

constexpr const char* kFused = "ulp::amp::FusedOptimizer";
constexpr const char* kSgd = "SGD";

/// Calls visit(options, states) for each group.
template <typename Visit>
void for_each_group(json& stored, const Visit& visit) {
  for (json& group : stored.at("groups")) visit(group.at("options"), group.at("states"));
}

bool all_have(json& stored, const char* option, const json& value) {
  bool all = true;
  for_each_group(stored, [&](const json& options, const json&) {
    all = all && options.contains(option) && options[option] == value;
  });
  return all;
}

json without_fused_fields(json stored, const std::string& kind) {
  for_each_group(stored, [&](json& options, json& states) {
    for (const char* name : {"rule", "masters", "moments"}) options.erase(name);
    if (kind != kSgd) options["amsgrad"] = false;
    for (json& state : states)
      if (kind == kSgd && state.is_object()) state.erase("step");
  });
  stored.erase("seed");
  return stored;
}

json with_fused_fields(json stored, const std::string& kind) {
  for_each_group(stored, [&](json& options, json& states) {
    options["rule"] = kind;
    options["masters"] = amp::to_string(amp::MasterWeights::fp32);
    options["moments"] = amp::to_string(amp::MomentFormat::fp32);
    options.erase("amsgrad");
    for (json& state : states)
      if (kind == kSgd && state.is_object()) state["step"] = 1;  // there was one: that is all it asks
  });
  stored["seed"] = uint64_t{0};
  return stored;
}

}  // namespace

json as_kind(json stored, const std::string& kind) {
  const auto own = stored.at("kind").get<std::string>();
  json converted;
  if (own == kFused && all_have(stored, "rule", kind) && all_have(stored, "moments", "fp32") &&
      all_have(stored, "masters", "fp32"))
    converted = without_fused_fields(stored, kind);
  else if (kind == kFused && (own == kSgd || all_have(stored, "amsgrad", false)))
    converted = with_fused_fields(stored, own);
  else
    return stored;
  converted["kind"] = kind;
  return converted;
}

}  // namespace ulp::io
