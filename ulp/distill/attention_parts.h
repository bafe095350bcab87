// The parts of an attention in a graph, fused or written out. Internal to the room.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/graph/graph.h"

namespace ulp::distill {

/// The function or class that errors name.
inline constexpr const char* kFindPlaceWhere = "distill.find_layer_output";

/// What softmax(scores) values is made of; scores are queries keys^T, scaled and masked.
enum class AttentionRole : uint8_t { queries, keys, values, scores };

/// The value in that role in the one attention among `calls`; scores of a fused one are computed by calls
/// that are added. Throws ulp::Error where there is none, or several, naming `place`.
graph::Value* find_attention(graph::Graph& graph, const std::vector<graph::Node*>& calls, AttentionRole role,
                             const std::string& place);

}  // namespace ulp::distill

template <>
struct ulp::EnumNames<ulp::distill::AttentionRole> {
  using enum distill::AttentionRole;
  static constexpr std::array<Word<distill::AttentionRole>, 4> list = {
      {{queries, "queries"}, {keys, "keys"}, {values, "values"}, {scores, "scores"}}};
};
