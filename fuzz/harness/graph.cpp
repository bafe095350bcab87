// Captured models in files: what loads is a graph that prints and whose tensors can be read.
#include <sstream>

#include "array.h"
#include "container_mutator.h"
#include "harness.h"
#include "ulp/io/graph_file.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] {
    const auto model = ulp::io::load_graph(file.path());
    for (const auto& [name, attribute] : model->graph().attributes())
      ulp::fuzz::read_all(attribute.tensor.detach().contiguous());
    std::ostringstream listing;
    listing << model->graph();
    ulp::fuzz::require(!listing.str().empty(), "a graph that prints");
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"aten::relu", "aten::_softmax", "aten::split.Tensor", "ulp::dequantize", "parameter", "Float",
                "x"},
      .fields = {{"strides", {1, 2}},
                 {"channels_last", true},
                 {"requires_grad", true},
                 {"value", "x"},
                 {"size", {{"numerator", 1}, {"denominator", 2}, {"offset", 0}, {"rest", {{1, 1, {0, 1}}}}}},
                 {"undefined", true},
                 {"autocast", {{"device", "cpu"}, {"enabled", true}, {"dtype", "BFloat16"}}}}};
  return ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary);
}
