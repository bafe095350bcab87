// Which layers an engine runs some rows of the image at a time.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/enum_names.h"

namespace ulp::runtime {

/// A convolution with the 1x1 convolutions around it can pass over the image some rows at a time, so that
/// what lies between the layers stays in the cache. That saves much where it is depthwise, and little where
/// it is not. The results are the same, bit for bit.
enum class DepthFirst : uint8_t {
  measure,  ///< depthwise, where more lies between the layers than stays in the cache anyway; in doubt both ways are timed
  never,
  always
};

}  // namespace ulp::runtime

namespace ulp {
template <>
struct EnumNames<runtime::DepthFirst> {
  static constexpr auto list =
      std::to_array<Word<runtime::DepthFirst>>({{runtime::DepthFirst::measure, "measure"},
                                                {runtime::DepthFirst::never, "never"},
                                                {runtime::DepthFirst::always, "always"}});
};
}  // namespace ulp
