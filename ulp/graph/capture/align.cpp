#include "ulp/graph/capture/align.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/graph/capture/call_site.h"

namespace ulp::graph {

namespace {

/// What tells a call from its neighbours of the same operator: the parameters and buffers that it reads, and,
/// where asked for, the numbers that it computes with.
std::string signature(const Run& run, size_t index, bool numbers) {
  std::ostringstream text;
  const TracedCall& call = run.trace.calls[index];
  text << call.target;
  for (size_t i = 0; numbers && i < call.inputs.size(); ++i) {
    if (call.schema->arguments()[i].type()->kind() == c10::TypeKind::NumberType)
      text << ' ' << call.inputs[i];
  }
  for (const Candidates& keys : run.resolved.calls[index].tensors) {
    if (!keys.empty() && keys.front().kind == ValueKey::Kind::attribute) text << ' ' << keys.front().index;
  }
  return text.str();
}

}  // namespace

namespace {

/// The calls that take the parts of a tensor, one of which a loop over samples makes for each.
bool takes_part(const TracedCall& call) {
  return std::ranges::any_of(
      std::array{"aten::select", "aten::slice", "aten::narrow", "aten::unbind", "aten::split", "aten::chunk"},
      [&](const char* op) { return call.target == op || call.target.starts_with(std::string(op) + "."); });
}

/// What to do about calls that differ from one on.
std::string advice_for_calls(const Trace& a, const Trace& b, size_t first) {
  const Trace& longer = a.calls.size() > b.calls.size() ? a : b;
  const Trace& shorter = a.calls.size() > b.calls.size() ? b : a;
  const auto parts = [](const Trace& run) { return std::ranges::count_if(run.calls, takes_part); };
  const bool more = longer.calls.size() != shorter.calls.size();
  const bool rest =
      std::any_of(longer.calls.begin() + static_cast<std::ptrdiff_t>(first), longer.calls.end(), takes_part);
  const std::string once = a.calls.size() > b.calls.size()
                               ? "; where forward keeps what its first call made, run it once before capture"
                               : "";
  if (more && (rest || parts(longer) > parts(shorter)))
    return "; a loop over the samples, or along another size that is not fixed, makes a call for each: write "
           "it with "
           "operations on whole tensors (x.cumsum(1) for each x[i].cumsum(0), torch::bmm for each "
           "x[i].mm(y[i])), or fix "
           "the size (CaptureOptions::batch_dims = {-1} for the batch)" +
           once;
  if (more)
    return "; a loop or a branch follows a size: write it with operations on whole tensors, or fix the size "
           "(CaptureOptions::batch_dims = {-1} for the batch)" +
           once;
  return "; a branch follows a size or numbers: choose between tensors with torch::where, or fix the size "
         "(CaptureOptions::batch_dims = {-1} for the batch)";
}

}  // namespace

void check_same_calls(const Subject& subject, const Trace& a, const Trace& b) {
  size_t count = std::min(a.calls.size(), b.calls.size());
  for (size_t i = 0; i < count; ++i) {
    if (a.calls[i].target == b.calls[i].target && a.calls[i].grad == b.calls[i].grad) continue;
    fail("graph.capture", "data-dependent control flow", place_of_call(subject, a, i), ": call ", i, " is ",
         a.calls[i].target, " at ", a.sizes.text(), " and ", b.calls[i].target, " at ", b.sizes.text(),
         advice_for_calls(a, b, i));
  }
  if (a.calls.size() == b.calls.size()) return;
  const Trace& longer = a.calls.size() > b.calls.size() ? a : b;
  fail("graph.capture", "data-dependent control flow", place_of_call(subject, longer, count), ": ",
       a.calls.size(), " calls at ", a.sizes.text(), " and ", b.calls.size(), " at ", b.sizes.text(),
       "; the first one more is ", longer.calls[count].target, advice_for_calls(a, b, count));
}

namespace {

std::vector<std::string> signatures(const Run& run, Alignment how) {
  std::vector<std::string> names;
  for (size_t i = 0; i < run.trace.calls.size(); ++i)
    names.push_back(signature(run, i, how != Alignment::first));
  return names;
}

/// For each train call the first eval call in order that it can be; empty where eval has calls of its own.
std::vector<int32_t> as_part(const std::vector<std::string>& eval, const std::vector<std::string>& train) {
  std::vector<int32_t> result(train.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < train.size() && next < eval.size(); ++i) {
    if (train[i] == eval[next]) result[i] = static_cast<int32_t>(next++);
  }
  return next == eval.size() ? result : std::vector<int32_t>();
}

/// The last eval call in order that each can be.
std::vector<int32_t> as_last_part(std::vector<std::string> eval, std::vector<std::string> train) {
  std::ranges::reverse(eval);
  std::ranges::reverse(train);
  std::vector<int32_t> result = as_part(eval, train);
  std::ranges::reverse(result);
  for (int32_t& call : result) {
    if (call >= 0) call = static_cast<int32_t>(eval.size()) - 1 - call;
  }
  return result;
}

/// The longest common subsequence.
std::vector<int32_t> as_common(const std::vector<std::string>& eval, const std::vector<std::string>& train) {
  const size_t columns = train.size() + 1;
  std::vector<int32_t> length((eval.size() + 1) * columns, 0);  // of the rest of both from (i, j) on
  for (size_t i = eval.size(); i-- > 0;) {
    for (size_t j = train.size(); j-- > 0;) {
      int32_t& here = length[i * columns + j];
      here = eval[i] == train[j] ? length[(i + 1) * columns + j + 1] + 1
                                 : std::max(length[(i + 1) * columns + j], length[i * columns + j + 1]);
    }
  }
  std::vector<int32_t> result(train.size(), -1);
  for (size_t i = 0, j = 0; i < eval.size() && j < train.size();) {
    if (eval[i] == train[j]) {
      result[j++] = static_cast<int32_t>(i++);
    } else {
      length[(i + 1) * columns + j] >= length[i * columns + j + 1] ? ++i : ++j;
    }
  }
  return result;
}

}  // namespace

std::vector<int32_t> align(const Run& eval, const Run& train, Alignment how) {
  const std::vector<std::string> eval_names = signatures(eval, how), train_names = signatures(train, how);
  const std::vector<int32_t> part =
      how == Alignment::last ? as_last_part(eval_names, train_names) : as_part(eval_names, train_names);
  if (!part.empty() || eval_names.empty())
    return part.empty() ? std::vector<int32_t>(train_names.size(), -1) : part;
  constexpr size_t kMostCells = size_t{1} << 27;
  if ((eval_names.size() + 1) * (train_names.size() + 1) > kMostCells) {
    fail("graph.capture", "train and eval mode run different operations, ", eval_names.size(), " and ",
         train_names.size(), " of them, too many to match");
  }
  return as_common(eval_names, train_names);
}

}  // namespace ulp::graph
