#include "ulp/io/optimizer_state.h"

#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/optimizer_kinds.h"
#include "ulp/io/stored_fields.h"

namespace ulp::io {

namespace {

namespace optim = torch::optim;
using nlohmann::json;

/// Where the state of a parameter lies.
struct StatePlace {
  std::string prefix;  ///< "optimizer.3."
  const std::string& source;
};

/// Throws FileError unless the buffer is there and of the type.
void expect_buffer(const char* name, const at::Tensor& value, at::ScalarType type, const StatePlace& place) {
  const auto whole = [&] { return "'" + place.prefix + name + "' in '" + place.source + "'"; };
  if (!value.defined()) fail_file(kLoadCheckpointWhere, "expected ", whole(), ", which has none");
  if (value.scalar_type() != type)
    fail_file(kLoadCheckpointWhere, "expected ", type, " for ", whole(), ", got ", value.dtype());
}

/// The same of a buffer that may be absent.
void expect_type(const char* name, const at::Tensor& value, at::ScalarType type, const StatePlace& place) {
  if (value.defined()) expect_buffer(name, value, type, place);
}

/// The type that a moment of LibTorch's optimizers must have: its parameter's, or fp32 where the parameter
/// became 16 bits later.
at::ScalarType expected_type(const at::Tensor& moment, const at::Tensor& parameter) {
  const at::ScalarType type = parameter.scalar_type();
  const bool narrow = type == at::kHalf || type == at::kBFloat16;
  return narrow && moment.defined() && moment.scalar_type() == at::kFloat ? at::kFloat : type;
}

/// Adapters: one description of each optimizer serves saving and loading. `field` is called with a name and a
/// reference to a number, `buffer` with a name and a reference to a tensor; rule() has the limits of the
/// options, and check() throws FileError unless the next step can go on from a state.
struct Sgd {
  using Options = optim::SGDOptions;
  using State = optim::SGDParamState;
  static constexpr const char* kKind = "SGD";
  template <typename Field>
  static void options(Options& o, Field&& field) {
    field("lr", o.lr());
    field("momentum", o.momentum());
    field("dampening", o.dampening());
    field("weight_decay", o.weight_decay());
    field("nesterov", o.nesterov());
  }
  template <typename Field, typename Buffer>
  static void state(State& s, Field&&, Buffer&& buffer) {
    buffer("momentum_buffer", s.momentum_buffer());
  }
  static amp::UpdateRule rule(const Options& o) {
    return amp::SgdRule{.lr = o.lr(),
                        .momentum = o.momentum(),
                        .dampening = o.dampening(),
                        .weight_decay = o.weight_decay(),
                        .nesterov = o.nesterov()};
  }
  static void check(const State& s, const Options& o, const at::Tensor& parameter, const StatePlace& place) {
    const auto expect = o.momentum() != 0 ? expect_buffer : expect_type;
    expect("momentum_buffer", s.momentum_buffer(), expected_type(s.momentum_buffer(), parameter), place);
  }
};

template <typename OptionsType, typename StateType, typename Rule>
struct AdamLike {
  using Options = OptionsType;
  using State = StateType;
  template <typename Field>
  static void options(Options& o, Field&& field) {
    field("lr", o.lr());
    field("beta1", std::get<0>(o.betas()));
    field("beta2", std::get<1>(o.betas()));
    field("eps", o.eps());
    field("weight_decay", o.weight_decay());
    field("amsgrad", o.amsgrad());
  }
  template <typename Field, typename Buffer>
  static void state(State& s, Field&& field, Buffer&& buffer) {
    field("step", s.step());
    buffer("exp_avg", s.exp_avg());
    buffer("exp_avg_sq", s.exp_avg_sq());
    buffer("max_exp_avg_sq", s.max_exp_avg_sq());
  }
  static amp::UpdateRule rule(const Options& o) {
    return Rule{.lr = o.lr(),
                .beta1 = std::get<0>(o.betas()),
                .beta2 = std::get<1>(o.betas()),
                .eps = o.eps(),
                .weight_decay = o.weight_decay()};
  }
  static void check(const State& s, const Options& o, const at::Tensor& parameter, const StatePlace& place) {
    const at::ScalarType type = expected_type(s.exp_avg(), parameter);
    expect_buffer("exp_avg", s.exp_avg(), type, place);
    expect_buffer("exp_avg_sq", s.exp_avg_sq(), type, place);
    const auto expect = o.amsgrad() ? expect_buffer : expect_type;
    expect("max_exp_avg_sq", s.max_exp_avg_sq(), type, place);
  }
};
struct Adam : AdamLike<optim::AdamOptions, optim::AdamParamState, amp::AdamRule> {
  static constexpr const char* kKind = "Adam";
};
struct AdamW : AdamLike<optim::AdamWOptions, optim::AdamWParamState, amp::AdamWRule> {
  static constexpr const char* kKind = "AdamW";
};

/// Groups may have rules of different kinds: their names are fields, too.
struct Fused {
  using Options = amp::FusedOptions;
  using State = amp::FusedParamState;
  static constexpr const char* kKind = "ulp::amp::FusedOptimizer";
  template <typename Field>
  static void options(Options& o, Field&& field) {
    same(field, "rule", amp::name_of(o.rule));
    same(field, "masters", amp::to_string(o.masters));
    same(field, "moments", amp::to_string(o.moments));
    std::visit([&](auto& rule) { amp::for_each_field(rule, field); }, o.rule);
  }
  template <typename Field, typename Buffer>
  static void state(State& s, Field&& field, Buffer&& buffer) {
    field("step", s.step);
    bool blocks = false;
    amp::for_each_moment(s, [&](const amp::MomentTensors& moment) {
      buffer(moment.name, moment.values);
      buffer(moment.absmax_name, moment.absmax);
      blocks = blocks || moment.absmax.defined();
    });
    if (blocks) field("memory_order", s.memory_order);
    buffer("master", s.master);
  }
  static amp::UpdateRule rule(const Options& o) { return o.rule; }
  static void check(State s, const Options& o, const at::Tensor& parameter, const StatePlace& place) {
    const auto* sgd = std::get_if<amp::SgdRule>(&o.rule);
    bool blocks = false;
    amp::for_each_moment(s, [&](const amp::MomentTensors& moment) {
      blocks = blocks || moment.absmax.defined();
      const bool of_sgd = &moment.values == &s.momentum_buffer;
      const bool needed = sgd != nullptr ? of_sgd && sgd->momentum != 0 : !of_sgd;
      const auto expect = needed ? expect_buffer : expect_type;
      expect(moment.name, moment.values, amp::moment_type(o.moments, parameter.numel()), place);
      if (!moment.values.defined()) return;
      if (const std::string problem = amp::moment_problem(moment, o.moments, parameter); !problem.empty())
        fail_file(kLoadCheckpointWhere, problem, " for '", place.prefix, moment.name, "' in '", place.source,
                  "'");
      if (moment.absmax.defined() && moment.absmax.lt(0).any().item<bool>()) {
        fail_file(kLoadCheckpointWhere, "expected no negative number in '", place.prefix, moment.absmax_name,
                  "' in '", place.source, "', got some");
      }
    });
    if (const std::string order = amp::memory_order(parameter); blocks && s.memory_order != order) {
      fail_file(kLoadCheckpointWhere, "expected moments in the order of memory ", order, " for '",
                place.prefix, "' in '", place.source, "', got ", s.memory_order);
    }
    const auto master = amp::master_type(parameter.scalar_type(), o.masters);
    if (master) expect_buffer("master", s.master, *master, place);
  }

  /// What the codes of 8-bit second moments are; without the field they are bitsandbytes'.
  static constexpr const char* kSquareCodes = "square_codes";
  static void mark_codes(const State& s, const Options& o, json& fields) {
    if (has_square_codes(s, o)) fields[kSquareCodes] = "octaves";
  }
  static void renew_codes(State& s, const Options& o, const json& fields, const at::Tensor& parameter,
                          const StatePlace& place) {
    if (!has_square_codes(s, o)) return;
    if (!fields.contains(kSquareCodes)) return amp::renew_square_codes(s, parameter);
    if (fields.at(kSquareCodes) != "octaves")
      fail_file(kLoadCheckpointWhere, "expected codes 'octaves' in '", place.prefix, kSquareCodes, "' in '",
                place.source, "', got others");
  }

 private:
  static bool has_square_codes(const State& s, const Options& o) {
    return o.moments == amp::MomentFormat::int8 && s.exp_avg_sq_absmax.defined();
  }

  template <typename Field>
  static void same(Field&& field, const char* name, const std::string& own) {
    std::string stored = own;
    field(name, stored);
    if (stored != own)
      fail_file(kLoadCheckpointWhere, "expected ", name, " '", own, "' of the optimizer, got '", stored, "'");
  }
};

/// JSON has no infinities: a number it cannot hold must not become a file that cannot be read.
template <typename Value>
void put(json& fields, const char* name, const Value& value) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (!std::isfinite(value)) fail("io.save_checkpoint", "expected a finite ", name, ", got ", value);
  }
  fields[name] = value;
}

template <typename Kind>
json save_groups(const optim::Optimizer& optimizer, const std::string& prefix, NamedTensors& tensors) {
  json groups = json::array();
  int64_t index = 0;
  for (const auto& group : optimizer.param_groups()) {
    json options, states = json::array();
    auto copy = static_cast<const typename Kind::Options&>(group.options());
    Kind::options(copy, [&](const char* name, const auto& value) { put(options, name, value); });
    if (const std::string problem = amp::rule_problem(Kind::rule(copy)); !problem.empty())
      fail("io.save_checkpoint", problem, " in group ", groups.size(), " of the optimizer");
    for (const at::Tensor& parameter : group.params()) {
      const std::string place = prefix + std::to_string(index++) + '.';
      json fields = nullptr;  // no state before the first step
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found != optimizer.state().end()) {
        fields = json::object();
        auto state = static_cast<const typename Kind::State&>(*found->second);
        Kind::state(
            state, [&](const char* name, const auto& value) { put(fields, name, value); },
            [&](const char* name, const at::Tensor& value) {
              if (value.defined()) tensors.emplace_back(place + name, value);
            });
        if constexpr (std::is_same_v<Kind, Fused>) Fused::mark_codes(state, copy, fields);
      }
      states.push_back(std::move(fields));
    }
    groups.push_back({{"options", std::move(options)}, {"states", std::move(states)}});
  }
  return groups;
}

/// A buffer as the file has it, on the device, and in its memory layout where it has its shape; undefined
/// when absent. Codes of four bits and what blocks have in common have a shape of their own, of one
/// dimension.
at::Tensor load_buffer(const TensorFile& file, const std::string& name, const at::Tensor& parameter,
                       at::Device device, const std::string& source) {
  const at::Tensor* stored = file.find(name);
  if (stored == nullptr) return {};
  torch::NoGradGuard no_grad;
  const bool blocks = name.ends_with("_absmax") || (stored->scalar_type() == at::kByte && stored->dim() == 1);
  if (blocks && stored->sizes() != parameter.sizes())
    return stored->to(device, /*non_blocking=*/false, /*copy=*/true);
  if (stored->sizes() != parameter.sizes()) {
    fail_file(kLoadCheckpointWhere, "expected shape ", parameter.sizes(), " for '", name, "' in '", source,
              "', got ", stored->sizes());
  }
  at::Tensor buffer = torch::empty_like(
      parameter, parameter.options().dtype(stored->scalar_type()).device(device).requires_grad(false));
  buffer.copy_(*stored);
  return buffer;
}

/// The options of a group with the numbers of the file.
template <typename Kind>
typename Kind::Options load_options(const optim::OptimizerOptions& own, const json& stored, size_t group,
                                    const std::string& source) {
  auto options = static_cast<const typename Kind::Options&>(own);
  const std::string path = "groups[" + std::to_string(group) + "].";
  read_stored(stored, path, [&](auto&& field) {
    Kind::options(options, [&](const char* name, auto& value) { field({.name = name}, value); });
  });
  const std::string problem = amp::rule_problem(Kind::rule(options));
  if (!problem.empty())
    fail_file(kLoadCheckpointWhere, problem, " in group ", group, " of the optimizer in '", source, "'");
  return options;
}

/// The state of a parameter; its buffers are still to be checked.
template <typename Kind>
typename Kind::State load_state(const json& stored, const at::Tensor& parameter, const TensorFile& file,
                                const StatePlace& place) {
  typename Kind::State state;
  const at::Device device = Kind::kKind == std::string(Fused::kKind) ? at::kCPU : parameter.device();
  read_stored(stored, place.prefix,
              [&](auto&& field) {
                Kind::state(
                    state,
                    [&](const char* name, auto& value) {
                      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int64_t>) {
                        field(count_of(name, /*first=*/1), value);
                      } else {
                        field({.name = name}, value);
                      }
                    },
                    [&](const char* name, at::Tensor& value) {
                      value = load_buffer(file, place.prefix + name, parameter, device, place.source);
                    });
              },
              {Fused::kSquareCodes});
  return state;
}

template <typename Kind>
std::function<void()> load_groups(optim::Optimizer& optimizer, const json& groups, const std::string& prefix,
                                  const TensorFile& file, const std::string& source) {
  using States = std::vector<std::pair<void*, std::shared_ptr<typename Kind::State>>>;
  auto options = std::make_shared<std::vector<typename Kind::Options>>();
  auto states = std::make_shared<States>();
  auto& targets = optimizer.param_groups();
  if (groups.size() != targets.size()) {
    fail_file(kLoadCheckpointWhere, "expected ", targets.size(), " parameter groups in '", source, "', got ",
              groups.size());
  }
  int64_t index = 0;
  for (size_t g = 0; g < targets.size(); ++g) {
    const json& stored = groups[g].at("states");
    auto& parameters = targets[g].params();
    if (stored.size() != parameters.size()) {
      fail_file(kLoadCheckpointWhere, "expected ", parameters.size(), " parameters in group ", g, " of '",
                source, "', got ", stored.size());
    }
    options->push_back(load_options<Kind>(targets[g].options(), groups[g].at("options"), g, source));
    for (size_t p = 0; p < parameters.size(); ++p) {
      const StatePlace place{prefix + std::to_string(index++) + '.', source};
      if (stored[p].is_null()) continue;
      auto state =
          std::make_shared<typename Kind::State>(load_state<Kind>(stored[p], parameters[p], file, place));
      Kind::check(*state, options->back(), parameters[p], place);
      if constexpr (std::is_same_v<Kind, Fused>)
        Fused::renew_codes(*state, options->back(), stored[p], parameters[p], place);
      states->emplace_back(parameters[p].unsafeGetTensorImpl(), std::move(state));
    }
  }
  return [&optimizer, options, states] {
    for (size_t g = 0; g < options->size(); ++g) {
      static_cast<typename Kind::Options&>(optimizer.param_groups()[g].options()) = (*options)[g];
    }
    optimizer.state().clear();
    for (auto& [key, state] : *states)
      optimizer.state()[key] = std::make_unique<typename Kind::State>(*state);
  };
}

/// Calls visit with the adapter of the optimizer's kind.
template <typename Visit>
auto with_kind(const optim::Optimizer& optimizer, Visit&& visit) {
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) return visit(Sgd{});
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) return visit(AdamW{});
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr) return visit(Adam{});
  if (dynamic_cast<const amp::FusedOptimizer*>(&optimizer) != nullptr) return visit(Fused{});
  fail("io.checkpoint", "expected an optimizer of kind SGD, Adam, AdamW or FusedOptimizer");
}

}  // namespace

std::string optimizer_kind(const optim::Optimizer& optimizer) {
  return with_kind(optimizer, [](auto kind) { return std::string(decltype(kind)::kKind); });
}

std::string export_optimizer(const optim::Optimizer& optimizer, const std::string& prefix,
                             NamedTensors& tensors) {
  json text{{"kind", optimizer_kind(optimizer)}};
  text["groups"] = with_kind(
      optimizer, [&](auto kind) { return save_groups<decltype(kind)>(optimizer, prefix, tensors); });
  if (const auto* fused = dynamic_cast<const amp::FusedOptimizer*>(&optimizer)) text["seed"] = fused->seed();
  return text.dump();
}

std::function<void()> import_optimizer(optim::Optimizer& optimizer, const std::string& text,
                                       const std::string& prefix, const TensorFile& file,
                                       const std::string& source) {
  try {
    const json stored = as_kind(parse_json(text), optimizer_kind(optimizer));
    const auto kind = stored.at("kind").get<std::string>();
    if (kind != optimizer_kind(optimizer)) {
      fail_file(kLoadCheckpointWhere, "expected an optimizer of kind ", optimizer_kind(optimizer), " in '",
                source, "', got ", kind);
    }
    auto apply = with_kind(optimizer, [&](auto adapter) {
      return load_groups<decltype(adapter)>(optimizer, stored.at("groups"), prefix, file, source);
    });
    auto* fused = dynamic_cast<amp::FusedOptimizer*>(&optimizer);
    if (fused == nullptr) return apply;
    uint64_t seed = 0;
    read_stored(stored, "", [&](auto&& field) { field({.name = "seed"}, seed); }, {"kind", "groups"});
    return [apply, fused, seed] {
      apply();
      fused->set_seed(seed);
      fused->settle_state();
    };
  } catch (const json::exception& error) {
    fail_file(kLoadCheckpointWhere, "the optimizer's state in '", source,
              "' is not readable: ", error.what());
  } catch (const FieldProblem& problem) {
    fail_file(kLoadCheckpointWhere, "the optimizer's state in '", source,
              "' is not readable: ", problem.text);
  }
}

}  // namespace ulp::io
