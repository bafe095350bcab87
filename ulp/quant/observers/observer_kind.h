// The name of an observer: what a recipe says to choose one.
#pragma once

#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp::quant {

/// The name of a registered observer (observer_registry.h); there is no value with a name nobody knows. The
/// built-in ones are constants: see observer.h, histogram_observer.h and calibration_observer.h.
class ULP_API ObserverKind {
 public:
  /// min_max.
  constexpr ObserverKind() : ObserverKind("min_max", Registered{}) {}
  /// Throws ulp::Error that lists the registered names.
  explicit ObserverKind(const std::string& name);

  /// Stays valid while the program runs.
  constexpr const char* name() const { return name_; }

  friend constexpr bool operator==(ObserverKind a, ObserverKind b) {
    return std::string_view(a.name_) == b.name_;
  }
  friend std::ostream& operator<<(std::ostream& out, ObserverKind kind) { return out << kind.name_; }

  // A field of one word of a list (ulp/base/fields.h), the registered names.
  static std::span<const char* const> choices();
  static std::span<const char* const> choice_help();
  size_t index() const;
  static ObserverKind at(size_t index);

  static const ObserverKind min_max;
  static const ObserverKind moving_average;
  static const ObserverKind histogram;   ///< PyTorch's search; per tensor only
  static const ObserverKind percentile;  ///< cuts the rarest values on both sides
  static const ObserverKind entropy;     ///< least Kullback-Leibler divergence
  static const ObserverKind mse;         ///< least mean squared error
  static const ObserverKind fixed;       ///< given bounds

 private:
  struct Registered {};
  constexpr ObserverKind(const char* name, Registered) : name_(name) {}

  const char* name_;
};

inline constexpr ObserverKind ObserverKind::min_max("min_max", Registered{});
inline constexpr ObserverKind ObserverKind::moving_average("moving_average", Registered{});
inline constexpr ObserverKind ObserverKind::histogram("histogram", Registered{});
inline constexpr ObserverKind ObserverKind::percentile("percentile", Registered{});
inline constexpr ObserverKind ObserverKind::entropy("entropy", Registered{});
inline constexpr ObserverKind ObserverKind::mse("mse", Registered{});
inline constexpr ObserverKind ObserverKind::fixed("fixed", Registered{});

}  // namespace ulp::quant
