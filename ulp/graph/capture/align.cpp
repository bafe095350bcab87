#include "ulp/graph/capture/align.h"

#include <sstream>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

/// What tells a call from its neighbours of the same operator: the parameters and buffers that it reads.
std::string signature(const Run& run, size_t index) {
  std::ostringstream text;
  text << run.trace.calls[index].target;
  for (const Candidates& keys : run.resolved.calls[index].tensors) {
    if (!keys.empty() && keys.front().kind == ValueKey::Kind::attribute) text << ' ' << keys.front().index;
  }
  return text.str();
}

}  // namespace

void check_same_calls(const Trace& a, const Trace& b) {
  size_t count = std::min(a.calls.size(), b.calls.size());
  for (size_t i = 0; i < count; ++i) {
    if (a.calls[i].target == b.calls[i].target && a.calls[i].grad == b.calls[i].grad) continue;
    fail("graph.capture", "data-dependent control flow: call ", i, " is ", a.calls[i].target,
         " at batch size ", a.batch, " and ", b.calls[i].target, " at batch size ", b.batch);
  }
  if (a.calls.size() == b.calls.size()) return;
  const Trace& longer = a.calls.size() > b.calls.size() ? a : b;
  fail("graph.capture", "data-dependent control flow: ", a.calls.size(), " calls at batch size ", a.batch,
       " and ", b.calls.size(), " at batch size ", b.batch, "; the first one more is ",
       longer.calls[count].target);
}

std::vector<int32_t> align(const Run& eval, const Run& train) {
  std::vector<std::string> eval_names, train_names;
  for (size_t i = 0; i < eval.trace.calls.size(); ++i) eval_names.push_back(signature(eval, i));
  for (size_t i = 0; i < train.trace.calls.size(); ++i) train_names.push_back(signature(train, i));
  std::vector<int32_t> result(train_names.size(), -1);
  size_t j = 0;
  for (size_t i = 0; i < eval_names.size(); ++i) {
    size_t found = j;
    while (found < train_names.size() && train_names[found] != eval_names[i]) ++found;
    if (found == train_names.size()) {
      std::string instead = j < train_names.size() ? train.trace.calls[j].target : "nothing";
      fail("graph.capture", "train and eval mode run different operations: call ", i, " is ",
           eval.trace.calls[i].target, " in eval mode and ", instead, " in train mode");
    }
    result[found] = static_cast<int32_t>(i);
    j = found + 1;
  }
  return result;
}

}  // namespace ulp::graph
