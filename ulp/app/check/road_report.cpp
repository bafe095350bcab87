#include "ulp/app/check/road_report.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>
#include <set>

#include "ulp/app/check/road_steps.h"
#include "ulp/app/model_io/model_signature.h"
#include "ulp/base/error.h"
#include "ulp/base/glob.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/nearest_names.h"
#include "ulp/graph/module_copy.h"
#include "ulp/report/format.h"

namespace ulp {

namespace {

constexpr const char* kRoadReport = "road_report";
constexpr const char* kTraining = "train";  ///< in fp32

/// Puts the state of the default generator back.
class KeepsRandomState {
 public:
  KeepsRandomState() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~KeepsRandomState() { generator_.set_state(state_); }
  KeepsRandomState(const KeepsRandomState&) = delete;
  KeepsRandomState& operator=(const KeepsRandomState&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// "x f32[N, 3, time]".
std::string road_value(const graph::Graph& graph, const graph::Value& value, int64_t input) {
  std::string text = value.name;
  if (!value.meta) return text;
  std::string sizes;
  for (size_t d = 0; d < value.meta->sizes.size(); ++d) {
    const graph::SizeExpr& size = value.meta->sizes[d];
    std::string name = size.constant()                    ? std::to_string(size.offset)
                       : size == graph::SizeExpr{1, 1, 0} ? "N"
                                                          : "?";
    for (const graph::DynamicDimension& free : graph.free) {
      const graph::DynamicDimension::InputDimension place{static_cast<size_t>(input),
                                                          static_cast<int64_t>(d)};
      if (input >= 0 && std::ranges::find(free.places, place) != free.places.end()) name = free.name;
    }
    sizes += (d == 0 ? "" : ", ") + name;
  }
  return text + " " + c10::toString(value.meta->dtype) + "[" + sizes + "]";
}

/// Names of nodes of the graph and where they are.
using NamedNodes = std::map<std::string, NodeLocation>;

NamedNodes named_nodes(const graph::Graph& graph) {
  NamedNodes names;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == graph::Node::Kind::call || node->kind() == graph::Node::Kind::module)
      names[node->name()] = {node->target(), node->name(), node->scope};
  }
  return names;
}

/// The nodes that a refusal names: as graph::describe() writes them (of graphs that passes made of the model,
/// too), else by a name in quotes that a node of the model has.
std::vector<NodeLocation> places_in(const std::string& text, const NamedNodes& names) {
  static const std::regex described(R"(([A-Za-z_]\w*::[\w.]+) '([^']+)'(?: in ([^\s:;,']+))?)"),
      quoted("'([^']+)'");
  std::vector<NodeLocation> places;
  const auto add = [&](const NodeLocation& place) {
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  };
  for (std::sregex_iterator at(text.begin(), text.end(), described), end; at != end; ++at) {
    const auto known = names.find((*at)[2].str());
    std::string module = (*at)[3].str();
    if (module.empty() && known != names.end()) module = known->second.module;
    add({(*at)[1].str(), (*at)[2].str(), module});
  }
  if (!places.empty()) return places;
  for (std::sregex_iterator at(text.begin(), text.end(), quoted), end; at != end; ++at) {
    const auto known = names.find((*at)[1].str());
    if (known != names.end()) add(known->second);
  }
  return places;
}

/// What an exception says; empty for none.
struct RoadRefusal {
  std::string text = {};
  std::vector<ErrorPlace> places = {};
};

template <typename Attempt>
RoadRefusal refusal_of(const Attempt& attempt) {
  try {
    attempt();
    return {};
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    return {error.what(), error.places()};
  } catch (const c10::Error& error) {
    return {report::first_line(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    return {error.what()};
  }
}

/// The nodes that stand in the way: those that the error has, else those that its text names.
std::vector<NodeLocation> stops_of(const RoadRefusal& refusal, const NamedNodes& names) {
  std::vector<NodeLocation> stops;
  for (const ErrorPlace& place : refusal.places) {
    if (place.op.empty()) continue;  // an input, or the result
    const auto known = names.find(place.node);
    const NodeLocation stop{
        place.op, place.node,
        place.module.empty() && known != names.end() ? known->second.module : place.module};
    if (std::ranges::find(stops, stop) == stops.end()) stops.push_back(stop);
  }
  return stops.empty() ? places_in(refusal.text, names) : stops;
}

RoadStep tried(const app::RoadTrial& trial, const app::RoadSetting& setting, const NamedNodes& names) {
  RoadStep step{.goal = trial.goal.name, .what = trial.goal.what, .says = {}, .stops = {}};
  const RoadRefusal refusal = refusal_of([&] {
    app::RoadOutcome outcome = trial.attempt(setting);
    step.says = std::move(outcome.says);
    step.left = std::move(outcome.left);
  });
  step.works = refusal.text.empty();
  if (step.works) return step;
  step.says = refusal.text;
  step.stops = stops_of(refusal, names);
  return step;
}

/// What the trials run on; a model that does not run has no results.
app::RoadSetting setting_of(const graph::GraphModule& model, const RoadOptions& options) {
  const at::NoGradGuard no_grad;
  app::RoadSetting setting{model, options.inputs, {}};
  if (setting.inputs.empty()) {
    const auto copy = graph::copy_of(model);
    copy->eval();
    setting.inputs = app::road_inputs(*copy, options.batch);
  } else {
    model.check_inputs(setting.inputs);
  }
  refusal_of([&] { setting.results = app::own_copy(setting)->forward_all(setting.inputs); });
  return setting;
}

void describe_model(const graph::GraphModule& model, RoadReport& report) {
  const graph::Graph& graph = model.graph();
  int64_t index = 0;
  for (const graph::Value* input : graph.inputs())
    report.inputs.push_back(road_value(graph, *input, index++));
  for (const graph::Value* result : app::results_of(graph))
    report.results.push_back(road_value(graph, *result, -1));
  report.nodes = std::ranges::count_if(
      graph.nodes(), [](const auto& node) { return node->kind() == graph::Node::Kind::call; });
  std::set<const void*> seen;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.kind == graph::Attribute::Kind::parameter &&
        seen.insert(attribute.tensor.unsafeGetTensorImpl()).second)
      report.parameters += attribute.tensor.numel();
  }
}

nlohmann::json place_to_json(const NodeLocation& place) {
  return {{"op", place.op}, {"node", place.node}, {"module", place.module}};
}

void print_place(std::ostream& out, const NodeLocation& place) {
  out << "      at " << place.op << (place.op.empty() ? "'" : " '") << report::escape_controls(place.node)
      << "'";
  if (!place.module.empty()) out << " in " << report::escape_controls(place.module);
  out << "\n";
}

}  // namespace

std::vector<RoadGoal> road_goals() {
  std::vector<RoadGoal> goals;
  for (const app::RoadTrial& trial : app::road_trials()) goals.push_back(trial.goal);
  return goals;
}

std::vector<RoadGoal> road_goals(const std::vector<std::string>& names) {
  const std::vector<RoadGoal> all = road_goals();
  const auto is_named = [&](const RoadGoal& goal, const std::string& name) {
    return matches_pattern(name == kTraining ? "train:fp32" : name, goal.name);
  };
  for (const std::string& name : names) {
    if (std::ranges::any_of(all, [&](const RoadGoal& goal) { return is_named(goal, name); })) continue;
    std::vector<std::string_view> known{kTraining};
    for (const RoadGoal& goal : all) known.push_back(goal.name);
    fail(kRoadReport, "expected goals of the road, got '", name, "'; the nearest are ",
         nearest_names(name, known));
  }
  std::vector<RoadGoal> wanted;
  for (const RoadGoal& goal : all) {
    if (names.empty() ||
        std::ranges::any_of(names, [&](const std::string& name) { return is_named(goal, name); }))
      wanted.push_back(goal);
  }
  return wanted;
}

const RoadStep* RoadReport::find(std::string_view goal) const {
  const auto found = std::ranges::find(steps, goal, &RoadStep::goal);
  return found == steps.end() ? nullptr : &*found;
}

bool RoadReport::works() const {
  return std::ranges::all_of(steps, &RoadStep::works);
}

std::string RoadReport::to_json() const {
  nlohmann::json json{
      {"model", {{"inputs", inputs}, {"results", results}, {"nodes", nodes}, {"parameters", parameters}}},
      {"steps", nlohmann::json::array()}};
  for (const RoadStep& step : steps) {
    nlohmann::json stops = nlohmann::json::array();
    for (const NodeLocation& place : step.stops) stops.push_back(place_to_json(place));
    json["steps"].push_back({{"goal", step.goal},
                             {"what", step.what},
                             {"works", step.works},
                             {"says", step.says},
                             {"stops", stops},
                             {"left", step.left}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& out, const RoadReport& report) {
  constexpr size_t kShown = 8, kNames = 21;
  const auto list = [&](const char* what, const std::vector<std::string>& values) {
    out << what;
    for (size_t i = 0; i < values.size(); ++i)
      out << (i == 0 ? " " : "; ") << report::escape_controls(values[i]);
    out << "\n";
  };
  list("takes", report.inputs);
  list("gives", report.results);
  out << report.nodes << " calls, " << report.parameters << " parameters\n";
  for (const RoadStep& step : report.steps) {
    out << (step.works ? "works  " : "stops  ") << step.goal
        << std::string(kNames - std::min(kNames, step.goal.size()), ' ') << "  "
        << report::escape_controls(step.works ? step.says : step.what) << "\n";
    if (!step.works) out << "      " << report::escape_controls(step.says) << "\n";
    for (size_t i = 0; i < std::min(kShown, step.stops.size()); ++i) print_place(out, step.stops[i]);
    for (size_t i = 0; i < std::min(kShown, step.left.size()); ++i)
      out << "      but: " << report::escape_controls(step.left[i]) << "\n";
    const size_t all = step.stops.size() + step.left.size(),
                 shown = std::min(kShown, step.stops.size()) + std::min(kShown, step.left.size());
    if (all > shown) out << "      and " << all - shown << " more\n";
  }
  return out;
}

RoadReport road_report(const graph::GraphModule& model, const RoadOptions& options) {
  const std::vector<RoadGoal> goals = road_goals(options.goals);
  if (options.batch < 1) fail(kRoadReport, "expected a batch of at least 1, got ", options.batch);
  const PollsInterrupts polls;
  const KeepsRandomState random;
  RoadReport report;
  describe_model(model, report);
  const app::RoadSetting setting = setting_of(model, options);
  const NamedNodes names = named_nodes(model.graph());
  int64_t done = 0;
  for (const app::RoadTrial& trial : app::road_trials()) {
    if (std::ranges::find(goals, trial.goal.name, &RoadGoal::name) == goals.end()) continue;
    check_interrupted();
    if (options.progress) options.progress(trial.goal.name, done++, static_cast<int64_t>(goals.size()));
    report.steps.push_back(tried(trial, setting, names));
  }
  if (options.progress) options.progress({}, done, static_cast<int64_t>(goals.size()));
  return report;
}

}  // namespace ulp
