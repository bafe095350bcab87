// What all imports share: the capture of what a file says to compute, and errors that name the file.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange {

/// Parameters and buffers by their names.
using Attributes = std::vector<std::pair<std::string, graph::Attribute>>;
/// Computes the results of inputs, in train mode or not.
using ModelRun = std::function<c10::IValue(const std::vector<at::Tensor>& inputs, bool training)>;

/// The graph of a run over these tensors, in eval mode; tensors that it does not read are left out.
std::shared_ptr<graph::GraphModule> captured_run(const Attributes& attributes, const ModelRun& run,
                                                 const std::vector<at::Tensor>& examples,
                                                 const graph::CaptureOptions& options);

/// Does `work`, whose errors become FileErrors of `where` that name the file.
template <typename Work>
auto naming_file(const char* where, const std::filesystem::path& name, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find("'" + name.string()) != std::string::npos) throw FileError(text);
    const size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
    fail_file(where, "'", name.string(), "': ", end == std::string::npos ? text : text.substr(end + 2));
  }
}

}  // namespace ulp::exchange
