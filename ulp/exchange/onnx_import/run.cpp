#include "ulp/exchange/onnx_import/run.h"

#include <ATen/record_function.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "ulp/base/nearest_names.h"
#include "ulp/exchange/onnx_import/converters.h"
#include "ulp/exchange/onnx_import/unsigned.h"

namespace ulp::exchange::onnx_import {

namespace {

constexpr size_t kMostEvaluated = 10'000;

/// Codes go through calls of our own, whose tensors are kept.
bool is_quantizer(const FileNode& node) {
  return node.op == "QuantizeLinear" || node.op == "DequantizeLinear";
}

bool is_sizes(const FileNode& node) {
  return node.domain.empty() && (node.op == "Shape" || node.op == "Size");
}

/// A list of sizes as calls make it: numbers in arguments, which follow the sizes of the inputs.
at::Tensor from_calls(const at::Tensor& sizes) {
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < sizes.numel(); ++i)
    parts.push_back(at::full({1}, sizes.const_data_ptr<int64_t>()[i], at::kLong));
  const at::Tensor all = parts.empty() ? at::empty({0}, at::kLong) : at::cat(parts);
  return sizes.dim() == 0 ? at::reshape(all, at::IntArrayRef()) : all;
}

}  // namespace

std::string Run::inputs_of(const FileNode& node) {
  std::ostringstream text;
  for (const std::string& input : node.inputs) {
    if (!text.str().empty()) text << ", ";
    const auto found = slots_.find(input);
    at::Tensor value = found == slots_.end() ? at::Tensor() : found->second.value;
    if (!value.defined()) value = store_.find(input);
    if (!value.defined()) {
      text << (input.empty() ? "none" : "'" + input + "'");
    } else {
      text << type_name(data_type(value.scalar_type())) << ' ' << value.sizes();
    }
  }
  return text.str();
}

template <typename Work>
auto Run::guarded(const FileNode& node, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail_file({.code = ErrorCode::out_of_memory}, kImportOnnxWhere, node.label(),
              ": expected enough memory for its results");
  } catch (const std::exception&) {
    // What LibTorch says names its own operators and their arguments.
    fail_file(kImportOnnxWhere, node.label(),
              ": expected inputs whose types and sizes fit the operator and its attributes, got ",
              inputs_of(node));
  }
}

Slot& Run::slot(const std::string& value, const FileNode& reader) {
  const auto found = slots_.find(value);
  if (found != slots_.end()) return found->second;
  const at::Tensor stored = store_.is_initializer(value) ? store_.find(value) : at::Tensor();
  if (!stored.defined())
    fail_file(kImportOnnxWhere, reader.label(), ": expected values that are made before they are read, got '",
              value, "'");
  const bool parameter =
      at::isFloatingType(stored.scalar_type()) && stored.numel() > 1 && store_.analysis().is_parameter(value);
  return slots_[value] = {
             .value = parameter ? at::Tensor() : stored, .known = !parameter, .parameter = parameter};
}

at::Tensor Run::tensor(const std::string& value, const FileNode& reader) {
  using Kind = graph::Attribute::Kind;
  Slot& found = slot(value, reader);
  if (found.parameter && !found.value.defined()) found.value = store_.as_in_file(value);
  if (!found.known) return found.value;
  if (found.sized) return made(found, reader);
  if (!store_.is_initializer(value) || found.value.dim() == 0) return found.value;
  return store_.attribute(value, Kind::buffer, [&] { return found.value; });
}

at::Tensor Run::made(Slot& slot, const FileNode& reader) {
  constexpr int kDeepest = 256;
  if (slot.made.defined()) return slot.made;
  if (++depth_ > kDeepest) fail_file(kImportOnnxWhere, reader.label(), ": expected a shorter chain of sizes");
  const FileNode& maker = *slot.maker;
  if (is_sizes(maker)) {
    store_.argued.insert(maker.outputs.at(slot.output));
    slot.made = guarded(maker, [&] { return from_calls(slot.value); });
  } else {
    slot.made = results_of(maker, /*known=*/false).at(slot.output);
  }
  --depth_;
  return slot.made;
}

const Slot* Run::known(const std::string& value, const FileNode& reader) {
  const Slot& found = slot(value, reader);
  return found.known ? &found : nullptr;
}

bool Run::all_known(const FileNode& node, bool& sized) {
  bool known = !is_quantizer(node);
  for (const std::string& input : node.inputs) {
    if (input.empty()) continue;
    const Slot& found = slot(input, node);
    known = known && found.known;
    sized = sized || found.sized;
  }
  return known;
}

void Run::count(const FileNode& node, double bytes) {
  bytes_ += bytes;
  if (!(bytes_ <= static_cast<double>(store_.options().max_bytes)))
    fail_file({.code = ErrorCode::out_of_memory}, kImportOnnxWhere, node.label(), ": expected values of ",
              store_.options().max_bytes, " bytes in one run at most, got more with one of ", bytes,
              " bytes");
}

std::vector<at::Tensor> Run::results_of(const FileNode& node, bool known) {
  const Converter* converter = find_converter(node);
  if (converter == nullptr)
    fail_file({.code = ErrorCode::unsupported_op, .places = {{.op = node.op, .node = node.name}}},
              kImportOnnxWhere, node.label(),
              ": no form of it is known; the names nearest to it with one are ",
              nearest_names(node.op, converter_names()));
  return guarded(node, [&] {
    Call call(*this, node, known ? Call::As::known : Call::As::calls);
    constexpr double kWidest = 8;
    if (dry_) count(node, kWidest * converter->bound(call));
    if (!unsigned_arithmetic(call)) converter->compute(call);
    for (size_t i = 0; i < call.results().size(); ++i) {
      if (call.wants(i) && !call.results()[i].defined())
        call.refuse("expected nobody to ask for output ", i, ", '", node.outputs[i], "'");
    }
    return std::move(call.results());
  });
}

std::map<std::string, std::vector<at::Tensor>> Run::sized_values() const {
  std::map<std::string, std::vector<at::Tensor>> values = sized_;
  for (const auto& [name, slot] : slots_) {
    if (slot.known && slot.sized && !values.contains(name)) values[name] = {slot.value};
  }
  return values;
}

void Run::note(const FileNode& node, const std::vector<at::Tensor>& results) {
  Evaluation& made = evaluations_[&node].emplace_back();
  made.results = results;
  for (const std::string& input : node.inputs) {
    if (!input.empty() && !is_sizes(node)) made.inputs[input] = slot(input, node).value;
  }
}

std::map<std::string, at::Tensor> Run::known_values() const {
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, slot] : slots_) {
    if (slot.known) values[name] = slot.value;
  }
  return values;
}

std::vector<at::Tensor> Run::results_beside(const FileNode& node,
                                            const std::map<std::string, at::Tensor>& inputs) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  for (const auto& [name, value] : inputs) slots_[name] = {.value = value, .known = true};
  return results_of(node, /*known=*/true);
}

void Run::measure(const FileNode& node) {
  const Slot& found = slot(node.inputs.at(0), node);
  const bool follows = found.sized || store_.analysis().follows_inputs(node.inputs[0]);
  const bool sized = follows && !store_.fixed.contains(node.outputs.at(0));
  const at::Tensor x = found.known ? found.value : tensor(node.inputs[0], node);
  const Call call(*this, node, Call::As::known);
  at::Tensor sizes;
  if (node.op == "Size") {
    sizes = at::full({}, x.numel(), at::kLong);
  } else {
    std::vector<int64_t> all = x.sizes().vec();
    const auto end = [&](int64_t place) {
      return std::clamp<int64_t>(place < 0 ? place + x.dim() : place, 0, x.dim());
    };
    const int64_t from = end(call.attribute("start", int64_t{0})), to = end(call.attribute("end", x.dim()));
    all = to > from ? std::vector<int64_t>(all.begin() + from, all.begin() + to) : std::vector<int64_t>();
    sizes = torch::tensor(all, at::kLong);
  }
  if (dry_) note(node, {sizes});
  if (sized) sized_[node.outputs.at(0)].push_back(sizes);
  slots_[node.outputs.at(0)] = {.value = sizes, .known = true, .sized = sized, .maker = &node};
}

void Run::choose(const FileNode& node) {
  const Slot* condition = node.inputs.empty() ? nullptr : known(node.inputs[0], node);
  if (condition == nullptr || condition->value.numel() != 1)
    fail_file(kImportOnnxWhere, node.label(), ": expected a condition that is known before the run");
  const bool yes = condition->value.item<double>() != 0;
  store_.argued.insert(node.inputs[0]);
  const size_t place = choices_++;
  if (dry_ && place == store_.choices.size()) store_.choices.push_back(yes);
  if (dry_ && store_.choices[place] != yes) store_.undecided.insert(&node);
  if (!dry_ && store_.undecided.contains(&node))
    fail_file(kImportOnnxWhere, node.label(),
              ": expected a condition that is the same at all sizes of the inputs");
  const FileAttribute* branch = node.find(yes ? "then_branch" : "else_branch");
  if (branch == nullptr || !branch->g || branch->g->outputs.size() != node.outputs.size())
    fail_file(kImportOnnxWhere, node.label(), ": expected a graph with as many results as the node has");
  evaluate(*branch->g);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    slots_[node.outputs[i]] = slot(branch->g->outputs[i].name, node);
}

void Run::compute(const FileNode& node) {
  bool sized = false;
  const bool known = all_known(node, sized);
  std::vector<at::Tensor> results;
  if (known) {
    const at::DisableRecordFunctionGuard beside_the_capture;
    const at::NoGradGuard no_grad;
    results = results_of(node, /*known=*/true);
    for (at::Tensor& result : results) result = result.defined() ? result.contiguous() : result;
    if (dry_) note(node, results);
  } else {
    results = results_of(node, /*known=*/false);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const bool follows_sizes = known && sized && !store_.fixed.contains(node.outputs[i]);
    if (follows_sizes) sized_[node.outputs[i]].push_back(results[i]);
    slots_[node.outputs[i]] = {.value = results[i],
                               .known = known,
                               .sized = follows_sizes,
                               .maker = follows_sizes ? &node : nullptr,
                               .output = i};
  }
}

void Run::evaluate(const FileNode& node) {
  const bool standard = node.domain.empty();
  if (standard && node.op == "Constant") return;  // the store has it
  if (is_sizes(node)) return measure(node);
  if (standard && node.op == "If") return choose(node);
  if (standard && node.op == "Loop") return repeat(node);
  if (standard && node.op == "Scan") return scan(node);
  compute(node);
}

void Run::evaluate(const FileGraph& graph) {
  for (const FileNode& node : graph.nodes) {
    nodes_ += node.op == "Constant" ? 0 : 1;
    if (nodes_ > kMostEvaluated)
      fail_file(kImportOnnxWhere, node.label(), ": expected at most ", kMostEvaluated,
                " nodes, those of loops once a step, got more");
    guarded(node, [&] { evaluate(node); });
  }
}

std::vector<at::Tensor> Run::forward(const std::vector<at::Tensor>& inputs) {
  const FileGraph& graph = store_.model().graph;
  size_t next = 0;
  for (const FileValue& input : graph.inputs) {
    if (!store_.is_initializer(input.name)) slots_[input.name] = {.value = inputs.at(next++)};
  }
  evaluate(graph);
  std::vector<at::Tensor> results;
  FileNode end;
  end.op = "result";
  for (const FileValue& output : graph.outputs) {
    end.name = output.name;
    results.push_back(guarded(end, [&] { return tensor(output.name, end); }));
  }
  return results;
}

}  // namespace ulp::exchange::onnx_import
