// Attributes of max_pool and avg_pool.
#pragma once

#include "ulp/runtime/ops/attributes.h"

namespace ulp::runtime {

/// Which code a mean of codes becomes where two are equally near.
enum class MeanRounding : uint8_t {
  half_even,  ///< the even one, counted from the zero point: ONNX Runtime's
  half_away   ///< the one further from code 0 of s8, which is 128 of u8: LiteRT's; the scale stays
};

}  // namespace ulp::runtime

template <>
struct ulp::EnumNames<ulp::runtime::MeanRounding> {
  static constexpr std::array<Word<runtime::MeanRounding>, 2> list = {
      {{runtime::MeanRounding::half_even, "half_even"}, {runtime::MeanRounding::half_away, "half_away"}}};
};

namespace ulp::runtime {

/// A window with the choices that only pooling has.
struct PoolWindow : Window {
  bool ceil_mode = false;         ///< round the output size up
  bool count_include_pad = true;  ///< avg_pool: padding counts as elements

  void visit_fields(FieldVisitor& visit) {
    Window::visit_fields(visit);
    visit({.name = "ceil_mode"}, ceil_mode);
    visit({.name = "count_include_pad"}, count_include_pad);
  }
  bool operator==(const PoolWindow&) const = default;
};

/// Of max_pool and avg_pool.
struct PoolAttributes {
  PoolWindow window{};
  MeanRounding rounding = MeanRounding::half_even;  ///< avg_pool of u8

  void visit_fields(FieldVisitor& visit) {
    visit({.name = "window"}, window);
    visit({.name = "rounding"}, rounding);
  }
  bool operator==(const PoolAttributes&) const = default;
};

}  // namespace ulp::runtime
