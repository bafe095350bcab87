// Tensors in a file beside the model: messages of protocol buffers end at 2 GB.
#pragma once

#include <string>

#include "ulp/exchange/onnx/model.h"

namespace ulp::exchange::onnx {

/// Gives each tensor of 1024 bytes or more a place in a file of this name, which begins at a multiple of 4096 so that
/// readers can map it. Smaller ones stay in the model: runtimes read shapes from them.
void move_out(Model& model, const std::string& file);

/// The bytes of that file.
void write_moved(const Model& model, const WireWriter::Sink& sink);

}  // namespace ulp::exchange::onnx
