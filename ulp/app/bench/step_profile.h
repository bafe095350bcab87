// Where the time of an engine goes, step by step, below the machine's roof.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/measure/roofline.h"
#include "ulp/report/table.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

/// One run of a network in pieces: an engine's steps, or LibTorch's operators.
struct ProfiledPart {
  std::string name = {}, op = {}, attributes = {}, kernel = {}, shape = {}, note = {};
  double start = 0;    ///< seconds from the beginning of the run
  double seconds = 0;  ///< its own
  runtime::StepWork work = {};
};

/// Enough repetitions to find the fastest: so many, and more of what is short, for half a second.
class ULP_API Repetitions {
 public:
  explicit Repetitions(int least) : least_(least), start_(std::chrono::steady_clock::now()) {}
  /// Counts another one; false when there were enough. Throws Interrupted on Ctrl-C.
  bool next();

 private:
  int least_, done_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// Runs the engine step by step on random inputs (seed 0) after a warm-up, Repetitions(runs) times; each step
/// has the fastest of its times, and starts where those before it end. Runs of an engine that continues
/// earlier ones all begin anew. Throws Interrupted on Ctrl-C.
ULP_API std::vector<ProfiledPart> profile_steps(runtime::Engine& engine, int64_t batch, int runs);

/// Bytes of weights that a run reads.
ULP_API double constant_bytes(const std::vector<ProfiledPart>& parts);

/// The parts as a table: time and share of the whole, rates, what bounds each and how much of that bound it
/// reaches.
ULP_API report::Table profile_table(const std::string& title, const std::vector<ProfiledPart>& parts,
                                    const measure::Peaks& peaks);

/// Profiles of several models as a file in the format of Chrome's trace events, which Perfetto
/// (ui.perfetto.dev) shows: a row for each profile, a slice for each part, with its figures. Written whole or
/// not at all.
struct NamedProfile {
  std::string name;
  std::vector<ProfiledPart> parts;
};
ULP_API std::string trace_json(const std::vector<NamedProfile>& profiles, const measure::Peaks& peaks);
/// Throws Error where the file cannot be written.
ULP_API void write_trace(const std::filesystem::path& path, const std::vector<NamedProfile>& profiles,
                         const measure::Peaks& peaks);

}  // namespace ulp::app
