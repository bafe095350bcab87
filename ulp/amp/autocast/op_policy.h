// Which operations autocast runs in which precision: lists as data, readable and extensible per op.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::report {
struct Table;
}

namespace ulp::amp {

struct OpList;

/// The cast of an operation's floating inputs on the guard's device (fp32, bf16 and fp16; never fp64,
/// complex, fp8 or integers).
enum class Cast : uint8_t {
  leave,               ///< not listed: runs in whatever it is given
  lower_precision,     ///< inputs are cast to the guard's dtype
  fp32,                ///< inputs are cast to fp32
  fp32_set_opt_dtype,  ///< computes and returns fp32 by its `dtype` argument, unless the caller has set that
  widest,              ///< inputs are cast to the widest among them; bf16 and fp16 together give fp32
  refuse               ///< an error: its input or gradient is unsafe in lower precision
};

/// "lower_precision", "fp32" ...
ULP_API std::string_view cast_name(Cast cast);

/// A value: copy one, change some ops, give it to an Autocast.
///
///   auto policy = ulp::amp::OpPolicy::cuda_like();
///   policy.set("aten::softmax", ulp::amp::Cast::lower_precision);
///   ulp::amp::Autocast guard(torch::kCPU, torch::kBFloat16, policy);
///
/// Ops are named as in listings of graphs: "aten::softmax.int", "aten::linear". In-place and out= forms have
/// no place in a policy: they are always left alone.
class ULP_API OpPolicy {
 public:
  /// No op listed.
  OpPolicy() = default;

  /// LibTorch's own lists for the CPU. They leave softmax, layer_norm, exp, sum, norm, pow, mv, addmv and
  /// others out: those run in whatever they are given.
  static const OpPolicy& libtorch_cpu();
  /// LibTorch's own lists for CUDA, to be used on any device. norm is listed as fp32, which gives the same
  /// values as CUDA's way of handing it a dtype.
  static const OpPolicy& cuda_like();

  /// Lists an op, or takes it off the lists with Cast::leave. "aten::pow.Tensor_Scalar" names one overload,
  /// "aten::sum.default" the one without a name, and "aten::pow" all that are neither in-place nor out=.
  /// Throws Error for an op the dispatcher does not know, for an in-place or out= form, and for
  /// fp32_set_opt_dtype on an op without such an argument (where all overloads are meant: on those that have
  /// none it has no effect).
  OpPolicy& set(std::string_view op, Cast cast);

  /// Finds the cast of an op by its full name ("aten::sum", "aten::sum.dim_IntList"). Unknown ones are left.
  Cast find(std::string_view op) const;

  /// The listed ops by full name.
  const std::map<std::string, Cast, std::less<>>& rules() const { return rules_; }

  bool operator==(const OpPolicy& other) const { return rules_ == other.rules_; }

 private:
  friend class PolicyScope;
  explicit OpPolicy(std::span<const OpList> lists);
  void set_overload(const std::string& target, Cast cast);

  std::map<std::string, Cast, std::less<>> rules_;
  std::vector<Cast> by_slot_;  ///< the same rules, indexed by slot_of()
};

/// The documented table: every op of either built-in policy with what each makes of it.
ULP_API report::Table op_table();

}  // namespace ulp::amp
