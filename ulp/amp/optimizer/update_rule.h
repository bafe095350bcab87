// How FusedOptimizer turns a gradient into an update, and how it keeps the weights.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::amp {

/// torch::optim::SGD.
struct SgdRule {
  double lr = 1e-3;         ///< >= 0
  double momentum = 0;      ///< >= 0; 0: no momentum buffer
  double dampening = 0;     ///< of the gradient that enters the momentum buffer; 0 with nesterov
  double weight_decay = 0;  ///< >= 0; times the weight, added to the gradient
  bool nesterov = false;    ///< needs momentum
};

/// torch::optim::Adam without amsgrad.
struct AdamRule {
  double lr = 1e-3;         ///< >= 0
  double beta1 = 0.9;       ///< in [0, 1)
  double beta2 = 0.999;     ///< in [0, 1)
  double eps = 1e-8;        ///< >= 0
  double weight_decay = 0;  ///< >= 0; times the weight, added to the gradient
};

/// torch::optim::AdamW without amsgrad.
struct AdamWRule {
  double lr = 1e-3;            ///< >= 0
  double beta1 = 0.9;          ///< in [0, 1)
  double beta2 = 0.999;        ///< in [0, 1)
  double eps = 1e-8;           ///< >= 0
  double weight_decay = 1e-2;  ///< >= 0; times lr, taken off the weight itself
};

/// Any of the rules above.
using UpdateRule = std::variant<SgdRule, AdamRule, AdamWRule>;

/// "expected beta1 in [0, 1), got 2" for a field that is out of its range; empty where all is well. Every
/// number must be finite in fp32, in which the steps are computed.
ULP_API std::string rule_problem(const UpdateRule& rule);
/// Throws Error with rule_problem() if there is one.
ULP_API void validate(const UpdateRule& rule);
/// "SGD", "Adam" or "AdamW".
ULP_API const char* name_of(const UpdateRule& rule);

/// Calls field(name, reference) for every number of a rule.
template <typename Rule, typename Field>
void for_each_field(Rule& rule, Field&& field) {
  field("lr", rule.lr);
  if constexpr (requires { rule.momentum; }) {
    field("momentum", rule.momentum);
    field("dampening", rule.dampening);
    field("nesterov", rule.nesterov);
  } else {
    field("beta1", rule.beta1);
    field("beta2", rule.beta2);
    field("eps", rule.eps);
  }
  field("weight_decay", rule.weight_decay);
}

/// How the weights behind bf16 and fp16 parameters are kept between steps. fp32 parameters are their own
/// masters in every mode; fp16 parameters always have fp32 ones.
enum class MasterWeights {
  fp32,        ///< an fp32 copy beside each parameter (4 bytes more a weight)
  split,       ///< the low half of the fp32 weight (2 bytes more): the very same weights as with fp32 copies;
               ///< the bf16 parameter is the nearest to the weight, with ties away from zero
  stochastic,  ///< nothing: updates are rounded up or down at random, right in the mean
  kahan,       ///< what rounding lost, in bf16 (2 bytes more): about 16 bits of precision
};
/// Its word.
ULP_API const char* to_string(MasterWeights masters);
/// The kind of that word; another one is an error that lists them.
ULP_API MasterWeights find_masters(const std::string& name);
/// The type of what is kept beside a parameter of this type; nothing where nothing is kept.
ULP_API std::optional<c10::ScalarType> master_type(c10::ScalarType parameter, MasterWeights masters);

/// How momentum buffers and Adam's moments are kept between steps; the arithmetic on them is fp32.
enum class MomentFormat {
  fp32,
  bf16,  ///< half the memory; rounded up or down at random, right in the mean (to the nearest, a second
         ///< moment with beta2 = 0.999 would stall: its steps are smaller than half a unit in bf16's last
         ///< place)
  int8,  ///< a quarter: blocks of 256 with an absmax in fp32, codes of bitsandbytes' dynamic map, of second
         ///< moments of a map of their own that keeps them above 0; parameters of fewer than
         ///< kLeastBlockElements keep fp32
  int4,  ///< an eighth: blocks of 128, torchao's maps; small parameters as with int8
};
/// Parameters of fewer elements keep fp32 moments with MomentFormat::int8 and int4, as in bitsandbytes.
constexpr int64_t kLeastBlockElements = 4096;
/// Its word.
ULP_API const char* to_string(MomentFormat moments);
/// The format of that word; another one is an error that lists them.
ULP_API MomentFormat find_moments(const std::string& name);
/// The format in which a parameter of so many elements is kept: fp32 where it is too small for blocks.
ULP_API MomentFormat moment_format(MomentFormat moments, int64_t elements);
/// The type of the tensors of a parameter of so many elements; that of the codes is uint8.
ULP_API c10::ScalarType moment_type(MomentFormat moments, int64_t elements);
/// Bytes of one moment of a parameter of so many elements, its absmax counted.
ULP_API int64_t moment_bytes(MomentFormat moments, int64_t elements);

}  // namespace ulp::amp

template <>
struct ulp::EnumNames<ulp::amp::MasterWeights> {
  using enum amp::MasterWeights;
  static constexpr std::array<Word<amp::MasterWeights>, 4> list = {
      {{fp32, "fp32", "fp32 copy"},
       {split, "split", "bf16 weight plus the low 16 bits of the fp32 master"},
       {stochastic, "stochastic", "no master, stochastic rounding"},
       {kahan, "kahan", "bf16 weight plus a bf16 compensation term"}}};
};

template <>
struct ulp::EnumNames<ulp::amp::MomentFormat> {
  using enum amp::MomentFormat;
  static constexpr std::array<Word<amp::MomentFormat>, 4> list = {
      {{fp32, "fp32"}, {bf16, "bf16"}, {int8, "int8"}, {int4, "int4"}}};
};
