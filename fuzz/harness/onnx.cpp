// ONNX files: what is imported is a graph that prints and runs.
#include <sstream>

#include "harness.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/graph_module.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMostBytes = int64_t{4} << 20;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ulp::fuzz::refused([&] {
    const auto model =
        ulp::exchange::import_onnx(bytes, "model.onnx", {.longest = 8, .max_bytes = kMostBytes});
    std::ostringstream listing;
    listing << std::as_const(*model).graph();
    ulp::fuzz::require(!listing.str().empty(), "a graph that prints");
  });
  return 0;
}
