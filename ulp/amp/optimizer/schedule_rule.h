// Learning-rate curves as values: the factor of the base rate for each optimizer step.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// A linear rise from `from` to 1 over the first `steps` steps (torch.optim.lr_scheduler.LinearLR; from 0:
/// the warm-up of Hugging Face's schedules).
struct ULP_API Warmup {
  int64_t steps = 0;  ///< >= 0
  double from = 0.0;  ///< in [0, 1]
};

/// The base rate, after a warm-up if there is one.
struct ULP_API ConstantRate {
  static constexpr const char* kName = "constant";
  Warmup warmup = {};

  void validate() const;
  /// The factor of the base rate for the step with this index, >= 0.
  double factor(int64_t step) const;
  /// Every field, with its name in a saved state.
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("warmup_steps", self.warmup.steps);
    visit("warmup_from", self.warmup.from);
  }
};

/// Down to `end_factor` along `cycles` waves of a cosine; with the default, half a wave (Loshchilov and
/// Hutter 2017 without restarts; torch's CosineAnnealingLR; Hugging Face's cosine schedule with warm-up).
/// Stays at its last value after total_steps.
struct ULP_API CosineRate {
  static constexpr const char* kName = "cosine";
  int64_t total_steps = 0;  ///< > warm-up steps, which are among them
  Warmup warmup = {};
  double cycles = 0.5;      ///< > 0
  double end_factor = 0.0;  ///< in [0, 1]

  void validate() const;
  double factor(int64_t step) const;
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    ConstantRate::fields(self, visit);
    visit("total_steps", self.total_steps);
    visit("cycles", self.cycles);
    visit("end_factor", self.end_factor);
  }
};

/// end_factor + (1 - end_factor) (1 - t)^power, t from 0 after the warm-up to 1 at total_steps, and
/// end_factor from there on (torch's PolynomialLR, Hugging Face's polynomial and, for power 1, linear
/// schedule with warm-up).
struct ULP_API PolynomialRate {
  static constexpr const char* kName = "polynomial";
  int64_t total_steps = 0;  ///< > warm-up steps, which are among them
  Warmup warmup = {};
  double power = 1.0;       ///< > 0
  double end_factor = 0.0;  ///< in [0, 1]

  void validate() const;
  double factor(int64_t step) const;
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    ConstantRate::fields(self, visit);
    visit("total_steps", self.total_steps);
    visit("power", self.power);
    visit("end_factor", self.end_factor);
  }
};

/// torch.optim.lr_scheduler.OneCycleLR (Smith and Topin 2018) with the optimizer's rate as `max_lr`: from
/// 1 / div_factor up to 1 in the first `pct_start` of the steps, then down to
/// 1 / (div_factor final_div_factor), along half cosines or straight lines. With `three_phase`, down to
/// 1 / div_factor as slowly as it rose, and to the end from there. Stays at the end after total_steps.
struct ULP_API OneCycleRate {
  static constexpr const char* kName = "one_cycle";
  /// How the factor moves between its ends.
  enum class Anneal { cosine, linear };

  int64_t total_steps = 0;  ///< >= 2
  double pct_start = 0.3;   ///< in [0, 1]; three_phase: in [0, 0.5]
  Anneal anneal = Anneal::cosine;
  double div_factor = 25.0;       ///< >= 1
  double final_div_factor = 1e4;  ///< >= 1
  bool three_phase = false;
  bool cycle_momentum = false;  ///< move momentum (SGD, RMSprop) or beta1 (Adam, AdamW) the other way
  double base_momentum = 0.85;  ///< in [0, max_momentum]: at the highest rate
  double max_momentum = 0.95;   ///< < 1: at the lowest rates

  void validate() const;
  double factor(int64_t step) const;
  double momentum(int64_t step) const;
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("total_steps", self.total_steps);
    visit("pct_start", self.pct_start);
    visit("anneal", self.anneal);
    visit("div_factor", self.div_factor);
    visit("final_div_factor", self.final_div_factor);
    visit("three_phase", self.three_phase);
    visit("cycle_momentum", self.cycle_momentum);
    visit("base_momentum", self.base_momentum);
    visit("max_momentum", self.max_momentum);
  }

 private:
  double along(int64_t step, const double (&corners)[4]) const;
};

/// The slanted triangle (Howard and Ruder 2018): linearly from 0 to 1 over the first `warmup` share of the
/// steps, then linearly to 0 at total_steps.
struct ULP_API TriangleRate {
  static constexpr const char* kName = "triangle";
  int64_t total_steps = 0;  ///< >= 1
  double warmup = 0.25;     ///< in [0, 1)

  void validate() const;
  double factor(int64_t step) const;
  template <typename Self, typename Visit>
  static void fields(Self& self, const Visit& visit) {
    visit("total_steps", self.total_steps);
    visit("warmup", self.warmup);
  }
};

/// Any of the rules above.
using ScheduleRule = std::variant<ConstantRate, CosineRate, PolynomialRate, OneCycleRate, TriangleRate>;

/// The factor of the base rate for the step with this index, counted from 0. A negative step is an error.
ULP_API double rate_factor(const ScheduleRule& rule, int64_t step);

/// The curves that are chosen by name.
enum class Schedule { triangle, constant, constant_with_warmup, cosine, polynomial, one_cycle };

/// The rule of a schedule, with its defaults. `warmup` is the share of `total_steps` in which the rate rises,
/// in [0, 1); constant has none.
ULP_API ScheduleRule make_schedule_rule(Schedule schedule, int64_t total_steps, double warmup);

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::Schedule> {
  using enum amp::Schedule;
  static constexpr std::array<Word<amp::Schedule>, 6> list = {{{triangle, "triangle"},
                                                               {constant, "constant"},
                                                               {constant_with_warmup, "constant_with_warmup"},
                                                               {cosine, "cosine"},
                                                               {polynomial, "polynomial"},
                                                               {one_cycle, "one_cycle"}}};
};
