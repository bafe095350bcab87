// Attributes of max_pool and avg_pool.
#pragma once

#include "ulp/runtime/ops/attributes.h"

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

  void visit_fields(FieldVisitor& visit) { visit({.name = "window"}, window); }
  bool operator==(const PoolAttributes&) const = default;
};

}  // namespace ulp::runtime
