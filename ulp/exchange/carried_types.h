// Calls in element types that a peer does not compute: in a type that it does, between two casts.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Element types as a set.
class TypeSet {
 public:
  constexpr TypeSet(std::initializer_list<at::ScalarType> types) {
    for (const at::ScalarType type : types) bits_ |= bit(type);
  }
  constexpr bool contains(at::ScalarType type) const { return (bits_ & bit(type)) != 0; }

 private:
  static constexpr uint64_t bit(at::ScalarType type) { return uint64_t{1} << static_cast<int>(type); }
  uint64_t bits_ = 0;
};

/// What a peer computes an op in.
struct PeerTypes {
  std::string_view op;  ///< "aten::sort"
  TypeSet types;
  bool carried = true;  ///< whether carry_types() may take another type; not where results would differ
};

/// Calls of an op whose type its row does not have come to compute in a larger one that it has, between
/// casts: bool and whole numbers of less than 32 bits in int32, int32 in int64. Of what the table has such a
/// result, cast back, is the one of the type itself, as long as it comes of sums, products, choices and
/// orders of elements. The type of a call is its first result's, for indices its input's.
void carry_types(graph::Graph& graph, std::span<const PeerTypes> table);

/// Refuses a call that makes elements of these types otherwise than by a cast, a choice or a move of
/// elements: for formats that hold them in int32, where sums and products do not wrap around.
void expect_moves_of(const graph::Node& node, const TypeSet& held_wider);

/// Refuses a call whose op has a row without its type.
void expect_peer_type(const graph::Node& node, std::span<const PeerTypes> table);

}  // namespace ulp::exchange
