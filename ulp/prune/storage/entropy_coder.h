// How codes become bytes.
#pragma once

#include "ulp/base/enum_names.h"

namespace ulp::prune {

/// The coders that are tried for each stream of codes; the smallest result is taken, the simplest of equals.
enum class EntropyCoder : uint8_t { none, huffman, smallest };

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::EntropyCoder> {
  static constexpr std::array<Word<prune::EntropyCoder>, 3> list = {
      {{prune::EntropyCoder::none, "none", "packed bits"},
       {prune::EntropyCoder::huffman, "huffman", "packed bits or Huffman codes"},
       {prune::EntropyCoder::smallest, "smallest", "packed bits, Huffman codes or deflate"}}};
};
