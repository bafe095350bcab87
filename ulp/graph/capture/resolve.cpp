#include "ulp/graph/capture/resolve.h"

#include <torch/types.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/call_site.h"
#include "ulp/graph/capture/data_sizes.h"
#include "ulp/graph/capture/functionalize.h"
#include "ulp/graph/capture/schema.h"

namespace ulp::graph {

namespace {

bool starts_with_any(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.substr(0, prefix.size()) == prefix; });
}

std::string_view op_of(const TracedCall& call) {
  std::string_view target = call.target;
  return target.substr(0, target.find('.'));
}

/// Ops that look at no element of their tensor arguments.
bool reads_shape_only(const TracedCall& call) {
  std::string_view op = op_of(call);
  return op.substr(op.size() > 5 ? op.size() - 5 : 0) == "_like" || starts_with_any(op, {"aten::new_"});
}

/// Ops that look at no element of their first argument, whose numbers they replace.
bool overwrites_first(const TracedCall& call) {
  const std::string_view op = op_of(call);
  return op == "aten::fill" || op == "aten::zero" || op == "aten::copy" ||
         starts_with_any(op,
                         {"aten::fill_", "aten::zero_", "aten::copy_", "aten::normal_", "aten::uniform_",
                          "aten::bernoulli_", "aten::random_", "aten::exponential_", "aten::log_normal_"});
}

/// What the numbers of a tensor follow, the last of it that holds.
enum class Origin : uint8_t {
  constants,
  buffers,  ///< that no call writes: they are the same in every run
  data      ///< inputs, parameters, buffers that a call writes, random numbers
};

/// A tensor is read whose memory was written through a view.
struct StaleRead {
  const void* memory;
  std::string text;
};

class Resolver {
 public:
  Resolver(const Trace& trace, const Subject& subject)
      : trace_(trace), subject_(subject), written_(written_memory()) {
    for (size_t i = 0; i < subject.attributes.size(); ++i) {
      const auto& [kind, tensor] = subject.attributes[i].second;
      const bool fixed = kind != Attribute::Kind::parameter && !written_.contains(memory_key(tensor));
      if (!known(tensor))
        bind(tensor, {ValueKey::Kind::attribute, static_cast<int32_t>(i), 0},
             fixed ? Origin::buffers : Origin::data);
    }
    for (size_t i = 0; i < trace.inputs.size(); ++i) {
      bind(trace.inputs[i], {ValueKey::Kind::input, static_cast<int32_t>(i), 0}, Origin::data);
    }
  }

  Resolved run() {
    for (size_t i = 0; i < trace_.calls.size(); ++i) visit(static_cast<int32_t>(i));
    int32_t leaf = 0;
    refuse_custom(trace_.custom_result, "the result of forward");
    for_each_tensor(trace_.result, [&](const at::Tensor& tensor) {
      out_.result.push_back(read(tensor, -1, leaf++, "the result of forward", true));
    });
    return std::move(out_);
  }

 private:
  struct State {
    Candidates keys;
    int32_t stale_by = -1;  ///< the first call that changed its memory through another tensor
    Origin origin = Origin::constants;
    bool unwritten = false;  ///< allocated by empty; no recorded op has filled it
  };
  struct Memory {
    std::vector<at::Tensor> members;
    Origin origin = Origin::constants;
    bool frozen = false;  ///< became a constant
  };

  /// `name`: of the function, empty for none.
  void refuse_custom(const std::string& name, const std::string& what) const {
    if (name.empty()) return;
    require_no_custom("[graph.capture] " + what + " comes from the custom autograd function " + name +
                      ", which cannot be captured");
  }

  /// What infers only needs no gradients, and what LibTorch differentiates is compared later.
  void require_no_custom(const std::string& text) const {
    if (!subject_.infers_only && !subject_.differentiates_custom) throw CustomFunction(text);
  }

  bool known(const at::Tensor& tensor) const { return states_.count(tensor.unsafeGetTensorImpl()); }
  State& state(const at::Tensor& tensor) { return states_.at(tensor.unsafeGetTensorImpl()); }
  Memory& memory(const at::Tensor& tensor) { return memories_[memory_key(tensor)]; }

  std::unordered_set<const void*> written_memory() const {
    std::unordered_set<const void*> written;
    for (const TracedCall& call : trace_.calls) {
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        const c10::AliasInfo* alias = call.schema->arguments()[i].alias_info();
        if (alias == nullptr || !alias->isWrite()) continue;
        for_each_tensor(call.inputs[i], [&](const at::Tensor& tensor) {
          if (tensor.defined()) written.insert(memory_key(tensor));
        });
      }
    }
    return written;
  }

  State& bind(const at::Tensor& tensor, ValueKey key, Origin origin) {
    State& fresh = states_[tensor.unsafeGetTensorImpl()];
    fresh = {{key}, -1, origin, false};
    Memory& held = memory(tensor);
    held.members.push_back(tensor);
    held.origin = std::max(held.origin, origin);
    return fresh;
  }

  std::string describe(const Candidates& keys) const {
    const ValueKey& key = keys.back();
    switch (key.kind) {
      case ValueKey::Kind::input:
        return "input " + std::to_string(key.index);
      case ValueKey::Kind::attribute:
        return "'" + subject_.attributes[key.index].first + "'";
      case ValueKey::Kind::call:
        return "the result of " + trace_.calls[key.index].target + " (call " + std::to_string(key.index) +
               ")";
      default:
        return "a constant";
    }
  }

  const Candidates& make_constant(const at::Tensor& tensor, int32_t call, int32_t leaf) {
    ValueKey key{ValueKey::Kind::constant, call, leaf};
    out_.constants[key] = tensor;
    memory(tensor).frozen = true;
    states_[tensor.unsafeGetTensorImpl()] = {{key}, -1, Origin::constants, false};
    return state(tensor).keys;
  }

  /// torch::zeros and its like hand out a shallow copy of what the recorded operator returned, and data() one
  /// of a parameter or a buffer.
  void adopt_copy(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return;
    auto found = memories_.find(memory_key(tensor));
    if (found == memories_.end()) return;
    std::vector<at::Tensor> members = found->second.members;
    for (auto other = members.rbegin(); other != members.rend(); ++other) {
      const State& original = state(*other);
      bool twin = other->sizes() == tensor.sizes() && other->strides() == tensor.strides() &&
                  other->storage_offset() == tensor.storage_offset() && other->dtype() == tensor.dtype();
      const ValueKey::Kind kind = original.keys.back().kind;
      const bool named = kind == ValueKey::Kind::call || kind == ValueKey::Kind::attribute;
      if (!twin || original.stale_by >= 0 || !named) continue;
      if (other->requires_grad()) {
        fail("graph.capture", "the model took the data of ", describe(original.keys),
             " out of autograd with data(); use detach()");
      }
      State adopted = original;
      // Numbers of a buffer that no call writes are the same in every run as long as nobody else writes it.
      if (kind == ValueKey::Kind::attribute && !written_.contains(memory_key(tensor)))
        adopted.origin = Origin::buffers;
      states_[tensor.unsafeGetTensorImpl()] = adopted;
      memory(tensor).members.push_back(tensor);
      return;
    }
  }

  Candidates read(const at::Tensor& tensor, int32_t call, int32_t leaf, const std::string& reader,
                  bool elements) {
    if (!tensor.defined()) return {};
    if (!known(tensor)) adopt_copy(tensor);
    if (!known(tensor)) {
      bind(tensor, {ValueKey::Kind::constant, call, leaf}, Origin::constants);
      return make_constant(tensor, call, leaf);
    }
    State& seen = state(tensor);
    if (seen.stale_by >= 0) {
      // torch::tensor({1, 2}) fills a tensor through views: what depends on nothing is a constant.
      const bool constant = memory(tensor).origin == Origin::constants;
      if (constant && (!subject_.keeps_written_constants || !elements))
        return elements ? make_constant(tensor, call, leaf) : seen.keys;
      throw StaleRead{memory_key(tensor), "in-place " + trace_.calls[seen.stale_by].target +
                                              " wrote through a view of " + describe(seen.keys) + ", which " +
                                              reader + " reads afterwards; use an out-of-place operation"};
    }
    // What no call writes at all, C++ fills by itself.
    const bool filled_by_calls = subject_.keeps_written_constants && written_.contains(memory_key(tensor));
    if (seen.unwritten && elements && !filled_by_calls) return make_constant(tensor, call, leaf);
    return seen.keys;
  }

  void visit(int32_t index) {
    const TracedCall& call = trace_.calls[index];
    if (call.written_back) return write_back(call, index);
    refuse_custom(call.custom_function,
                  "an argument of " + call.target + " (call " + std::to_string(index) + ")");
    ResolvedCall resolved;
    Origin origin = is_random(*call.schema) ? Origin::data : Origin::constants;
    const auto& wanted = call.schema->arguments();
    int32_t leaf = 0;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const c10::AliasInfo* alias = wanted[i].alias_info();
      bool written = alias && alias->isWrite();
      for_each_tensor(call.inputs[i], [&](const at::Tensor& tensor) {
        const bool replaced = i == 0 && overwrites_first(call);
        bool elements = !reads_shape_only(call) && !replaced && (written || !is_viewed(tensor, call));
        resolved.tensors.push_back(read(tensor, index, leaf++, call.target, elements));
        if (tensor.defined() && !reads_shape_only(call)) origin = std::max(origin, state(tensor).origin);
      });
    }
    check_numbers(call, index, origin, resolved.tensors);
    check_sizes(call, index);
    if (call.schema->is_mutable()) resolved.functional = write(call, index, origin);
    define_outputs(call, index, origin);
    out_.calls.push_back(std::move(resolved));
  }

  /// The tensor that is viewed is read as it was before the write, and becomes what the call gives.
  void write_back(const TracedCall& call, int32_t index) {
    const at::Tensor viewed = call.outputs[0].toTensor();
    if (!known(viewed)) adopt_copy(viewed);
    int32_t writer = index;
    while (trace_.calls[writer].written_back) --writer;
    // What an earlier write made stale does not hold the numbers that this one left alone.
    if (known(viewed) && state(viewed).stale_by < writer) read(viewed, index, 0, call.target, true);
    ResolvedCall resolved;
    int32_t leaf = 0;
    for (const c10::IValue& input : call.inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        const bool itself = tensor.is_same(viewed) && known(viewed);
        resolved.tensors.push_back(itself ? state(viewed).keys
                                          : read(tensor, index, leaf, call.target, true));
        ++leaf;
      });
    }
    State& made = state(viewed);
    made = {{{ValueKey::Kind::call, index, 0}}, -1, Origin::data, false};
    out_.calls.push_back(std::move(resolved));
  }

  /// Whether the call returns a view of the tensor, or the tensor itself, and so reads none of its elements.
  static bool is_viewed(const at::Tensor& tensor, const TracedCall& call) {
    bool viewed = false;
    for (const c10::IValue& output : call.outputs) {
      for_each_tensor(output, [&](const at::Tensor& other) {
        viewed |= tensor.defined() && other.defined() && memory_key(other) == memory_key(tensor);
      });
    }
    return viewed;
  }

  /// A number read from a tensor would be frozen into the graph.
  void check_numbers(const TracedCall& call, int32_t index, Origin origin,
                     const std::vector<Candidates>& read) {
    std::string_view op = op_of(call);
    bool equal = op == "aten::equal";
    if (origin == Origin::constants || !(equal || op == "aten::item" || op == "aten::_local_scalar_dense" ||
                                         op == "aten::is_nonzero" || op == "aten::allclose")) {
      return;
    }
    // The attention of the C++ frontend asks whether query and key are the same tensor; either answer gives the same
    // numbers.
    if (equal && (call.inputs[0].toTensor().is_same(call.inputs[1].toTensor()) || asked_by_attention(index)))
      return;
    std::set<size_t> sources;
    std::vector<bool> seen(out_.calls.size(), false);
    gather_attributes(read, sources, seen);
    // The same in every run as long as nobody writes the buffers, which the graph asks for.
    if (origin == Origin::buffers && take_conditions(sources)) return;
    fail({.code = ErrorCode::unsupported_op, .places = {{.op = call.target}}}, "graph.capture", call.target,
         place_of_call(subject_, trace_, static_cast<size_t>(index)),
         " reads a number from a tensor that depends on inputs, parameters, buffers or random numbers",
         listing(sources),
         "; data-dependent control flow or arguments cannot be captured: ", advice_for_numbers(sources));
  }

  /// Adds the attributes that values are computed from.
  void gather_attributes(const std::vector<Candidates>& values, std::set<size_t>& sources,
                         std::vector<bool>& seen) const {
    for (const Candidates& keys : values) {
      for (const ValueKey& key : keys) {
        const auto index = static_cast<size_t>(key.index);
        if (key.kind == ValueKey::Kind::attribute) sources.insert(index);
        if (key.kind != ValueKey::Kind::call || index >= seen.size() || seen[index]) continue;
        seen[index] = true;
        gather_attributes(out_.calls[index].tensors, sources, seen);
      }
    }
  }

  /// False for buffers that are too large to be compared in every run.
  bool take_conditions(const std::set<size_t>& buffers) {
    constexpr int64_t kMost = 64;
    int64_t numbers = 0;
    for (const size_t buffer : buffers) numbers += subject_.attributes[buffer].second.tensor.numel();
    if (numbers > kMost) return false;
    out_.conditions.insert(buffers.begin(), buffers.end());
    return true;
  }

  /// " (here 'a', 'b')", the first of them.
  std::string listing(const std::set<size_t>& attributes) const {
    constexpr size_t kNamed = 3;
    std::string text;
    size_t named = 0;
    for (const size_t attribute : attributes) {
      if (named++ < kNamed) text += (text.empty() ? "'" : ", '") + subject_.attributes[attribute].first + "'";
    }
    if (attributes.size() > kNamed) text += " and " + std::to_string(attributes.size() - kNamed) + " more";
    return text.empty() ? "" : " (here " + text + ")";
  }

  std::string advice_for_numbers(const std::set<size_t>& sources) const {
    for (const size_t source : sources) {
      const auto& [name, attribute] = subject_.attributes[source];
      if (attribute.kind != Attribute::Kind::buffer) continue;
      if (written_.contains(memory_key(attribute.tensor)))
        return "forward writes '" + name +
               "'; where it sets the module up once, run one batch before capture, and where it counts "
               "steps, count "
               "outside of forward or capture with Modes::eval_only";
    }
    return "keep the number a tensor, and choose with torch::where or a product with a mask";
  }

  /// A size of such a result, read by the model, would become a number of the graph, or one that follows the batch.
  void check_sizes(const TracedCall& call, int32_t index) {
    for (const at::Tensor& tensor : tensors_that_say_sizes(*call.schema, call.inputs)) {
      if (std::max(state(tensor).origin, memory(tensor).origin) < Origin::data) continue;
      fail("graph.capture", "expected results whose sizes follow the sizes of the inputs, got those of ",
           call.target, " (call ", index, ")", place_of_call(subject_, trace_, static_cast<size_t>(index)),
           ", whose sizes follow the data: the numbers of ", describe(state(tensor).keys), "; ",
           advice_for_sizes(*call.schema));
    }
  }

  /// Whether the next call that is no comparison reads the projection of an attention.
  bool asked_by_attention(int32_t index) {
    size_t next = static_cast<size_t>(index) + 1;
    while (next < trace_.calls.size() && op_of(trace_.calls[next]) == "aten::equal") ++next;
    bool found = false;
    for (size_t i = 0; next < trace_.calls.size() && i < trace_.calls[next].inputs.size(); ++i) {
      for_each_tensor(trace_.calls[next].inputs[i], [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !known(tensor) || state(tensor).keys[0].kind != ValueKey::Kind::attribute)
          return;
        const std::string& name = subject_.attributes[state(tensor).keys[0].index].first;
        for (const char* end : {"in_proj_weight", "in_proj_bias", "q_proj_weight"})
          found |= name.ends_with(end);
      });
    }
    return found;
  }

  /// Returns true if the op is to be replayed out of place, false if it updates an attribute.
  bool write(const TracedCall& call, int32_t index, Origin origin) {
    bool functional = false;
    int32_t ordinal = 0;
    const auto& wanted = call.schema->arguments();
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const c10::AliasInfo* alias = wanted[i].alias_info();
      if (!alias || !alias->isWrite() || call.inputs[i].isNone()) continue;
      if (!call.inputs[i].isTensor())
        fail({.code = ErrorCode::unsupported_op, .places = {{.op = call.target}}}, "graph.capture",
             call.target, " writes to a list of tensors, which cannot be captured");
      functional |=
          write_tensor(call.inputs[i].toTensor(), call, {ValueKey::Kind::call, index, ordinal++}, origin);
    }
    return functional;
  }

  bool write_tensor(const at::Tensor& tensor, const TracedCall& call, ValueKey result, Origin origin) {
    State& own = state(tensor);
    auto has = [](const State& s, ValueKey::Kind kind) {
      return std::any_of(s.keys.begin(), s.keys.end(), [&](const ValueKey& k) { return k.kind == kind; });
    };
    Memory& held = memory(tensor);
    if (has(own, ValueKey::Kind::constant) || held.frozen) {
      fail({.code = ErrorCode::unsupported_op, .places = {{.op = call.target}}}, "graph.capture", call.target,
           " writes to a tensor that is neither the result of an operation nor a registered buffer");
    }
    bool attribute = has(own, ValueKey::Kind::attribute);
    if (!attribute && !call.grad && tensor.requires_grad() && !tensor.is_leaf()) {
      require_no_custom(
          "[graph.capture] in-place " + call.target + " changed " + describe(own.keys) +
          " without autograd, which keeps the gradient of what it was; use an out-of-place operation");
    }
    for (const at::Tensor& other : held.members) {
      if (other.is_same(tensor) || !overlap(other, tensor)) continue;
      State& aliased = state(other);
      if (attribute && aliased.keys == own.keys) continue;  // data() of the same buffer
      bool outside = has(aliased, ValueKey::Kind::attribute) || has(aliased, ValueKey::Kind::input);
      if (outside && !attribute) {
        fail({.code = ErrorCode::unsupported_op, .places = {{.op = call.target}}}, "graph.capture",
             "in-place ", call.target, " wrote through a view of ", describe(aliased.keys),
             "; use an out-of-place operation");
      }
      if (aliased.stale_by < 0) aliased.stale_by = result.index;
      aliased.unwritten = false;
    }
    own.origin = std::max(own.origin, origin);
    held.origin = std::max(held.origin, origin);
    own.unwritten = false;
    if (attribute) return false;
    own.keys = {result};
    own.stale_by = -1;
    return true;
  }

  void define_outputs(const TracedCall& call, int32_t index, Origin origin) {
    int32_t element = 0;
    for (const c10::IValue& output : call.outputs) {
      if (!output.isTensor() && !output.isList()) ++element;
      for_each_tensor(output, [&](const at::Tensor& tensor) {
        define(tensor, call, {ValueKey::Kind::call, index, element++}, origin);
      });
    }
  }

  void define(const at::Tensor& tensor, const TracedCall& call, ValueKey key, Origin origin) {
    if (!tensor.defined()) return;
    if (known(tensor)) {
      if (!call.schema->is_mutable()) state(tensor).keys.push_back(key);
      return;
    }
    if (!call.grad && tensor.requires_grad() && !tensor.is_leaf()) {
      require_no_custom("[graph.capture] " + call.target +
                        " belongs to a custom autograd function, which cannot be captured");
    }
    bool unwritten = leaves_unwritten(call);
    for (const at::Tensor& other : memory(tensor).members) unwritten |= state(other).unwritten;
    int32_t stale_by = -1;  // a view of what is stale is stale
    for (const c10::IValue& input : call.inputs) {
      for_each_tensor(input, [&](const at::Tensor& other) {
        if (other.defined() && memory_key(other) == memory_key(tensor))
          stale_by = std::max(stale_by, state(other).stale_by);
      });
    }
    State& fresh = bind(tensor, key, origin);
    fresh.unwritten = unwritten;
    fresh.stale_by = stale_by;
  }

  const Trace& trace_;
  const Subject& subject_;
  const std::unordered_set<const void*> written_;  ///< by calls
  Resolved out_;
  std::unordered_map<const void*, State> states_;
  std::unordered_map<const void*, Memory> memories_;
};

}  // namespace

bool leaves_unwritten(const TracedCall& call) {
  return starts_with_any(op_of(call), {"aten::empty", "aten::new_empty"});
}

namespace {

/// The calls in a row without autograd whose last result has a gradient: forward of a custom function.
void differentiate_custom(Trace& trace) {
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    if (!of_custom_function(trace.calls[i])) continue;
    for (size_t j = i + 1; j > 0 && !trace.calls[j - 1].grad; --j) trace.calls[j - 1].grad = true;
  }
}

}  // namespace

bool of_custom_function(const TracedCall& call) {
  bool found = !call.custom_function.empty();
  for (const c10::IValue& output : call.outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      found |= !call.grad && tensor.defined() && tensor.requires_grad() && !tensor.is_leaf();
    });
  }
  return found;
}

Resolved resolve(Trace& trace, const Subject& subject) {
  if (subject.differentiates_custom) differentiate_custom(trace);
  std::unordered_set<const void*> written_back;
  for (;;) {
    try {
      return Resolver(trace, subject).run();
    } catch (const StaleRead& found) {
      if (!written_back.insert(found.memory).second || !write_back_views(trace, found.memory))
        fail("graph.capture", found.text);
    }
  }
}

}  // namespace ulp::graph
