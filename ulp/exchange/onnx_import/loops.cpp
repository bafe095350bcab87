// Loop and Scan: their graph is computed as often as the file says, and each time is a part of the network
// that is captured.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

namespace {

/// LibTorch's calls for each step of a node that is no graph of its own; nodes of graphs are counted by
/// themselves.
double calls_of_step(const FileNode& node) {
  if (node.op == "LinearAttention") return 14;
  if (node.op != "GRU") return 0;
  const FileAttribute* direction = node.find("direction");
  return direction != nullptr && direction->s == "bidirectional" ? 32 : 16;
}
constexpr double kMostCalls = 10'000;

const FileGraph& body_of(const FileNode& node, size_t inputs, size_t results) {
  const FileAttribute* body = node.find("body");
  const bool fits =
      body != nullptr && body->g && body->g->inputs.size() == inputs && body->g->outputs.size() >= results;
  if (!fits)
    fail_file(kImportOnnxWhere, node.label(), ": expected a graph of ", inputs, " inputs and ", results,
              " results or more");
  return *body->g;
}

/// A number that is known before the run.
Slot known_slot(int64_t value, at::ScalarType type) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  return {.value = torch::full({}, value, type), .known = true};
}

bool is_true(const Slot& condition) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  return condition.value.numel() == 1 && condition.value.item<double>() != 0;
}

}  // namespace

void Run::expect_the_same(const FileNode& node, const std::vector<int64_t>& numbers, const char* expected) {
  if (dry_ && store_.first_numbers.emplace(&node, numbers).first->second != numbers)
    fail_file(kImportOnnxWhere, node.label(), ": ", expected);
}

void Run::count_steps(const FileNode& node, int64_t steps) {
  if (!dry_) return;
  expect_the_same(node, {steps}, "expected a number of steps that is the same at all sizes of the inputs");
  store_.steps[&node] = steps;
  double calls = 0;
  for (const auto& [one, count] : store_.steps) calls += calls_of_step(*one) * static_cast<double>(count);
  if (calls > kMostCalls)
    fail_file(kImportOnnxWhere, node.label(), ": expected at most ", kMostCalls,
              " calls for all nodes that are computed step by step, got ", calls, " with its ", steps,
              " steps: the time to capture them grows with their square");
}

Slot Run::carried(const std::string& value, const FileNode& reader) {
  Slot& found = slot(value, reader);
  // The calls that make it are those of this step: later ones compute the same names anew.
  if (found.known && found.sized) made(found, reader);
  return found;
}

at::Tensor Run::stacked(const FileNode& node, const std::vector<at::Tensor>& parts, int64_t dim) {
  if (parts.empty()) fail_file(kImportOnnxWhere, node.label(), ": expected results of one step or more");
  return at::stack(parts, dim);
}

void Run::repeat(const FileNode& node) {
  const auto given = [&](size_t i) { return i < node.inputs.size() && !node.inputs[i].empty(); };
  const size_t states = node.inputs.size() < 2 ? 0 : node.inputs.size() - 2;
  const FileGraph& body = body_of(node, states + 2, states + 1);
  const Slot* count = given(0) ? known(node.inputs[0], node) : nullptr;
  const Slot* condition = given(1) ? known(node.inputs[1], node) : nullptr;
  if ((given(0) && (count == nullptr || count->value.numel() != 1)) || (given(1) && condition == nullptr))
    fail_file(kImportOnnxWhere, node.label(), ": expected a number of steps that is known before the run");
  for (const size_t i : {0, 1}) {
    if (given(i)) store_.argued.insert(node.inputs[i]);
  }
  store_.argued.insert(body.outputs[0].name);
  const double most = given(0) ? count->value.item<double>() : HUGE_VAL;
  bool goes_on = condition == nullptr || is_true(*condition);
  std::vector<Slot> kept;
  for (size_t i = 0; i < states; ++i) kept.push_back(slot(node.inputs[i + 2], node));
  std::vector<std::vector<at::Tensor>> parts(body.outputs.size() - 1 - states);
  int64_t step = 0;
  for (; goes_on && static_cast<double>(step) < most; ++step) {
    slots_[body.inputs[0].name] = known_slot(step, at::kLong);
    slots_[body.inputs[1].name] = known_slot(1, at::kBool);
    for (size_t i = 0; i < states; ++i) slots_[body.inputs[i + 2].name] = kept[i];
    evaluate(body);
    const Slot* next = known(body.outputs[0].name, node);
    if (next == nullptr)
      fail_file(kImportOnnxWhere, node.label(), ": expected a condition that is known before the run");
    goes_on = is_true(*next);
    for (size_t i = 0; i < states; ++i) kept[i] = carried(body.outputs[i + 1].name, node);
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i].push_back(tensor(body.outputs[i + 1 + states].name, node));
  }
  count_steps(node, step);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    slots_[node.outputs[i]] = i < states ? kept[i] : Slot{.value = stacked(node, parts.at(i - states), 0)};
  }
}

void Run::scan(const FileNode& node) {
  constexpr int64_t kWithoutBatch = 9;
  const Call call(*this, node, Call::As::calls);
  if (opset() < kWithoutBatch) call.refuse("expected a Scan without a batch, of opset 9 or later");
  const auto sequences = static_cast<size_t>(call.attribute("num_scan_inputs", int64_t{0}));
  if (sequences < 1 || sequences > node.inputs.size()) call.refuse("expected sequences among its inputs");
  const size_t states = node.inputs.size() - sequences;
  const FileGraph& body = body_of(node, node.inputs.size(), states);
  const size_t results = body.outputs.size() - states;
  const auto list = [&](const char* name, size_t count) {
    std::vector<int64_t> numbers = call.attribute(name, std::vector<int64_t>(count, 0));
    if (numbers.size() != count) call.refuse("expected ", count, " numbers as attribute '", name, "'");
    return numbers;
  };
  const std::vector<int64_t> axes = list("scan_input_axes", sequences),
                             back = list("scan_input_directions", sequences),
                             result_axes = list("scan_output_axes", results),
                             result_back = list("scan_output_directions", results);
  std::vector<Slot> kept;
  for (size_t i = 0; i < states; ++i) kept.push_back(slot(node.inputs[i], node));
  std::vector<at::Tensor> read;
  int64_t steps = -1;
  for (size_t i = 0; i < sequences; ++i) {
    read.push_back(tensor(node.inputs[states + i], node));
    const int64_t length = read[i].size(call.dim(axes[i], read[i].dim()));
    if (steps >= 0 && length != steps)
      call.refuse("expected sequences of one length, got ", steps, " and ", length);
    steps = length;
  }
  count_steps(node, steps);
  std::vector<std::vector<at::Tensor>> parts(results);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < states; ++i) slots_[body.inputs[i].name] = kept[i];
    for (size_t i = 0; i < sequences; ++i) {
      const int64_t place = back[i] != 0 ? steps - 1 - step : step;
      slots_[body.inputs[states + i].name] = {.value = at::select(read[i], axes[i], place)};
    }
    evaluate(body);
    for (size_t i = 0; i < states; ++i) kept[i] = carried(body.outputs[i].name, node);
    for (size_t i = 0; i < results; ++i) parts[i].push_back(tensor(body.outputs[states + i].name, node));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    if (i < states) {
      slots_[node.outputs[i]] = kept[i];
      continue;
    }
    std::vector<at::Tensor>& all = parts.at(i - states);
    if (result_back[i - states] != 0) std::reverse(all.begin(), all.end());
    slots_[node.outputs[i]] = {.value = stacked(node, all, result_axes[i - states])};
  }
}

}  // namespace ulp::exchange::onnx_import
