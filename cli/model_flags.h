// Flags and checks that the commands on models and data share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/command.h"
#include "ulp/app/model_io/model_file.h"
#include "ulp/app/train/workload.h"
#include "ulp/io/dataset.h"
#include "ulp/report/progress.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::cli {

/// --shape, --normalize, --size and --network: what a TorchScript file and published weights do not say themselves.
struct ScriptShape {
  std::string network;
  std::vector<int64_t> shape = {1, 28, 28};
  bool given = false;  ///< --shape was
  std::vector<double> normalize = {0.2860, 0.3530};
  std::map<std::string, int64_t> sizes = {};     ///< --size: the largest of free dimensions, by their names
  std::map<std::string, int64_t> smallest = {};  ///< those that it names a smallest size of, beyond 1
  void add_to(CLI::App& command);
  app::ModelSpec spec() const;
};

/// --shape and --classes: what the name of a network does not say itself, nor a TorchScript file.
void add_shape_flags(CLI::App& command, app::ModelShape& shape);

/// --data where arrays and texts are data, too.
void add_any_data_option(CLI::App& command, std::string& data);

/// --error-budget of an engine, see runtime::EngineOptions.
void add_error_budget(CLI::App& command, double& budget);
/// --max-measuring-seconds of engines, see runtime::EngineOptions.
void add_measuring_limit(CLI::App& command, double& seconds);

/// "92.5 % of 10000 test images", or for text "perplexity 5.2 (2.4 bits a byte), 51.3 % of 4096 test bytes
/// right".
std::string describe(const train::Accuracy& accuracy, const app::ModelSpec& spec, const std::string& unit);

/// Throws ulp::Error now, before hours of work, if the folder of an output file does not exist or cannot be
/// written to.
void check_writable(const std::string& path);
/// Throws a usage error if both are one file: what is written would take the place of what it is made from.
void check_other_file(const std::string& in, const std::string& out);
/// The ending of a file's name in small letters: ".onnx".
std::string ending_of(const std::string& path);
/// Throws a usage error for a name that ends as files of other formats do than those that the command writes.
void check_ending(const std::string& out, const std::vector<std::string>& own);
/// The folder of a report, made where it does not exist; throws ulp::Error if it cannot be made or written
/// to.
void make_folder(const std::string& path);
/// Bytes of a file that was written; 0 of a device or a pipe.
uint64_t file_bytes(const std::string& path);
/// "wrote model.ulp: 17 steps, 712,345 bytes", or the same as JSON.
void report_written(const CommonFlags& flags, const runtime::Plan& plan, const std::string& path);

}  // namespace ulp::cli
