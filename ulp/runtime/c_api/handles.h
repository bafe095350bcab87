// What is behind the handles of the C API.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ulp/runtime/c_api/guard.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::runtime::c_api {

/// An engine and the texts that callers point at; shared by the handles of its contexts.
struct Loaded {
  explicit Loaded(Engine made);

  Engine engine;
  std::string isa;
  std::vector<std::string> input_names, output_names;
};

/// A tensor as callers see it. `names` are those of all tensors of its kind, `kind` is "inputs" or "outputs".
void write_tensor_info(const char* function, const std::vector<TensorInfo>& tensors,
                       const std::vector<std::string>& names, const char* kind, size_t index,
                       ulp_tensor_info* info);

}  // namespace ulp::runtime::c_api

struct ulp_engine {
  std::shared_ptr<const ulp::runtime::c_api::Loaded> loaded;
};

struct ulp_context {
  std::shared_ptr<const ulp::runtime::c_api::Loaded> loaded;
  ulp::runtime::Context context;
  std::vector<const void*> in;  ///< of the run: no run allocates them
  std::vector<void*> out;
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
};
