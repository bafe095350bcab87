// Which function computes a node of an ONNX file. Each file of such functions ends in its own table, which
// converters.cpp gathers: an op is one function and one line of one file.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulp/exchange/onnx_import/bounds.h"
#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

using ComputeFunction = void (*)(Call&);

/// One line of a table.
struct Converter {
  std::string_view op;
  ComputeFunction compute;
  BoundFunction bound = broadcast;  ///< what else its results can be as large as
};
using ConverterTable = std::span<const Converter>;

/// Null for an op without one.
const Converter* find_converter(const FileNode& node);
/// The ops that have one.
std::vector<std::string_view> converter_names();

}  // namespace ulp::exchange::onnx_import
