// Profiles as trace events.
#include <nlohmann/json.hpp>

#include "ulp/app/bench/step_profile.h"
#include "ulp/base/atomic_file.h"

namespace ulp::app {

namespace {

using nlohmann::ordered_json;

/// A complete event ("X"); times are in microseconds.
ordered_json slice(const ProfiledPart& part, size_t thread, const measure::Peaks& peaks,
                   const measure::Surroundings& around) {
  const measure::RooflinePoint placed = measure::roofline_point(part.work, part.seconds, peaks, around);
  ordered_json arguments = {{"kernel", part.kernel}, {"output", part.shape}};
  if (!part.attributes.empty()) arguments["attributes"] = part.attributes;
  if (!part.note.empty()) arguments["note"] = part.note;
  if (part.work.bytes() > 0) {
    arguments.update({{"operations", part.work.operations},
                      {"bytes", part.work.bytes()},
                      {"G/s", placed.operations / 1e9},
                      {"GB/s", placed.bandwidth / 1e9},
                      {"bound", measure::bound_text(placed)},
                      {"share of the bound", placed.share()}});
  }
  return {{"name", part.name.empty() ? part.op : part.name},
          {"cat", part.op},
          {"ph", "X"},
          {"ts", part.start * 1e6},
          {"dur", part.seconds * 1e6},
          {"pid", 1},
          {"tid", thread},
          {"args", std::move(arguments)}};
}

ordered_json named(const char* what, size_t thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_json(const std::vector<NamedProfile>& profiles, const measure::Peaks& peaks) {
  ordered_json events = ordered_json::array({named("process_name", 0, "ulp")});
  for (size_t i = 0; i < profiles.size(); ++i) {
    events.push_back(named("thread_name", i + 1, profiles[i].name));
    const measure::Surroundings around{constant_bytes(profiles[i].parts)};
    for (const ProfiledPart& part : profiles[i].parts) events.push_back(slice(part, i + 1, peaks, around));
  }
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(
      1, ' ', false, ordered_json::error_handler_t::replace);
}

void write_trace(const std::filesystem::path& path, const std::vector<NamedProfile>& profiles,
                 const measure::Peaks& peaks) {
  AtomicFile file(path);
  file.write(trace_json(profiles, peaks) + "\n");
  file.commit();
}

}  // namespace ulp::app
