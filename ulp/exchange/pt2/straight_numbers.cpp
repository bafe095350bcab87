#include "ulp/exchange/pt2/straight_numbers.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/interpreter.h"
#include "ulp/exchange/pt2/numbers.h"
#include "ulp/exchange/pt2/where.h"
#include "ulp/exchange/straight_values.h"

namespace ulp::exchange::pt2 {

namespace {

/// Names of numbers in an argument, however deep.
void add_names(const Json& json, std::set<std::string>& names) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      if (key == "as_name" && value.is_string()) names.insert(value.get<std::string>());
      add_names(value, names);
    }
  } else if (json.is_array()) {
    for (const Json& one : json) add_names(one, names);
  }
}

std::set<std::string> names_in(const ProgramNode& node) {
  std::set<std::string> names;
  for (const auto& [name, argument] : node.inputs) add_names(argument.value, names);
  return names;
}

/// Sums and products of straight numbers are straight.
bool may_bend(const std::string& function) {
  static const std::set<std::string> kStraight = {"add", "sub", "mul", "neg", "pos"};
  return !kStraight.contains(function.substr(function.rfind('.') + 1));
}

/// Whether a program computes with numbers what may bend; parts with a graph of their own are not looked
/// into.
bool has_suspects(const ProgramGraph& graph) {
  return std::ranges::any_of(graph.nodes, [](const ProgramNode& node) {
    const auto holds_graph = [](const auto& input) { return input.second.kind == "as_graph"; };
    return (is_number_function(node.target) && may_bend(node.target)) ||
           std::ranges::any_of(node.inputs, holds_graph);
  });
}

at::Tensor as_tensor(const c10::IValue& number) {
  if (number.isBool()) return at::scalar_tensor(number.toBool(), at::kBool);
  return number.isInt() ? at::scalar_tensor(number.toInt(), at::kLong)
                        : at::scalar_tensor(number.toDouble(), at::kDouble);
}

c10::IValue as_number(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
  return tensor.scalar_type() == at::kLong ? c10::IValue(tensor.item<int64_t>())
                                           : c10::IValue(tensor.item<double>());
}

/// The program runs twice for each axis.
void check_work(size_t axes, size_t calls) {
  constexpr size_t kMost = 100'000;
  if (axes * calls > kMost)
    fail_file(kImportPt2Where, "expected at most ", kMost,
              " functions of numbers for all free sizes together, got ", calls, " for each of ", axes);
}

/// One call at the three sizes of an axis.
void check(const std::array<const NumberCall*, 3>& calls, const FreeAxis& axis) {
  const NumberCall& call = *calls[0];
  const auto seen = [&](const auto& number) {
    return SeenValue{as_tensor(number(*calls[0])), as_tensor(number(*calls[1])),
                     as_tensor(number(*calls[2]))};
  };
  std::vector<SeenValue> given;
  for (size_t i = 0; i < call.arguments.size(); ++i)
    given.push_back(seen([&](const NumberCall& one) { return one.arguments.at(i); }));
  const SeenValue result = seen([](const NumberCall& one) { return one.result; });
  if (std::ranges::none_of(given, moves)) return;
  for (const int64_t size : probed_sizes(axis)) {
    const int64_t steps = axis.steps_to(size);
    std::vector<c10::IValue> arguments;
    for (const SeenValue& one : given) {
      const at::Tensor there = are_alike(one) ? extended(one, steps) : at::Tensor();
      if (!there.defined()) return;
      arguments.push_back(as_number(there));
    }
    c10::IValue found;
    try {
      found = number_function(call.target, arguments);
    } catch (const Error&) {
      continue;  // the program cannot take this size
    }
    if (!are_alike(result) || !agrees(as_tensor(found), extended(result, steps)))
      fail_file(kImportPt2Where, call.label,
                ": expected a number that follows the sizes of the inputs by a polynomial, got one that "
                "leaves it where ",
                axis.text_of(size), "; export the program with a fixed size");
  }
}

/// The numbers of the program's tensors as they are now, which runs of it write to in place.
class TensorsBefore {
 public:
  explicit TensorsBefore(const std::vector<std::pair<std::string, graph::Attribute>>& tensors)
      : tensors_(tensors), saved_(tensors.size()) {
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (tensors_[i].second.kind == graph::Attribute::Kind::buffer) save(i);
    }
  }
  ~TensorsBefore() {
    try {
      restore();
    } catch (const std::exception&) {
      // An error is on its way already: of the run, or of the first try to restore.
    }
  }
  TensorsBefore(const TensorsBefore&) = delete;
  TensorsBefore& operator=(const TensorsBefore&) = delete;

  /// Parameters are seldom written, and large: they are kept when a call is about to write to them.
  void before_write(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (!saved_[i].defined() && tensors_[i].second.tensor.is_alias_of(tensor)) save(i);
    }
  }

  /// Gives the tensors these numbers back.
  void restore() const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (saved_[i].defined()) tensors_[i].second.tensor.detach().copy_(saved_[i]);
    }
  }

 private:
  void save(size_t i) {
    const at::NoGradGuard no_grad;
    saved_[i] = tensors_[i].second.tensor.detach().clone();
  }

  const std::vector<std::pair<std::string, graph::Attribute>>& tensors_;
  std::vector<at::Tensor> saved_;
};

}  // namespace

std::set<std::string> needed_numbers(const ProgramGraph& graph) {
  std::set<std::string> needed;
  for (const ProgramArgument& output : graph.outputs) add_names(output.value, needed);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    std::set<std::string> made;
    for (const ProgramArgument& output : node->outputs) add_names(output.value, made);
    const bool read =
        std::ranges::any_of(made, [&](const std::string& name) { return needed.contains(name); });
    if (!is_check(node->target) && (read || !is_number_function(node->target))) needed.merge(names_in(*node));
  }
  return needed;
}

void check_straight_numbers(const Program& program,
                            const std::vector<std::pair<std::string, graph::Attribute>>& tensors,
                            const Inputs& inputs, int64_t most_bytes) {
  if (!has_suspects(program.graph)) return;
  const at::NoGradGuard no_grad;
  TensorsBefore before(tensors);
  const auto calls_at = [&](const std::vector<at::Tensor>& examples) {
    std::vector<NumberCall> calls;
    Interpreter interpreter(program, tensors, /*training=*/false, most_bytes);
    interpreter.record(calls, [&](const at::Tensor& written) { before.before_write(written); });
    interpreter.forward(examples);
    before.restore();
    return calls;
  };
  const std::vector<NumberCall> base = calls_at(inputs.examples);
  if (std::ranges::none_of(base, [](const NumberCall& call) { return may_bend(call.target); })) return;
  const std::vector<FreeAxis> axes = free_axes(inputs.examples, inputs.options);
  check_work(axes.size(), base.size());
  for (const FreeAxis& axis : axes) {
    const auto second = calls_at(zeros_along(inputs.examples, inputs.options, axis, 1));
    const auto third = calls_at(zeros_along(inputs.examples, inputs.options, axis, 2));
    for (size_t i = 0; i < base.size(); ++i) {
      if (may_bend(base[i].target)) check({&base[i], &second.at(i), &third.at(i)}, axis);
    }
  }
}

}  // namespace ulp::exchange::pt2
