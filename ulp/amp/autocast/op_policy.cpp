#include "ulp/amp/autocast/op_policy.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>

#include "ulp/amp/autocast/op_lists.h"
#include "ulp/amp/autocast/policy_scope.h"
#include "ulp/base/error.h"
#include "ulp/report/table.h"

namespace ulp::amp {

namespace {

const char* const kOpPolicySetWhere = "amp.OpPolicy.set";

std::string target_of(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::OperatorName name_of(std::string_view target) {
  const size_t dot = target.find('.');
  if (dot == std::string_view::npos) return {std::string(target), ""};
  return {std::string(target.substr(0, dot)), std::string(target.substr(dot + 1))};
}

const c10::FunctionSchema* find_schema(const c10::OperatorName& name) {
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  return handle ? &handle->schema() : nullptr;
}

/// Names as the dispatcher has them; asking for all of them takes a while.
const std::vector<c10::OperatorName>& overloads_of(const std::string& op) {
  static const auto* table = [] {
    auto* result = new std::map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      (*result)[name.name].push_back(name);
    }
    return result;
  }();
  static const std::vector<c10::OperatorName> none;
  const auto found = table->find(op);
  return found == table->end() ? none : found->second;
}

}  // namespace

std::string_view cast_name(Cast cast) {
  switch (cast) {
    case Cast::leave:
      return "leave";
    case Cast::lower_precision:
      return "lower_precision";
    case Cast::fp32:
      return "fp32";
    case Cast::fp32_set_opt_dtype:
      return "fp32_set_opt_dtype";
    case Cast::widest:
      return "widest";
    default:
      return "refuse";
  }
}

OpPolicy::OpPolicy(std::span<const OpList> lists) {
  for (const OpList& list : lists) {
    for (const char* op : list.ops) {
      // Another version of LibTorch may lack one.
      const std::string target = std::string("aten::") + op;
      if (find_schema(name_of(target))) set_overload(target, list.cast);
    }
  }
}

const OpPolicy& OpPolicy::libtorch_cpu() {
  static const OpPolicy policy(libtorch_cpu_lists());
  return policy;
}

const OpPolicy& OpPolicy::cuda_like() {
  static const OpPolicy policy(cuda_lists());
  return policy;
}

void OpPolicy::set_overload(const std::string& target, Cast cast) {
  const size_t slot = slot_of(target);
  if (by_slot_.size() <= slot) by_slot_.resize(slot + 1, Cast::leave);
  by_slot_[slot] = cast;
  if (cast == Cast::leave) {
    rules_.erase(target);
  } else {
    rules_[target] = cast;
  }
}

OpPolicy& OpPolicy::set(std::string_view op, Cast cast) {
  c10::OperatorName name = name_of(op);
  if (name.overload_name == "default") name.overload_name.clear();
  if (op.find('.') != std::string_view::npos) {
    const c10::FunctionSchema* schema = find_schema(name);
    if (!schema) fail(kOpPolicySetWhere, "expected an operator known to the dispatcher, got '", op, "'");
    if (schema->is_mutable()) {
      fail(kOpPolicySetWhere, "expected an op that is neither in-place nor out=, got '", op,
           "': those are left alone");
    }
    if (cast == Cast::fp32_set_opt_dtype && !dtype_argument(*schema)) {
      fail(kOpPolicySetWhere, "expected an op with an optional dtype for fp32_set_opt_dtype, got '", op, "'");
    }
    set_overload(target_of(name), cast);
    return *this;
  }
  const std::vector<c10::OperatorName>& overloads = overloads_of(name.name);
  bool any = false;
  for (const c10::OperatorName& overload : overloads) {
    const c10::FunctionSchema* schema = find_schema(overload);
    if (!schema || schema->is_mutable()) continue;
    if (cast == Cast::fp32_set_opt_dtype && !dtype_argument(*schema)) continue;
    set_overload(target_of(overload), cast);
    any = true;
  }
  if (any) return *this;
  if (overloads.empty())
    fail(kOpPolicySetWhere, "expected an operator known to the dispatcher, got '", op, "'");
  if (cast == Cast::fp32_set_opt_dtype) {
    fail(kOpPolicySetWhere, "expected an op with an optional dtype for fp32_set_opt_dtype, got '", op, "'");
  }
  fail(kOpPolicySetWhere, "expected an op that is neither in-place nor out=, got '", op,
       "': those are left alone");
}

Cast OpPolicy::find(std::string_view op) const {
  const auto found = rules_.find(op);
  return found == rules_.end() ? Cast::leave : found->second;
}

report::Table op_table() {
  const OpPolicy& cpu = OpPolicy::libtorch_cpu();
  const OpPolicy& cuda = OpPolicy::cuda_like();
  std::set<std::string> ops;
  for (const OpPolicy* policy : {&cpu, &cuda}) {
    for (const auto& [op, cast] : policy->rules()) ops.insert(op);
  }
  report::Table table{.columns = {{.name = "op"}, {.name = "libtorch_cpu"}, {.name = "cuda_like"}}};
  for (const std::string& op : ops) {
    table.add_row({op, std::string(cast_name(cpu.find(op))), std::string(cast_name(cuda.find(op)))});
  }
  return table;
}

}  // namespace ulp::amp
