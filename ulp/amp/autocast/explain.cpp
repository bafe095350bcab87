#include "ulp/amp/autocast/explain.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "ulp/amp/autocast/policy_scope.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/scope.h"
#include "ulp/graph/capture/trace.h"
#include "ulp/graph/graph_module.h"
#include "ulp/report/table.h"

namespace ulp::amp {

namespace {

using Paths = std::map<const c10::TensorImpl*, std::string>;

/// A call as it was seen, with the calls that it made.
struct SeenCall {
  std::string target;
  bool writes = false;                  ///< in-place or out=
  std::vector<at::ScalarType> in, out;  ///< floating and complex inputs; all results
  int64_t bytes = 0;                    ///< that a copy to another dtype read and wrote
  ActiveRule rule;
  std::string path;
  std::vector<std::unique_ptr<SeenCall>> calls;
};

struct State {
  SeenCall root;
  std::vector<SeenCall*> open = {&root};
  const Paths* paths = nullptr;
};

thread_local State* state = nullptr;

struct Frame : at::ObserverContext {
  ~Frame() override {
    if (state) state->open.pop_back();
  }
};

/// Boxed calls show the caller's whole stack; a call's own values are what lies on top.
template <typename Values>
std::span<const c10::IValue> top(const Values& values, size_t count) {
  return std::span(values.data(), values.size()).last(std::min<size_t>(count, values.size()));
}

void look_at_inputs(SeenCall& call, std::span<const c10::IValue> inputs) {
  std::optional<c10::DeviceType> device;
  for (const c10::IValue& input : inputs) {
    graph::for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (state->paths) {
        const auto found = state->paths->find(tensor.unsafeGetTensorImpl());
        if (found != state->paths->end() && call.path.empty()) call.path = graph::parent_path(found->second);
      }
      if (!tensor.is_floating_point() && !tensor.is_complex()) return;
      if (call.in.empty()) call.bytes = static_cast<int64_t>(tensor.nbytes());
      call.in.push_back(tensor.scalar_type());
      if (!device) device = tensor.device().type();
    });
  }
  call.rule = active_rule(call.target, device.value_or(c10::kCPU));
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  if (!state || !name) return nullptr;
  auto call = std::make_unique<SeenCall>();
  call->target = name->overload_name.empty() ? name->name : name->name + "." + name->overload_name;
  const auto schema = c10::Dispatcher::singleton().findSchema(*name);
  call->writes = schema && schema->schema().is_mutable();
  if (const graph::Node* node = graph::running_node()) call->path = node->scope;
  look_at_inputs(*call, top(function.inputs(), schema ? schema->schema().arguments().size() : 0));
  SeenCall& caller = *state->open.back();
  state->open.push_back(call.get());
  caller.calls.push_back(std::move(call));
  return std::make_unique<Frame>();
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (!state || !context) return;
  SeenCall& call = *state->open.back();
  int64_t written = 0;
  const auto name = function.operator_name();
  const auto schema = c10::Dispatcher::singleton().findSchema(*name);
  for (const c10::IValue& output : top(function.outputs(), schema ? schema->schema().returns().size() : 0)) {
    graph::for_each_tensor(output, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      call.out.push_back(tensor.scalar_type());
      written += static_cast<int64_t>(tensor.nbytes());
    });
  }
  const bool cast =
      call.target == "aten::_to_copy" && !call.in.empty() && !call.out.empty() && call.in[0] != call.out[0];
  call.bytes = cast ? call.bytes + written : 0;
}

/// Watches this thread while it lives.
class Watch {
 public:
  explicit Watch(State& watched) {
    if (state) fail("amp.explain", "expected no explain inside another one on the same thread");
    state = &watched;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Watch() {
    at::removeCallback(handle_);
    state = nullptr;
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  uint64_t handle_;
};

// --- from calls to rows -----------------------------------------------------------------------------------

bool listed(const SeenCall& call) {
  return call.rule.cast != Cast::leave;
}

bool calls_listed(const SeenCall& call) {
  return std::any_of(call.calls.begin(), call.calls.end(),
                     [](const auto& inner) { return listed(*inner) || calls_listed(*inner); });
}

void count_casts(const SeenCall& call, ExplainRow& row) {
  if (call.bytes > 0) {
    ++row.casts;
    row.cast_bytes += call.bytes;
  }
  for (const auto& inner : call.calls) count_casts(*inner, row);
}

at::ScalarType computed_in(const SeenCall& call) {
  const auto first = [](const SeenCall& c) { return c.in.empty() ? at::ScalarType::Undefined : c.in[0]; };
  if (!listed(call)) return first(call);
  if (call.rule.cast == Cast::fp32_set_opt_dtype) return call.out.empty() ? first(call) : call.out[0];
  // Autocast calls the same operator again with its inputs cast, or one beside it that takes a dtype.
  for (const auto& inner : call.calls) {
    if (inner->target == call.target) return first(*inner);
  }
  return call.out.empty() ? first(call) : call.out[0];
}

std::string reason(const SeenCall& call) {
  const bool is_cast = call.target.starts_with("aten::to.") || call.target == "aten::_to_copy";
  if (is_cast) return call.in != call.out ? "cast written in the model" : "no cast needed";
  if (!call.rule.autocast) return "autocast is off";
  if (call.in.empty()) return "no floating inputs";
  if (std::none_of(call.in.begin(), call.in.end(), castable)) {
    return call.in[0] == at::kDouble ? "fp64: left alone" : "complex: left alone";
  }
  if (call.writes) return "in-place or out=: left alone";
  switch (call.rule.cast) {
    case Cast::leave:
      return "not listed: follows its inputs";
    case Cast::widest:
      return "widest list: promotes";
    case Cast::fp32_set_opt_dtype:
      if (computed_in(call) != at::kFloat) return "asked for its own dtype: left alone";
      [[fallthrough]];
    default:
      return std::string(cast_name(call.rule.cast)) + " list";
  }
}

void add_rows(const SeenCall& call, const std::string& path, std::vector<ExplainRow>& rows) {
  for (const auto& inner : call.calls) {
    const std::string& where = inner->path.empty() ? path : inner->path;
    if (!listed(*inner) && calls_listed(*inner)) {
      add_rows(*inner, where, rows);
      continue;
    }
    ExplainRow row{.op = inner->target,
                   .path = where,
                   .in = inner->in,
                   .computed = computed_in(*inner),
                   .out = inner->out,
                   .reason = reason(*inner)};
    count_casts(*inner, row);
    rows.push_back(std::move(row));
  }
}

Explanation explain(const Paths& paths, const std::function<void()>& run) {
  State watched;
  watched.paths = &paths;
  {
    const Watch watch(watched);
    run();
  }
  Explanation result;
  add_rows(watched.root, "", result.rows);
  return result;
}

std::string text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    case at::kDouble:
      return "fp64";
    case at::ScalarType::Undefined:
      return "-";
    default:
      return c10::toString(dtype);
  }
}

std::string text(const std::vector<at::ScalarType>& dtypes) {
  std::string result;
  for (size_t i = 0; i < dtypes.size();) {
    size_t end = i;
    while (end < dtypes.size() && dtypes[end] == dtypes[i]) ++end;
    result += (result.empty() ? "" : ", ") + text(dtypes[i]);
    if (end - i > 1) result += " x" + std::to_string(end - i);
    i = end;
  }
  return result.empty() ? "-" : result;
}

}  // namespace

Explanation explain(const std::function<void()>& run) {
  return explain(Paths{}, run);
}

Explanation explain(const torch::nn::Module& root, const std::function<void()>& run) {
  Paths paths;
  for (const auto& item : root.named_parameters()) paths[item.value().unsafeGetTensorImpl()] = item.key();
  for (const auto& item : root.named_buffers()) paths[item.value().unsafeGetTensorImpl()] = item.key();
  return explain(paths, run);
}

Explanation explain(graph::GraphModule& module, const std::vector<at::Tensor>& inputs) {
  return explain(Paths{}, [&] { module.run(inputs); });
}

int64_t Explanation::casts() const {
  int64_t sum = 0;
  for (const ExplainRow& row : rows) sum += row.casts;
  return sum;
}

int64_t Explanation::cast_bytes() const {
  int64_t sum = 0;
  for (const ExplainRow& row : rows) sum += row.cast_bytes;
  return sum;
}

report::Table Explanation::table() const {
  report::Table table{.title = "What ran in which precision",
                      .columns = {{.name = "op"},
                                  {.name = "module"},
                                  {.name = "in"},
                                  {.name = "computed"},
                                  {.name = "out"},
                                  {.name = "casts", .decimals = 0},
                                  {.name = "cast", .unit = "KiB", .decimals = 1},
                                  {.name = "reason"}}};
  for (const ExplainRow& row : rows) {
    table.add_row({row.op, row.path, text(row.in), text(row.computed), text(row.out),
                   static_cast<double>(row.casts), static_cast<double>(row.cast_bytes) / 1024, row.reason});
  }
  return table;
}

std::string Explanation::to_json() const {
  const auto list = [](const std::vector<at::ScalarType>& dtypes) {
    nlohmann::json result = nlohmann::json::array();
    for (const at::ScalarType dtype : dtypes) result.push_back(text(dtype));
    return result;
  };
  nlohmann::json all = nlohmann::json::array();
  for (const ExplainRow& row : rows) {
    all.push_back({{"op", row.op},
                   {"path", row.path},
                   {"in", list(row.in)},
                   {"computed", text(row.computed)},
                   {"out", list(row.out)},
                   {"casts", row.casts},
                   {"cast_bytes", row.cast_bytes},
                   {"reason", row.reason}});
  }
  return nlohmann::json{{"rows", all}, {"casts", casts()}, {"cast_bytes", cast_bytes()}}.dump(2);
}

}  // namespace ulp::amp
