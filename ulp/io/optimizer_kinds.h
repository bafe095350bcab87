// States of LibTorch's optimizers as FusedOptimizer's of the same rule, and the other way round; not installed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ulp::io {

/// What export_optimizer() wrote, as an optimizer of this kind would have written it: moments go by the same names in
/// both. As it is where the one kind has not the rule of the other, or keeps what the other has no place for (moments
/// in fewer bits, amsgrad). Masters are none where parameters are fp32; whether that is so is checked by those who read on.
nlohmann::json as_kind(nlohmann::json stored, const std::string& kind);

}  // namespace ulp::io
