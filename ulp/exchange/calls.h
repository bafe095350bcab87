// The walk over a graph that becomes a file: calls go by the rows of a table, results come last, and all that stands in the way
// is said in one error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/exchange/arguments.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Which function writes a call of an op.
template <typename Builder>
struct ConverterRow {
  using Function = void (*)(Builder&, const graph::Node&);
  std::string_view op;  ///< "aten::conv2d"
  Function convert;
};

/// Null for an op without one.
template <typename Builder>
typename ConverterRow<Builder>::Function find_row(const std::vector<ConverterRow<Builder>>& rows,
                                                  const graph::Node& node) {
  for (const ConverterRow<Builder>& row : rows) {
    if (node.is(row.op)) return row.convert;
  }
  return nullptr;
}

/// The ops of the rows.
template <typename Builder>
std::vector<std::string_view> row_names(const std::vector<ConverterRow<Builder>>& rows) {
  std::vector<std::string_view> names;
  for (const ConverterRow<Builder>& row : rows) names.push_back(row.op);
  return names;
}

/// What a format does with a graph.
struct Conversion {
  const char* where;                            ///< of errors: "exchange.export_onnx"
  const char* form;                             ///< in errors: "ONNX form"
  std::vector<std::string_view> (*op_names)();  ///< ops that have a form
  /// Writes a call; false where none of the rows is for it.
  std::function<bool(const graph::Node&)> call;
  /// A result of the model; its name where it has one, else empty.
  std::function<void(const graph::Value&, const std::string&)> result;
};

/// Whether there is a tensor in a result; parts that are there in train mode alone are none in eval mode.
bool has_tensor(const graph::Argument& argument);

/// Calls them for each node that runs in eval mode, in order. Throws ulp::Error that names each call that was refused, and
/// for one without a form the ops with names like its own that have one.
void convert_graph(const graph::Graph& graph, const Conversion& conversion);

}  // namespace ulp::exchange
