#include "ulp/lower/builder.h"

#include <algorithm>
#include <cstring>

#include "ulp/libtorch/data_types.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::Constant;
using runtime::DataType;
using runtime::Layout;
using runtime::Step;

Layout inner_layout(size_t rank) {
  return rank == 4 ? Layout::nhwc : Layout::plain;
}

const Value* Builder::resolve(const Value* value) const {
  for (auto at = aliases_.find(value); at != aliases_.end(); at = aliases_.find(value)) value = at->second;
  return value;
}

void Builder::alias(const Value* same, const Value* of) {
  aliases_[same] = of;
}

/// A tensor has as many rows for each item as its value.
void Builder::expect_rows(const Value& value, int32_t tensor) const {
  if (!value.meta || value.meta->sizes.empty()) return;
  const graph::SizeExpr& first = value.meta->sizes[0];
  const int64_t times = plan_.tensors[static_cast<size_t>(tensor)].times;
  if (first.constant() || first == graph::SizeExpr{times, 1, 0}) return;
  unsupported(*value.producer, "expected '", value.name, "' to have ", times, times == 1 ? " row" : " rows",
              " for each item of the batch, as what it is made of");
}

void Builder::bind(const Value* value, int32_t tensor) {
  expect_rows(*value, tensor);
  tensors_[resolve(value)].push_back(tensor);
}

void Builder::bind_instead(const Value* value, int32_t tensor) {
  expect_rows(*value, tensor);
  tensors_[resolve(value)] = {tensor};
}

bool Builder::bound(const Value* value) const {
  return tensors_.contains(resolve(value)) || is_view(value);
}

void Builder::bind_view(const Value* value, StridedView view) {
  views_.insert_or_assign(resolve(value), std::move(view));
}

void Builder::bind_bits(const Value* signs, int32_t tensor) {
  bits_[resolve(signs)] = tensor;
}

int32_t Builder::bits_of(const Node& reader, const Value* signs) const {
  const auto found = bits_.find(resolve(signs));
  if (found == bits_.end()) unsupported(reader, "expected signs of the same engine, got '", signs->name, "'");
  return found->second;
}

bool Builder::is_view(const Value* value) const {
  return views_.contains(resolve(value));
}

StridedView Builder::view_of(const Node& reader, const Value* value) const {
  if (const auto view = views_.find(resolve(value)); view != views_.end()) return view->second;
  form_of(reader, value);
  const int32_t tensor = tensors_.at(resolve(value)).front();
  return whole_view(tensor, plan_.tensors[static_cast<size_t>(tensor)]);
}

StridedView Builder::laid_out(const Node& reader, const StridedView& view) {
  const int32_t tensor = emit_view(reader, view, Layout::plain, reader.output()->name + ".plain");
  return whole_view(tensor, plan_.tensors[static_cast<size_t>(tensor)]);
}

/// The one that costs nothing, else the inner one.
Layout Builder::layout_of_view(const StridedView& view) const {
  const size_t rank = view.dims.size();
  const bool whole = plan_.tensors[static_cast<size_t>(view.tensor)].times == 1;
  if ((rank != 4 && rank != 5) || !whole || !lowering::shape_of(view)) return Layout::plain;
  const Layout other = rank == 4 ? Layout::plain : Layout::nhwc;
  for (const Layout layout : {inner_layout(rank), other}) {
    if (leaves_order(move_of(view, layout), plan_.tensors[static_cast<size_t>(view.tensor)])) return layout;
  }
  return inner_layout(rank);
}

Layout Builder::layout_of(const Node& reader, const Value* value) const {
  const size_t rank = lowering::shape_of(reader, *value).size();
  return rank == 5 ? form_of(reader, value).layout : inner_layout(rank);
}

int32_t Builder::items_of(int32_t tensor) {
  const runtime::TensorInfo info = plan_.tensors[static_cast<size_t>(tensor)];
  if (info.times == 1) return tensor;
  const auto [at, fresh] = items_.try_emplace(tensor, -1);
  if (!fresh) return at->second;
  Step step{.op = runtime::Op::regroup, .name = info.name + ".items", .inputs = {tensor}};
  step.output = add_tensor(step.name, {info.type, Layout::plain, info.scale, info.zero_point},
                           {runtime::kBatch, runtime::element_count(info, 1)});
  plan_.steps.push_back(std::move(step));
  return items_[tensor] = plan_.steps.back().output;
}

int32_t Builder::emit_rows(int32_t tensor, int64_t joined, const std::string& name, int64_t kept) {
  const runtime::TensorInfo info = plan_.tensors[static_cast<size_t>(tensor)];
  const auto batch = static_cast<int64_t>(runtime::batch_dimension(info).value());
  const auto begin = info.shape.begin();
  std::vector<int64_t> shape(begin, begin + kept);
  shape.push_back(runtime::kBatch);
  shape.insert(shape.end(), begin + batch + joined + 1, info.shape.end());
  const auto product = [&](int64_t from, int64_t to) {
    int64_t size = 1;
    for (int64_t d = from; d < to; ++d) size *= begin[d];
    return size;
  };
  Step step{.op = runtime::Op::regroup, .name = name, .inputs = {tensor}};
  step.attributes = runtime::RegroupAttributes{joined, kept};
  const int64_t outer = product(kept, batch);
  step.output = add_tensor(name, {info.type, Layout::plain, info.scale, info.zero_point}, std::move(shape),
                           outer * product(batch + 1, batch + 1 + joined));
  plan_.tensors.back().outer = outer;
  plan_.steps.push_back(std::move(step));
  return plan_.steps.back().output;
}

int32_t Builder::emit_view(const Node& reader, const StridedView& whole, Layout layout,
                           const std::string& name) {
  if (has_rows(whole)) {
    const int32_t rows =
        emit_rows(emit_view(reader, rows_apart(whole), Layout::plain, name + ".rows"), 1, name);
    Form form = this->form(rows);
    form.layout = layout;
    return layout == Layout::plain ? rows : convert(rows, form, "");
  }
  StridedView view = whole;
  view.tensor = items_of(view.tensor);
  const std::optional<std::vector<int64_t>> shape = lowering::shape_of(view);
  if (!shape) unsupported(reader, "expected the batch to stay dimension 0, with nothing before it");
  const runtime::TensorInfo held = plan_.tensors[static_cast<size_t>(view.tensor)];
  runtime::MoveAttributes attributes = move_of(view, layout);
  if (leaves_order(attributes, held) && held.shape == *shape && held.layout == layout) return view.tensor;
  const Form form{held.type, layout, held.scale, held.zero_point};
  Step step{.op = runtime::Op::move, .name = name, .inputs = {view.tensor}};
  step.attributes = std::move(attributes);
  return emit(std::move(step), name, form, *shape);
}

int32_t Builder::emit_view_as(const Node& reader, const StridedView& view, const Form& wanted,
                              const std::string& name) {
  int32_t tensor = emit_view(reader, view, wanted.layout, name);
  if (form(tensor) == wanted) return tensor;
  if (form(tensor).type != DataType::f32 && wanted.type != DataType::f32)
    tensor = convert(tensor, {DataType::f32, wanted.layout}, "");
  return convert(tensor, wanted, "");
}

Form Builder::form(int32_t tensor) const {
  const runtime::TensorInfo& info = plan_.tensors[static_cast<size_t>(tensor)];
  return {info.type, info.layout, info.scale, info.zero_point};
}

Form Builder::form_of(const Node& reader, const Value* value) const {
  const auto at = tensors_.find(resolve(value));
  const bool held = at != tensors_.end() && !at->second.empty();
  if (!held && is_view(value)) {
    const StridedView& view = views_.at(resolve(value));
    Form viewed = form(view.tensor);
    viewed.layout = layout_of_view(view);
    return viewed;
  }
  if (!held) unsupported(reader, "'", value->name, "' does not come from the model's inputs");
  return form(at->second.front());
}

int32_t Builder::as(const Node& reader, const Value* value, const Form& wanted, const std::string& name) {
  form_of(reader, value);
  std::vector<int32_t>& held = tensors_[resolve(value)];
  const auto find = [&](const Form& one) {
    const auto at = std::ranges::find_if(held, [&](int32_t tensor) { return form(tensor) == one; });
    return at == held.end() ? -1 : *at;
  };
  if (const int32_t tensor = find(wanted); tensor >= 0) return tensor;
  int32_t from = held.empty() ? -1 : held.front();
  if (is_view(value)) {
    const StridedView& view = views_.at(resolve(value));
    Form viewed = form(view.tensor);
    viewed.layout = wanted.layout;
    from = find(viewed);
    if (from < 0) {
      from = emit_view(*value->producer, view, wanted.layout, value->name);
      held.push_back(from);
    }
    if (viewed == wanted) return from;
  }
  const Form made = form(from);
  if (made.type == DataType::i32 || made.type == DataType::i64) {
    unsupported(reader, "expected numbers, got the integers of '", value->name, "'");
  }
  // Between two 8-bit scales, and between bf16 and 8 bits, the way is f32; as in the graph.
  const bool by_float =
      made.type != DataType::f32 && wanted.type != DataType::f32 && made.type != wanted.type;
  const bool rescale = made.type == DataType::u8 && wanted.type == DataType::u8 &&
                       (made.scale != wanted.scale || made.zero_point != wanted.zero_point);
  const bool turned = wanted.type == DataType::i64 && made.layout != wanted.layout;
  if (by_float || rescale || turned) from = as(reader, value, {DataType::f32, wanted.layout});
  const int32_t tensor = convert(from, wanted, name);
  held.push_back(tensor);
  return tensor;
}

int32_t Builder::convert(int32_t tensor, const Form& wanted, std::string name) {
  const runtime::TensorInfo from = plan_.tensors[static_cast<size_t>(tensor)];
  if (name.empty()) {
    name = from.name + "." + runtime::to_string(wanted.type);
    if (wanted.layout != from.layout) name += wanted.layout == Layout::nhwc ? ".nhwc" : ".nchw";
  }
  return emit({.op = runtime::Op::convert, .name = name, .inputs = {tensor}}, name, wanted, from.shape);
}

int32_t Builder::add_tensor(const std::string& name, const Form& form, std::vector<int64_t> shape,
                            int64_t times) {
  std::string unique = name;
  for (int i = 2; !tensor_names_.insert(unique).second; ++i) unique = name + "#" + std::to_string(i);
  plan_.tensors.push_back({.name = unique,
                           .type = form.type,
                           .shape = std::move(shape),
                           .layout = form.layout,
                           .scale = form.scale,
                           .zero_point = form.zero_point,
                           .times = times});
  return static_cast<int32_t>(plan_.tensors.size() - 1);
}

int32_t Builder::emit(Step step, const std::string& name, const Form& form, std::vector<int64_t> shape) {
  const auto times_of = [&](int32_t input) { return plan_.tensors[static_cast<size_t>(input)].times; };
  const int64_t times = step.inputs.empty() ? 1 : times_of(step.inputs[0]);
  for (const int32_t input : step.inputs) {
    if (times_of(input) != times && node_ != nullptr)
      unsupported(*node_, "expected operands of as many rows for each item of the batch, got ", times,
                  " and ", times_of(input));
  }
  step.output = add_tensor(name, form, std::move(shape), times);
  plan_.steps.push_back(std::move(step));
  return plan_.steps.back().output;
}

int32_t Builder::batch_source() const {
  // The model's inputs come first, or what has their batch first.
  const auto found = std::ranges::find_if(plan_.tensors, [](const runtime::TensorInfo& one) {
    return !one.shape.empty() && one.shape[0] == runtime::kBatch && one.times == 1;
  });
  if (found == plan_.tensors.end()) {
    if (node_ != nullptr) unsupported(*node_, "expected an input with the batch, got none");
    fail("lower.lower", "expected an input with the batch, got none");
  }
  return static_cast<int32_t>(found - plan_.tensors.begin());
}

std::string Builder::constant(const std::string& name, Constant constant) {
  std::string unique = name;
  for (int i = 2;; ++i) {
    const auto [at, fresh] = plan_.constants.try_emplace(unique, constant);
    const Constant& held = at->second;
    if (fresh ||
        (held.type == constant.type && held.shape == constant.shape && held.bytes == constant.bytes)) {
      return unique;
    }
    unique = name + "#" + std::to_string(i);
  }
}

Constant make_constant(const at::Tensor& tensor, DataType type) {
  const at::Tensor dense = tensor.detach()
                               .to(at::kCPU)
                               .to(libtorch::scalar_type_of(type).value())
                               .contiguous(at::MemoryFormat::Contiguous);
  Constant constant{.type = type, .shape = dense.sizes().vec(), .bytes = {}};
  constant.bytes.resize(dense.nbytes());
  std::memcpy(constant.bytes.data(), dense.const_data_ptr(), dense.nbytes());
  return constant;
}

}  // namespace ulp::lowering
