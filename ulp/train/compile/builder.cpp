#include "ulp/train/compile/builder.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "ulp/graph/describe.h"

namespace ulp::train::compiled {

namespace {

/// Floats between rows in the arena: vectors fill them, and rows of a power of two do not fall on the same lines of the
/// nearest cache.
int64_t stride_for(int64_t width) {
  constexpr int64_t kLanes = 16, kUneven = 128;
  const int64_t stride = (width + kLanes - 1) / kLanes * kLanes;
  return stride % kUneven == 0 ? stride + kLanes : stride;
}

/// numerator / denominator in lowest terms, so that equal counts are equal numbers.
RowCount reduced(RowCount rows) {
  if (rows.numerator == 0) return {0, 1, rows.offset};
  const int64_t common = std::gcd(rows.numerator, rows.denominator);
  return {rows.numerator / common, rows.denominator / common, rows.offset};
}

kernels::PointLoss point_loss_of(LossFunction::Kind kind) {
  switch (kind) {
    case LossFunction::Kind::l1:
      return kernels::PointLoss::l1;
    case LossFunction::Kind::smooth_l1:
      return kernels::PointLoss::smooth_l1;
    case LossFunction::Kind::huber:
      return kernels::PointLoss::huber;
    case LossFunction::Kind::bce_logits:
      return kernels::PointLoss::bce_logits;
    default:
      return kernels::PointLoss::mse;
  }
}

}  // namespace

bool has_gradient_hooks(const at::Tensor& parameter) {
  namespace impl = torch::autograd::impl;
  if (impl::get_autograd_meta(parameter) == nullptr) return false;
  if (!impl::hooks(parameter).empty() || impl::post_acc_grad_hooks(parameter) != nullptr) return true;
  const auto accumulator = impl::try_get_grad_accumulator(parameter);
  return accumulator != nullptr && (!accumulator->pre_hooks().empty() || !accumulator->post_hooks().empty());
}

RowCount Builder::rows_of(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes,
                          size_t count) const {
  RowCount rows;
  for (size_t d = 0; d < count; ++d) {
    const graph::SizeExpr& size = sizes[d];
    if (!size.rest.terms.empty())
      refuse(node, "expected sizes that follow the batch alone, got a free dimension");
    if (size.constant()) {
      rows = rows.times(size.offset);
    } else if (rows.numerator == 0) {
      const int64_t factor = rows.offset;
      rows = RowCount{size.numerator, size.denominator, size.offset}.times(factor);
    } else {
      refuse(node, "expected one dimension that follows the batch, got two");
    }
  }
  return reduced(rows);
}

int Builder::shaped(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes, Home home) {
  const bool whole = sizes.empty() || !sizes.back().constant();
  const RowCount rows = rows_of(node, sizes, whole ? sizes.size() : sizes.size() - 1);
  const int made = make(rows, whole ? 1 : sizes.back().offset);
  PlanMatrix& matrix = built_.plan.matrices.back();
  matrix.home = home;
  if (home != Home::arena) matrix.stride = matrix.width;
  if (matrix.width == 0 || (rows.numerator == 0 && rows.offset == 0))
    refuse(node, "expected tensors with elements, got one without");
  return made;
}

int Builder::make(RowCount rows, int64_t width) {
  built_.plan.matrices.push_back({rows, width, stride_for(width), Home::arena, -1});
  needs_.push_back(false);
  return static_cast<int>(built_.plan.matrices.size()) - 1;
}

int Builder::make_like(int matrix) {
  const PlanMatrix like = at(matrix);
  return make(like.rows, like.width);
}

int Builder::make_alias(int matrix) {
  PlanMatrix alias = at(matrix);
  alias.alias_of = matrix;
  built_.plan.matrices.push_back(alias);
  needs_.push_back(needs_gradient(matrix));
  const int made = static_cast<int>(built_.plan.matrices.size()) - 1;
  if (const ImageSize* image = image_of(matrix); image != nullptr) images_[made] = *image;
  return made;
}

int Builder::make_alias(int matrix, RowCount rows, int64_t width) {
  if (at(matrix).home != Home::outside)
    fail(kCompileWhere, "expected a matrix whose rows have nothing in between, got one of the arena");
  built_.plan.matrices.push_back({rows, width, width, Home::outside, matrix});
  needs_.push_back(false);
  return static_cast<int>(built_.plan.matrices.size()) - 1;
}

int Builder::make_of_any_type(const graph::Node& node, const graph::Value& value) {
  const bool counts = value.meta && (value.meta->dtype == at::kBool || value.meta->dtype == at::kLong);
  return counts ? shaped(node, value.meta->sizes, Home::arena) : make(node, value);
}

int Builder::make(const graph::Node& node, const graph::Value& value) {
  if (!value.meta) refuse(node, "expected a graph that knows its sizes, got none");
  if (value.meta->dtype != at::kFloat) refuse(node, "expected results of float32, got ", value.meta->dtype);
  return shaped(node, value.meta->sizes, Home::arena);
}

void Builder::set(const graph::Value& value, int matrix) {
  matrices_[&value] = matrix;
}

void Builder::defer(const graph::Node& node, const graph::Value& value, std::function<void()> make) {
  if (node.no_grad) return make();  // whose results are held
  deferred_[&value] = std::move(make);
}

bool Builder::has_shape(const graph::Node& node, const graph::Value& value, int matrix) const {
  if (!value.meta || value.meta->sizes.empty() || !value.meta->sizes.back().constant()) return false;
  const auto& sizes = value.meta->sizes;
  return at(matrix).width == sizes.back().offset && at(matrix).rows == rows_of(node, sizes, sizes.size() - 1);
}

void Builder::set_reshaped(const graph::Node& node, int matrix) {
  const int made = make_of_any_type(node, *node.output());
  if (alike(matrix, made)) return set(*node.output(), matrix);
  emit({.op = Op::reshape, .out = made, .a = matrix});
  set_needs_gradient(made, needs_gradient(matrix));
  set(*node.output(), made);
  on_backward(made, [this, matrix](int gradient) {
    contribute(matrix, false, [&](int out, bool) { emit({.op = Op::reshape, .out = out, .a = gradient}); });
  });
}

bool Builder::is_product_alone(int matrix) {
  const Instruction* writer = last_writer(matrix);
  return writer != nullptr && at(matrix).alias_of < 0 && !gradients_.contains(matrix) &&
         (writer->op == Op::forward_product || writer->op == Op::packed_product) &&
         writer->finish == kernels::ProductFinish::none && read_once(matrix);
}

bool Builder::read_once(int matrix) const {
  const int memory = built_.plan.root(matrix);
  const auto shares = [&](const graph::Value* value) {
    const auto found = matrices_.find(value);
    return found != matrices_.end() && built_.plan.root(found->second) == memory;
  };
  // Each view has read one of the values before it.
  int reads = 1;
  for (const auto& [value, own] : matrices_) reads -= shares(value) ? 1 : 0;
  for (const auto& node : graph_.nodes()) {
    for (const graph::Value* read : node->reads()) reads += shares(read) ? 1 : 0;
  }
  return reads == 1;
}

int Builder::found_matrix(const graph::Node& node, const graph::Argument& argument) {
  const graph::Argument* chosen = &argument;
  while (chosen->kind == graph::Argument::Kind::by_mode) chosen = &chosen->items[training_ ? 1 : 0];
  if (!chosen->is_value()) refuse(node, "expected a tensor as an argument, got a number or a list");
  auto found = matrices_.find(chosen->value);
  if (const auto made = deferred_.find(chosen->value); found == matrices_.end() && made != deferred_.end()) {
    made->second();
    found = matrices_.find(chosen->value);
  }
  if (found == matrices_.end())
    refuse(node, "expected '", chosen->value->name, "' to be a tensor of float32, got another one");
  return found->second;
}

int Builder::matrix(const graph::Node& node, const graph::Argument& argument) {
  const int found = found_matrix(node, argument);
  const auto weight = outside_of_.find(found);
  if (weight != outside_of_.end() && built_.outside[weight->second].channels_last)
    refuse(node, "expected '", built_.outside[weight->second].name, "' contiguous, got it channels-last");
  if (image_of(found) == nullptr) return found;
  const graph::Argument* chosen = &argument;
  while (chosen->kind == graph::Argument::Kind::by_mode) chosen = &chosen->items[training_ ? 1 : 0];
  return row_major(node, *chosen->value, found);
}

int Builder::matrix(const graph::Node& node, std::string_view argument) {
  return matrix(node, node.arg(argument));
}

int Builder::padded(int matrix) {
  if (at(matrix).home == Home::arena) return matrix;
  const auto found = padded_of_.find(matrix);
  if (found != padded_of_.end()) return found->second;
  const int made = make_like(matrix);
  set_needs_gradient(made, needs_gradient(matrix));
  emit({.op = Op::copy, .out = made, .a = matrix, .columns = at(matrix).width});
  const int64_t width = at(matrix).width;
  on_backward(made, [this, matrix, width](int gradient) {
    contribute(matrix, true, [&](int out, bool adds) {
      emit({.op = Op::copy, .out = out, .a = gradient, .adds = adds, .columns = width});
    });
  });
  padded_of_[matrix] = made;
  return made;
}

int Builder::padded(const graph::Node& node, std::string_view argument) {
  return padded(matrix(node, argument));
}

int Builder::outside(const graph::Node& node, std::string_view argument) {
  const graph::Argument& given = node.arg(argument);
  if (given.is_none()) return -1;
  const int found = matrix(node, given);
  if (at(found).home != Home::outside)
    refuse(node, "expected '", argument, "' to be a parameter or buffer, got a computed tensor");
  return found;
}

void Builder::pass_integers(const graph::Node& node, std::string_view argument) {
  integers_[node.output()] = integers(node, argument);
}

bool Builder::is_integers(const graph::Node& node, std::string_view argument) const {
  const graph::Argument& given = node.arg(argument);
  return given.is_value() && integers_.contains(given.value);
}

std::vector<graph::SizeExpr> Builder::sizes(const graph::Node& node, std::string_view argument) const {
  const graph::Argument& given = node.arg(argument);
  if (!given.is_value()) refuse(node, "expected a tensor for '", argument, "', got a number or a list");
  return sizes_of(node, *given.value);
}

std::vector<graph::SizeExpr> Builder::sizes_of(const graph::Node& node, const graph::Value& value) const {
  std::vector<graph::SizeExpr> sizes;
  if (const at::Tensor held = graph_.attribute_tensor(&value); held.defined()) {
    for (const int64_t size : held.sizes()) sizes.push_back({.offset = size});
    return sizes;
  }
  if (!value.meta) refuse(node, "expected a graph that knows its sizes, got none");
  return value.meta->sizes;
}

std::optional<double> Builder::constant(const graph::Node& node, std::string_view argument) const {
  const graph::Argument& given = node.arg(argument);
  if (given.kind == graph::Argument::Kind::literal) return number(node, argument);
  if (!given.is_value() || given.value->producer->kind() != graph::Node::Kind::attribute) return std::nullopt;
  const graph::Attribute* held = graph_.find_attribute(given.value->producer->target());
  if (held->kind != graph::Attribute::Kind::constant || held->tensor.dim() != 0) return std::nullopt;
  return held->tensor.item().toDouble();
}

int Builder::integers(const graph::Node& node, std::string_view argument) const {
  const graph::Argument& given = node.arg(argument);
  const auto found = given.is_value() ? integers_.find(given.value) : integers_.end();
  if (found == integers_.end())
    refuse(node, "expected '", argument, "' to be an input of int64, got another value");
  return found->second;
}

const c10::IValue& Builder::literal(const graph::Node& node, std::string_view argument) const {
  const graph::Argument* given = &node.arg(argument);
  while (given->kind == graph::Argument::Kind::by_mode) given = &given->items[training_ ? 1 : 0];
  if (given->kind != graph::Argument::Kind::literal)
    refuse(node, "expected a constant for '", argument, "', got a value or a size");
  return given->literal;
}

double Builder::number(const graph::Node& node, std::string_view argument) const {
  const c10::IValue& value = literal(node, argument);
  if (value.isDouble()) return value.toDouble();
  if (value.isInt()) return static_cast<double>(value.toInt());
  if (value.isBool()) return value.toBool() ? 1.0 : 0.0;
  refuse(node, "expected a number for '", argument, "', got ", value.tagKind());
}

bool Builder::flag(const graph::Node& node, std::string_view argument) const {
  const graph::Argument& given = node.arg(argument);
  if (given.kind == graph::Argument::Kind::training) return training_ != given.inverted;
  return number(node, argument) != 0;
}

Instruction& Builder::emit(Instruction one) {
  built_.plan.instructions.push_back(one);
  return built_.plan.instructions.back();
}

Instruction* Builder::last_writer(int matrix) {
  if (built_.plan.instructions.empty()) return nullptr;
  Instruction& last = built_.plan.instructions.back();
  return last.out == matrix ? &last : nullptr;
}

void Builder::on_backward(int of, std::function<void(int)> rule) {
  if (needs_gradient(of)) rules_.emplace_back(of, std::move(rule));
}

int Builder::gradient_for_outside(int matrix) {
  OutsideTensor& of = built_.outside[outside_of_.at(matrix)];
  if (of.gradient < 0) {
    const PlanMatrix like = at(matrix);
    of.gradient = make(like.rows, like.width);
    built_.plan.matrices.back().home = Home::outside;
    built_.plan.matrices.back().stride = like.stride;
  }
  return of.gradient;
}

void Builder::contribute(int to, bool can_add, const std::function<void(int, bool)>& write) {
  if (!needs_gradient(to)) return;
  const auto found = gradients_.find(to);
  if (found == gradients_.end()) {
    const int made = outside_of_.contains(to) ? gradient_for_outside(to) : make_like(to);
    write(made, false);
    gradients_[to] = made;
    return;
  }
  const bool borrowed = borrowed_.erase(to) > 0;
  if (can_add && !borrowed) return write(found->second, true);
  const int part = make_like(to);
  write(part, false);
  if (borrowed) {
    const int sum = make_like(to);
    emit({.op = Op::add_scaled, .out = sum, .a = found->second, .b = part, .p = {1.0F}});
    found->second = sum;
    return;
  }
  if (at(found->second).home == Home::arena) {
    emit({.op = Op::add_scaled, .out = found->second, .a = found->second, .b = part, .p = {1.0F}});
  } else {
    emit({.op = Op::copy, .out = found->second, .a = part, .adds = true, .columns = at(part).width});
  }
}

void Builder::pass_on(int to, int gradient, float scale) {
  if (scale == 1.0F && needs_gradient(to) && !gradients_.contains(to) && at(to).home == Home::arena) {
    gradients_[to] = gradient;
    borrowed_.insert(to);
    return;
  }
  const int64_t width = at(to).width;
  contribute(to, scale == 1.0F, [&](int out, bool adds) {
    if (scale == 1.0F) {
      emit({.op = Op::copy, .out = out, .a = gradient, .adds = adds, .columns = width});
    } else {
      emit({.op = Op::value,
            .out = out,
            .a = gradient,
            .function = kernels::Differentiable::affine,
            .p = {scale, 0}});
    }
  });
}

void Builder::add_bound(const graph::Node& node, int input, int64_t classes, RowCount rows) {
  built_.bounds.push_back({input, classes, node.name(), rows});
}

void Builder::add_inputs() {
  built_.batch_range = graph_.batch_range;
  size_t index = 0;
  for (const graph::Value* value : graph_.inputs()) {
    const graph::Node& node = *value->producer;
    StepInput& input = built_.inputs.emplace_back();
    input.name = value->name;
    input.batch_dim = index < graph_.batch_dims.size() ? graph_.batch_dims[index] : 0;
    if (!value->meta) refuse(node, "expected inputs with sizes, got none");
    input.sizes = value->meta->sizes;
    if (input.batch_dim > 0)
      refuse(node, "expected the batch to be the first dimension, got ", input.batch_dim);
    if (value->meta->dtype == at::kLong) {
      input.integers = true;
      integers_[value] = static_cast<int>(index);
    } else if (value->meta->dtype == at::kFloat) {
      const int given = shaped(node, input.sizes, Home::input);
      input.matrix = given;
      if (input.sizes.size() == 4) {  // images are copied by whoever reads them, in the order that it wants
        set(*value, given);
        ++index;
        continue;
      }
      const int made = make_like(given);
      emit({.op = Op::copy, .out = made, .a = given, .columns = at(given).width});
      set(*value, made);
    } else {
      refuse(node, "expected inputs of float32 or int64, got ", value->meta->dtype);
    }
    ++index;
  }
}

void Builder::add_attributes() {
  for (const auto& node : graph_.nodes()) {
    if (node->kind() != graph::Node::Kind::attribute) continue;
    const graph::Attribute* attribute = graph_.find_attribute(node->target());
    const at::Tensor& tensor = attribute->tensor;
    if (tensor.scalar_type() != at::kFloat) continue;  // whoever reads it is refused
    const bool channels_last =
        tensor.dim() == 4 && !tensor.is_contiguous() && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
    if (!tensor.device().is_cpu() || !(tensor.is_contiguous() || channels_last))
      refuse(*node, "expected parameters and buffers that are contiguous on the CPU, got one on ",
             tensor.device(), " with strides ", tensor.strides());
    const auto same = std::ranges::find_if(
        built_.outside, [&](const OutsideTensor& other) { return other.tensor.is_same(tensor); });
    if (same != built_.outside.end()) {  // one parameter under two names
      set(*node->output(), same->matrix);
      continue;
    }
    std::vector<graph::SizeExpr> sizes;
    for (const int64_t size : tensor.sizes()) sizes.push_back({.offset = size});
    const int made = shaped(*node, sizes, Home::outside);
    const bool of_optimizer = attribute->kind == graph::Attribute::Kind::parameter && trained_(tensor);
    set_needs_gradient(made, of_optimizer && tensor.requires_grad());
    if (needs_gradient(made) && has_gradient_hooks(tensor))
      refuse(*node, "expected parameters without hooks, got one with a hook on its gradient");
    outside_of_[made] = built_.outside.size();
    built_.outside.push_back({.matrix = made,
                              .name = node->target(),
                              .tensor = tensor,
                              .sizes = tensor.sizes().vec(),
                              .of_optimizer = of_optimizer,
                              .requires_grad = tensor.requires_grad(),
                              .channels_last = channels_last});
    set(*node->output(), made);
  }
}

void Builder::add_call(const graph::Node& node) {
  if (training_ ? node.eval_only : node.train_only) return;
  if (node.kind() == graph::Node::Kind::module) refuse(node, "expected operators, got a module");
  if (node.autocast && node.autocast->enabled) refuse(node, "expected fp32, got a call under autocast");
  const OpRule rule = find_rule(node);
  if (rule == nullptr) refuse(node, "expected an operator that a compiled step knows, got ", node.op());
  rule(*this, node);
  if (!node.no_grad) return;
  for (const auto& value : node.outputs()) {
    const auto found = matrices_.find(value.get());
    if (found == matrices_.end() || !needs_gradient(found->second)) continue;
    const int held = make_alias(found->second);
    set_needs_gradient(held, false);
    set(*value, held);
  }
}

void Builder::add_loss(const LossFunction& loss) {
  const graph::Node& node = *graph_.output_node();
  const graph::Argument& result = node.args.at(0);
  if (!result.is_value()) refuse(node, "expected one tensor as the result, got a list or a tuple");
  int x = padded(matrix(node, result));
  built_.result = x;
  if (!result.value->meta) refuse(node, "expected a result with sizes, got none");
  built_.sizes = result.value->meta->sizes;
  // A class for each pixel: the rows of images that lie channels-last.
  const bool by_pixel =
      loss.kind == LossFunction::Kind::cross_entropy && !loss.any_rows && built_.sizes.size() == 4;
  if (by_pixel) x = pixels(node, result);
  built_.plan.forward_end = built_.plan.instructions.size();
  built_.plan.result = built_.result;
  if (!needs_gradient(x))
    fail(kCompileWhere,
         "expected a result that depends on a parameter of the optimizer, got one that does not");
  if (loss.kind == LossFunction::Kind::none) {
    if (at(x).width != 1 || !(at(x).rows == RowCount{}))
      refuse(node, "expected one number as the result, as no loss was given, got a larger tensor");
    emit({.op = Op::take_loss, .a = x});
    contribute(x, false, [&](int out, bool) { emit({.op = Op::fill, .out = out, .p = {1.0F}}); });
    return;
  }
  if (!(loss.beta > 0)) fail(kCompileWhere, "expected beta > 0, got ", loss.beta);
  if (loss.takes_classes()) {
    const size_t dimensions = built_.sizes.size();
    if (!by_pixel &&
        (dimensions < 2 || (dimensions > 2 && !loss.any_rows) || !built_.sizes.back().constant()))
      refuse(node, "expected logits of two dimensions for cross_entropy, or images without weights, got ",
             dimensions, "; token_cross_entropy takes more");
    // Those of the logits but for the classes: the last dimension of tokens, else the second one.
    built_.class_sizes = built_.sizes;
    built_.class_sizes.erase(loss.any_rows ? built_.class_sizes.end() - 1 : built_.class_sizes.begin() + 1);
    built_.bounds.push_back({kTargets, at(x).width, "targets", at(x).rows});
    const Instruction cross_entropy{.op = Op::cross_entropy, .a = x, .mean = loss.mean, .classes = kTargets};
    if (is_product_alone(x)) {  // logits of texts are the largest matrix: the gradient takes their memory
      Instruction in_place = cross_entropy;
      in_place.out = make_alias(x);
      emit(in_place);
      gradients_[x] = in_place.out;
      return;
    }
    contribute(x, false, [&](int out, bool) {
      Instruction one = cross_entropy;
      one.out = out;
      emit(one);
    });
    return;
  }
  built_.targets = make_like(x);
  built_.plan.matrices.back().home = Home::input;
  built_.plan.matrices.back().stride = at(x).width;
  contribute(x, false, [&](int out, bool) {
    emit({.op = Op::point_loss,
          .out = out,
          .a = x,
          .b = built_.targets,
          .loss = point_loss_of(loss.kind),
          .p = {static_cast<float>(loss.beta)},
          .mean = loss.mean});
  });
}

BuiltStep Builder::build(const LossFunction& loss) {
  if (!graph_.free.empty())
    fail(kCompileWhere, "expected no free dimension beside the batch, got '", graph_.free.front().name, "'");
  if (graph_.output_node() == nullptr) fail(kCompileWhere, "expected a graph with a result, got none");
  add_inputs();
  add_attributes();
  for (const auto& node : graph_.nodes()) {
    if (node->kind() == graph::Node::Kind::call || node->kind() == graph::Node::Kind::module) add_call(*node);
  }
  add_loss(loss);
  check_running_statistics();
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    const auto gradient = gradients_.find(rule->first);
    if (gradient != gradients_.end()) rule->second(gradient->second);
  }
  built_.plan.update_begin = built_.plan.instructions.size();
  for (const Instruction& one : updates_) emit(one);
  return std::move(built_);
}

namespace {

const std::map<std::string, OpRule>& all_rules() {
  static const std::map<std::string, OpRule> rules = [] {
    std::map<std::string, OpRule> made;
    for (const auto& table :
         {layer_rules(), mask_rules(), pointwise_rules(), shape_rules(), reduction_rules(), move_rules(),
          attention_rules(), integer_rules(), recurrent_rules(), conv_rules(), norm_rules(), pool_rules()}) {
      for (const OpRow& row : table) made.emplace(row.op, row.rule);
    }
    return made;
  }();
  return rules;
}

}  // namespace

std::vector<std::string> compiled_ops() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : all_rules()) names.push_back(name);
  return names;
}

OpRule find_rule(const graph::Node& node) {
  const auto& rules = all_rules();
  const auto found = rules.find(node.target());
  return found == rules.end() ? nullptr : found->second;
}

}  // namespace ulp::train::compiled
