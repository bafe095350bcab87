#include "ulp/lower/pointwise.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <set>

#include "ulp/graph/passes/pattern.h"
#include "ulp/lower/attention.h"
#include "ulp/lower/ids.h"
#include "ulp/lower/match.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/pointwise_functions.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Graph;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

bool is_pointwise(const Node& node) {
  return find_pointwise(node) != nullptr;
}

namespace {

/// True when nodes are within the limits of a step.
bool fits(const std::vector<const Node*>& nodes) {
  int functions = 0, numbers = 0;
  std::set<const Value*> made, read;
  for (const Node* node : nodes) {
    const PointwiseLowering& row = *find_pointwise(*node);
    // The bits of integers take many functions, those of truth values one.
    const bool truth = node->op().starts_with("aten::bitwise_") && node->output()->meta &&
                       node->output()->meta->dtype == at::kBool;
    const Wrapping wrapping = wrapping_of(*node);
    // A quotient that is rounded down takes what floor_divide does.
    const bool whole = node->is("aten::div") && has_arg(*node, "rounding_mode");
    functions += (truth ? 1 : row.functions) + (whole ? 10 : 0) + wrapping.functions;
    numbers += (truth ? 0 : row.numbers) + (whole ? 3 : 0) + wrapping.numbers;
    made.insert(node->output());
    for (const graph::Argument& arg : node->args) {
      if (arg.is_value()) read.insert(arg.value);
      numbers += arg.kind == graph::Argument::Kind::literal && arg.literal.isScalar();
    }
  }
  const auto inputs = std::ranges::count_if(read, [&](const Value* value) { return !made.contains(value); });
  using Limits = runtime::PointwiseText;
  return functions <= Limits::kMaxFunctions && numbers <= Limits::kMaxNumbers && inputs <= Limits::kMaxInputs;
}

/// From the last node to the first: a node joins the region of all its readers.
class Finder {
 public:
  Finder(const Graph& graph, const std::unordered_set<const Node*>& taken) : graph_(graph), taken_(taken) {}

  std::vector<PointwiseRegion> run() {
    for (auto at = graph_.nodes().rbegin(); at != graph_.nodes().rend(); ++at) visit(**at);
    std::vector<PointwiseRegion> regions;
    for (Region& region : regions_) {
      std::ranges::reverse(region);
      regions.push_back({std::move(region)});
    }
    return regions;
  }

 private:
  using Region = std::vector<const Node*>;  // the result first

  void visit(const Node& node) {
    if (!is_pointwise(node) || taken_.contains(&node)) return;
    // The mask of tokens is a part of the attention that reads it.
    if (node.is("aten::ne") && feeds_attention(graph_, node.output())) return;
    size_t region = region_of_readers(node);
    if (region < regions_.size()) {
      regions_[region].push_back(&node);
      if (!fits(regions_[region])) {
        regions_[region].pop_back();
        region = regions_.size();
      }
    }
    if (region == regions_.size()) regions_.push_back({&node});
    region_of_[&node] = region;
  }

  /// The one region that reads the node, or a new one.
  size_t region_of_readers(const Node& node) const {
    const std::vector<Node*> users = graph_.users(node.output());
    if (users.empty()) return regions_.size();
    const auto first = region_of_.find(users[0]);
    if (first == region_of_.end()) return regions_.size();
    const bool all = std::ranges::all_of(users, [&](const Node* user) {
      const auto found = region_of_.find(user);
      return found != region_of_.end() && found->second == first->second;
    });
    const Node& result = *regions_[first->second].front();
    return all && same_sizes(*node.output(), *result.output()) ? first->second : regions_.size();
  }

  const Graph& graph_;
  const std::unordered_set<const Node*>& taken_;
  std::vector<Region> regions_;
  std::map<const Node*, size_t> region_of_;
};

/// The layout in which most of the work lies already: that of an image or a volume among the inputs that has
/// all elements.
Layout layout_of(Builder& builder, const Group& group, const std::vector<int64_t>& shape) {
  if (shape.size() != 4 && shape.size() != 5) return Layout::plain;
  const auto images = [&](const Node& node) {
    return std::ranges::any_of(node.reads(), [&](const Value* value) {
      return same_sizes(*value, *group.result) && builder.bound(value) &&
             builder.form_of(node, value).layout == Layout::nhwc;
    });
  };
  const bool nhwc = images(*group.root) ||
                    std::ranges::any_of(group.inner, [&](const Node* node) { return images(*node); });
  return nhwc ? Layout::nhwc : Layout::plain;
}

}  // namespace

std::vector<PointwiseRegion> pointwise_regions(const Graph& graph,
                                               const std::unordered_set<const Node*>& taken) {
  return Finder(graph, taken).run();
}

void lower_pointwise(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::vector<int64_t> shape = shape_of(node, *group.result);
  std::vector<const Node*> nodes = group.inner;
  nodes.push_back(&node);
  Step step = PointwiseWriter(builder, nodes).step();
  if (builder.plan().output_shape(step) != shape)
    unsupported(node, "expected operands that give its shape together");
  // bf16 does not hold all integers above 256.
  const bool whole = at::isIntegralType(group.result->meta->dtype, false);
  Form form{whole || read_as_f32(builder, group.result) ? DataType::f32 : builder.float_type(),
            layout_of(builder, group, shape)};
  if (group.quantize != nullptr) {
    const Layout layout = form.layout;
    form = quantizer_form(builder.graph(), *group.quantize);
    form.layout = layout;
  }
  emit_same(builder, group, std::move(step), form);
}

namespace {

/// Whether a node counts in integers, or compares them.
bool counts(const Node& node) {
  const auto whole = [](const Value* value) {
    return value->meta && at::isIntegralType(value->meta->dtype, /*includeBool=*/false);
  };
  if (whole(node.output())) return true;
  const std::vector<Value*> reads = node.reads();
  const bool truth = node.output()->meta && node.output()->meta->dtype == at::kBool;
  return truth && !reads.empty() && std::ranges::all_of(reads, whole);
}

/// Whether it compares with a number of fewer than 2^24: an integer beyond stays beyond it when it is
/// rounded.
bool compares_with_less(const Node& node) {
  const bool truth = node.output()->meta && node.output()->meta->dtype == at::kBool;
  const std::optional<double> with =
      has_arg(node, "other") && !node.arg("other").is_value() ? number_arg(node, "other") : std::nullopt;
  return truth && with && std::abs(*with) < static_cast<double>(kExactInFloat);
}

/// Steps compute in f32, which does not hold all integers beyond.
void expect_exact(const Node& node, double largest) {
  if (counts(node) && largest > static_cast<double>(kExactInFloat)) {
    unsupported(node, "expected integers of at most 2^24, which f32 holds, got ", std::setprecision(19),
                largest);
  }
}

bool is_whole(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false);
}

/// The type of integers to which LibTorch brings one whole number: the result's, or that of what it is
/// compared with.
std::optional<at::ScalarType> type_of_numbers(const Node& node) {
  const std::optional<graph::TensorMeta>& meta = node.output()->meta;
  if (!meta || is_whole(meta->dtype)) return meta ? std::optional(meta->dtype) : std::nullopt;
  if (meta->dtype != at::kBool) return std::nullopt;
  for (const Value* value : node.reads()) {
    if (value->meta && !value->meta->sizes.empty() && is_whole(value->meta->dtype)) return value->meta->dtype;
  }
  return std::nullopt;
}

/// Whole numbers in the type in which LibTorch computes.
at::Tensor in_type_of(const Node& node, const at::Tensor& tensor) {
  const std::optional<at::ScalarType> type = type_of_numbers(node);
  if (!type || !is_whole(tensor.scalar_type())) return tensor;
  // Several numbers are compared in a type that holds both sides.
  const bool compared = node.output()->meta->dtype == at::kBool;
  return compared && tensor.dim() > 0 ? tensor : tensor.to(*type);
}

}  // namespace

PointwiseWriter::PointwiseWriter(Builder& builder, std::vector<const Node*> inside)
    : builder_(builder), inside_(std::move(inside)) {}

Step PointwiseWriter::step() {
  for (const Node* node : inside_) {
    looks_at_all_ = may_grow(*node);
    const Operand result = wrapped(*this, *node, find_pointwise(*node)->write(*this, *node));
    made_.emplace_back(node->output(), result);
  }
  looks_at_all_ = false;
  const Node& node = *inside_.back();
  Operand last = made_.back().second;
  if (last.kind == Operand::Kind::number) {  // everywhere where the first argument has an element
    last = call(PointwiseOp::where, {value(node, value_arg(node, "self")), last, last});
  }
  const bool ends =
      last.kind == Operand::Kind::result && last.index + 1 == static_cast<int32_t>(program_.functions.size());
  if (!ends) call(PointwiseOp::add, {last, number(0)});
  if (step_.inputs.empty()) unsupported(node, "expected an operand that depends on the model's inputs");
  step_.name = node.name();
  step_.attributes = runtime::PointwiseAttributes{std::move(program_), exact_};
  return std::move(step_);
}

Operand PointwiseWriter::number(double value) const {
  return {.kind = Operand::Kind::number, .index = 0, .number = static_cast<float>(value)};
}

Operand PointwiseWriter::call(PointwiseOp op, std::initializer_list<Operand> operands) {
  program_.functions.push_back({op, operands});
  if (looks_at_all_) {
    const Operand made{.kind = Operand::Kind::result,
                       .index = static_cast<int32_t>(program_.functions.size() - 1),
                       .number = 0};
    program_.functions.push_back({PointwiseOp::exact, {made}});
  }
  return {.kind = Operand::Kind::result,
          .index = static_cast<int32_t>(program_.functions.size() - 1),
          .number = 0};
}

Operand PointwiseWriter::argument(const Node& node, std::string_view name) {
  const graph::Argument& arg = node.arg(name);
  if (arg.is_value()) return value(node, arg.value);
  const std::optional<double> literal = number_arg(node, name);
  if (!literal) unsupported(node, "expected '", name, "' to be a number or a tensor");
  const std::optional<at::ScalarType> type = type_of_numbers(node);
  const double own = type && graph::integer(arg) ? in_range_of(*type, *literal) : *literal;
  expect_exact(node, std::abs(own));
  return number(own);
}

Operand PointwiseWriter::value(const Node& node, const Value* value) {
  const auto made = std::ranges::find(made_, value, &std::pair<const Value*, Operand>::first);
  if (made != made_.end()) return made->second;
  const at::Tensor fixed = builder_.graph().attribute_tensor(value);
  if (fixed.defined()) return constant(node, fixed, value->producer->target());
  const Form form = builder_.form_of(node, value);
  const Operand read = input(builder_.as(node, value, form));
  const bool integers = form.type == DataType::i32 || form.type == DataType::i64;
  if (integers && counts(node) && !compares_with_less(node)) exact_ |= int64_t{1} << read.index;
  return read;
}

Operand PointwiseWriter::reshaped(const Node& node, std::string_view name, std::vector<int64_t> shape) {
  const at::Tensor fixed = builder_.graph().attribute_tensor(value_arg(node, name));
  if (!fixed.defined()) unsupported(node, "expected '", name, "' to be a parameter or a constant");
  return constant(node, fixed.reshape(shape), value_arg(node, name)->producer->target());
}

Operand PointwiseWriter::constant(const Node& node, const at::Tensor& given, const std::string& name) {
  if (given.numel() == 0) unsupported(node, "expected a constant with elements");
  const at::Tensor tensor = in_type_of(node, given);
  if (!at::isFloatingType(tensor.scalar_type()))
    expect_exact(node, tensor.to(at::kDouble).abs().max().item<double>());
  if (tensor.numel() == 1) return number(tensor.to(at::kDouble).item<double>());
  const std::string stored = builder_.constant(name, make_constant(tensor, DataType::f32));
  auto role = std::ranges::find(step_.constants, stored, &std::pair<const std::string, std::string>::second);
  if (role == step_.constants.end()) {
    role = step_.constants.emplace("c" + std::to_string(step_.constants.size()), stored).first;
  }
  if (tensor.dim() > static_cast<int64_t>(node.output()->meta.value().sizes.size()))
    unsupported(node, "expected a constant of no more dimensions than the result");
  return {.kind = Operand::Kind::constant, .index = std::stoi(role->first.substr(1)), .number = 0};
}

Operand PointwiseWriter::input(int32_t tensor) {
  const auto at = std::ranges::find(step_.inputs, tensor);
  const auto index = static_cast<int32_t>(at - step_.inputs.begin());
  if (at == step_.inputs.end()) step_.inputs.push_back(tensor);
  return {.kind = Operand::Kind::input, .index = index, .number = 0};
}

}  // namespace ulp::lowering
