#include "ulp/libtorch/autocast_policies.h"

#include <utility>

namespace ulp::libtorch {

namespace {

thread_local std::shared_ptr<const AutocastPolicies> of_this_thread;

}  // namespace

AutocastPolicies::~AutocastPolicies() = default;

const std::shared_ptr<const AutocastPolicies>& autocast_policies() {
  return of_this_thread;
}

std::shared_ptr<const AutocastPolicies> set_autocast_policies(
    std::shared_ptr<const AutocastPolicies> policies) {
  return std::exchange(of_this_thread, std::move(policies));
}

}  // namespace ulp::libtorch
