// Training checkpoints: a refusal leaves the model as it was, and what is accepted trains on.
#include "checkpoint_net.h"
#include "container_mutator.h"
#include "harness.h"

namespace {

using ulp::fuzz::refused;

void load(const std::filesystem::path& path, const std::string& kind) {
  ulp::fuzz::CheckpointNet net(kind);
  const at::Tensor weight = net.model->weight.detach().clone();
  ulp::io::CheckpointParts parts = net.parts();
  if (refused([&] { ulp::io::load_checkpoint(path, parts); })) {
    ulp::fuzz::require(torch::equal(net.model->weight, weight), "a refused checkpoint to change nothing");
  } else {
    net.train();
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  refused([&] { ulp::io::load_tensors(file.path()); });
  ulp::io::CheckpointInfo info;
  if (!refused([&] { info = ulp::io::read_checkpoint_info(file.path()); })) load(file.path(), info.optimizer);
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"F32", "F64", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "C64", "F4", "SGD", "Adam", "AdamW",
                "ulp::amp::FusedOptimizer", "fp32", "split", "kahan", "stochastic", "1", "2"},
      .fields = {{"step", 1},
                 {"epoch", 0},
                 {"scaler", {{"scale", 1.0}}},
                 {"schedule", {{"a", 1.0}}},
                 {"loader", ""},
                 {"kind", "SGD"},
                 {"lr", 0.1},
                 {"beta1", 0.9},
                 {"momentum", 0.9},
                 {"shape", {2, 3}},
                 {"dtype", "F32"},
                 {"masters", "split"},
                 {"moments", "bf16"}}};
  return ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary);
}
