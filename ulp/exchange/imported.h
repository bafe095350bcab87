// What all imports share: the capture of what a file says to compute, and errors that name the file.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

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

/// The message of an error that names the file: `text` as it is where it does, as "'file'" or "'file:entry'",
/// else the first line of `reason`, which is `text` without the function that it begins with, behind the
/// name.
std::string with_file(const char* where, const std::filesystem::path& name, const std::string& text,
                      std::string_view reason);

/// Does `work`, whose errors, and those of LibTorch, become FileErrors of `where` that name the file.
template <typename Work>
auto naming_file(const char* where, const std::filesystem::path& name, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw FileError(with_file(where, name, error.what(), error.reason()), error.info());
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw FileError(with_file(where, name, text, text));
  }
}

}  // namespace ulp::exchange
