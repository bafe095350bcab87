#include "ulp/runtime/plan/step_view.h"

#include <algorithm>
#include <cmath>

#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/kernel_args.h"

namespace ulp::runtime {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == kBatch ? "batch" : std::to_string(shape[i]);
  }
  return text + "]";
}

std::string shape_text(const TensorInfo& tensor) {
  std::string text = shape_text(tensor.shape);
  if (tensor.times == 1) return text;
  const size_t batch = text.find("batch");
  const int64_t inner = tensor.times / tensor.outer;
  if (inner > 1) text.insert(batch + 5, " * " + std::to_string(inner));
  if (tensor.outer > 1) text.insert(batch, std::to_string(tensor.outer) + " * ");
  return text;
}

StepView::StepView(const Plan& plan, const Step& step, size_t index, ConstantFacts* facts,
                   PrepackedWeights* packs)
    : plan_(plan), step_(step), index_(index), facts_(facts), packs_(packs) {
  if (step.op == Op::regroup) return;
  std::vector<int32_t> tensors = step.inputs;
  tensors.push_back(step.output);
  const auto known = [&](int32_t t) { return t >= 0 && static_cast<size_t>(t) < plan.tensors.size(); };
  for (const int32_t t : tensors) {
    if (known(t)) times_ = std::max(times_, plan.tensors[static_cast<size_t>(t)].times);
  }
  if (times_ == 1) return;
  for (const int32_t t : tensors) {
    rows_.push_back(known(t) ? plan.tensors[static_cast<size_t>(t)] : TensorInfo());
    rows_.back().times = 1;
  }
}

const Constant* StepView::constant(const char* role) const {
  const auto named = step_.constants.find(role);
  if (named == step_.constants.end()) return nullptr;
  return &plan_.constants.at(named->second);
}

void StepView::expect_type(const char* what, DataType got, DataType expected) const {
  if (got != expected) fail("expected ", what, " of type ", to_string(expected), ", got ", to_string(got));
}

void StepView::expect_activation_type(const TensorInfo& tensor) const {
  if (tensor.type != DataType::f32 && tensor.type != DataType::bf16 && tensor.type != DataType::u8) {
    fail("expected tensors of type f32, bf16 or u8, got ", to_string(tensor.type));
  }
}

void StepView::expect_image(const char* what, const TensorInfo& tensor) const {
  if (tensor.shape.size() != 4 || tensor.layout != Layout::nhwc) {
    fail("expected ", what, " of 4 dimensions and layout nhwc, got ", shape_text(tensor.shape), " ",
         to_string(tensor.layout));
  }
}

void StepView::expect_images(const char* what, const TensorInfo& tensor) const {
  if (tensor.shape.size() != 5 || tensor.layout != Layout::nhwc) expect_image(what, tensor);
}

void StepView::expect_constant(const char* role, DataType type, std::span<const int64_t> shape) const {
  const Constant* found = constant(role);
  if (found == nullptr) fail("expected a constant '", role, "', got none");
  if (found->type != type || !std::ranges::equal(found->shape, shape)) {
    fail("expected constant '", role, "' to be ", to_string(type), " ", shape_text(shape), ", got ",
         to_string(found->type), " ", shape_text(found->shape));
  }
}

void StepView::expect_scales(const char* role, std::span<const int64_t> shape) const {
  expect_constant(role, DataType::f32, shape);
  const std::string key = step_.constants.at(role) + '\n' + shape_text(shape);
  if (facts_ != nullptr && facts_->positive_scales.contains(key)) return;
  for (const float scale : floats_of(*constant(role))) {
    if (!(scale > 0) || !std::isfinite(scale)) {
      fail("expected '", role, "' to be finite and > 0, got ", scale);
    }
  }
  if (facts_ != nullptr) facts_->positive_scales.insert(key);
}

void StepView::expect_finite(const char* role, std::span<const int64_t> shape) const {
  expect_constant(role, DataType::f32, shape);
  const std::string key = step_.constants.at(role) + '\n' + shape_text(shape);
  if (facts_ != nullptr && facts_->finite.contains(key)) return;
  for (const float number : floats_of(*constant(role))) {
    if (!std::isfinite(number)) fail("expected '", role, "' to be finite, got ", number);
  }
  if (facts_ != nullptr) facts_->finite.insert(key);
}

void StepView::expect_no_nan(const char* role) const {
  const std::string key = step_.constants.at(role) + '\n' + shape_text(constant(role)->shape);
  if (facts_ != nullptr && facts_->without_nan.contains(key)) return;
  const std::vector<float> numbers = floats_of(*constant(role));
  const auto nan = std::ranges::find_if(numbers, [](float v) { return std::isnan(v); });
  if (nan != numbers.end()) fail("expected no NaN in '", role, "', got one at ", nan - numbers.begin());
  if (facts_ != nullptr) facts_->without_nan.insert(key);
}

void StepView::expect_same_numbers(const TensorInfo& input) const {
  const TensorInfo& out = output();
  expect_type("an output", out.type, input.type);
  if (out.scale != input.scale || out.zero_point != input.zero_point) {
    fail("expected the output to keep the input's scale ", input.scale, " and zero point ", input.zero_point,
         ", got ", out.scale, " and ", out.zero_point);
  }
}

void StepView::expect_same_kind(size_t i) const {
  expect_activation_type(input(i));
  expect_type("inputs of the output's type,", input(i).type, output().type);
  expect_same_layout(input(i));
  if (!std::isfinite(input(i).scale / output().scale)) {
    fail("the scale of input ", i, " is too far from the output's");
  }
}

void StepView::expect_curve_on_f32(Activation activation) const {
  if (is_smooth_activation(activation) && output().type != DataType::f32) {
    fail("expected an f32 output for ", to_string(activation), ", got ", to_string(output().type));
  }
}

void StepView::expect_plain_f32(size_t i, size_t rank) const {
  const TensorInfo& x = input(i);
  if (x.type != DataType::f32 || x.layout != Layout::plain || x.shape.size() < rank) {
    fail("expected input ", i, " to be f32 of at least ", rank, " dimensions and layout plain, got ",
         to_string(x.type), " ", shape_text(x.shape), " ", to_string(x.layout));
  }
}

void StepView::expect_plain_f32_output() const {
  if (output().type != DataType::f32 || output().layout != Layout::plain) {
    fail("expected an f32 output of layout plain, got ", to_string(output().type), " ",
         to_string(output().layout));
  }
}

void StepView::expect_plain_floats(size_t i, size_t rank) const {
  expect_plain_numbers(i, rank);
  if (input(i).type == DataType::u8) fail("expected input ", i, " to be f32 or bf16, got u8");
}

void StepView::expect_plain_numbers(size_t i, size_t rank) const {
  const TensorInfo& x = input(i);
  expect_activation_type(x);
  if (x.layout != Layout::plain || x.shape.size() < rank) {
    fail("expected input ", i, " to be of at least ", rank, " dimensions and layout plain, got ",
         shape_text(x.shape), " ", to_string(x.layout));
  }
}

void StepView::expect_plain_numbers_output() const {
  expect_activation_type(output());
  if (output().layout != Layout::plain) {
    fail("expected an output of layout plain, got ", to_string(output().layout));
  }
}

void StepView::expect_ids(size_t i) const {
  const TensorInfo& ids = input(i);
  if ((ids.type != DataType::i32 && ids.type != DataType::i64) || ids.layout != Layout::plain) {
    fail("expected ids of type i32 or i64 and layout plain, got ", to_string(ids.type), " ",
         to_string(ids.layout));
  }
}

void StepView::expect_ids_between(const char* role, int64_t low, int64_t high) const {
  const Constant& held = *constant(role);
  if (held.type != DataType::i32 && held.type != DataType::i64) {
    fail("expected constant '", role, "' of type i32 or i64, got ", to_string(held.type));
  }
  const auto find = [&] {
    const auto count = static_cast<int64_t>(held.bytes.size()) / element_bytes(held.type);
    std::pair<int64_t, int64_t> range{id_at(held.type, held.bytes.data(), 0), 0};
    range.second = range.first;
    for (int64_t i = 1; i < count; ++i) {
      const int64_t id = id_at(held.type, held.bytes.data(), i);
      range = {std::min(range.first, id), std::max(range.second, id)};
    }
    return range;
  };
  const std::string name = step_.constants.at(role) + '\n' + shape_text(constant(role)->shape);
  const bool known = facts_ != nullptr && facts_->ids.contains(name);
  const auto [least, largest] = known ? facts_->ids.at(name) : find();
  if (facts_ != nullptr) facts_->ids[name] = {least, largest};
  if (least >= low && largest < high) return;
  fail("expected ids in [", low, ", ", high, ") in constant '", role, "', got ",
       least < low ? least : largest);
}

size_t StepView::expect_plain_dimension(int64_t dim) const {
  const TensorInfo& x = input();
  if (x.layout != Layout::plain || dim < 1 || dim >= static_cast<int64_t>(x.shape.size())) {
    fail("expected an input of layout plain and more than ", dim, " dimensions, got ", shape_text(x.shape),
         " ", to_string(x.layout));
  }
  return static_cast<size_t>(dim);
}

void StepView::expect_copied(const TensorInfo& tensor) const {
  if (tensor.type != DataType::i32 && tensor.type != DataType::i64) expect_activation_type(tensor);
}

void StepView::expect_same_layout(const TensorInfo& input) const {
  if (output().layout != input.layout) {
    fail("expected an output of layout ", to_string(input.layout), ", got ", to_string(output().layout));
  }
}

}  // namespace ulp::runtime
