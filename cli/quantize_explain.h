// `ulp quantize --explain MATRIX`: a scheme's arithmetic on a literal matrix, as tables.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command.h"

namespace ulp::cli {

/// The flags of --explain, and what they do.
struct ExplainFlags {
  std::string matrix;
  int64_t bits = 8;
  bool is_signed = false, symmetric = false, restricted = false;
  std::string granularity = "tensor";
  std::string format;
  std::vector<double> clip;
  CLI::Option* explain = nullptr;
  CLI::Option* bits_option = nullptr;

  void add_to(CLI::App& command);
  /// --explain was given.
  bool asked() const { return explain->count() > 0; }
  bool bits_given() const { return bits_option->count() > 0; }
  void run(const CommonFlags& common) const;
};

}  // namespace ulp::cli
