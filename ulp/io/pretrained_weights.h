// Weights as Hugging Face's transformers and torchvision publish them, into the networks of the models room
// and others of the same names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ulp/io/safetensors.h"

namespace ulp::io {

/// How a published file and a model differ, and what was done with the file's names.
struct ULP_API PretrainedReport {
  LoadReport differences;  ///< by the model's names, those of unexpected tensors by the file's
  /// The file's names that hold nothing to load: masks, position ids, distances between layers, copies of
  /// tied tensors.
  std::vector<std::string> ignored;
  /// "LayerNorm.gamma -> bert.embeddings.LayerNorm.weight": names that another convention had.
  std::vector<std::string> renamed;
  bool transposed = false;  ///< GPT-2's matrices came as (out, in) and were turned

  /// A sentence for each kind of difference; empty without any.
  std::string text() const { return differences.text(); }
};

/// The tensors of a safetensors file; of an index of shards (`model.safetensors.index.json`); or of a folder
/// with either. Shards lie in the index's folder: a name with a folder in it is refused. Throws FileError for
/// files that are missing, damaged or disagree, and for pickled weights (.bin, .pt, .pth), with the way to
/// convert them.
ULP_API NamedTensors load_pretrained_tensors(const std::filesystem::path& path);

/// Copies published weights into the model's parameters and buffers, between floating types. Names may have
/// the prefixes `bert.`, `distilbert.`, `transformer.`, `model.` or `module.` or none of them, layer norms
/// may have gamma and beta, GPT-2's matrices may be (in, out) as published or (out, in), `lm_head.weight` may
/// repeat the tied table, and counters of batch norms may be missing. With `strict` any other difference
/// throws FileError and the model is untouched; without, what fits is copied and the rest is reported: a new
/// classifier on published layers. Throws FileError where load_pretrained_tensors() does and where two names
/// mean one tensor.
ULP_API PretrainedReport load_pretrained(const std::filesystem::path& path, torch::nn::Module& model,
                                         bool strict = true);

/// Assigns tensors that have been read already; `source` words the errors.
ULP_API PretrainedReport assign_pretrained(torch::nn::Module& model, const NamedTensors& tensors, bool strict,
                                           const std::string& source);

/// Writes the model's parameters and buffers as transformers and torchvision name them, with the metadata
/// that transformers asks for ({"format": "pt"}). Tied tensors are written once, as there. Throws Error where
/// save_tensors() does.
ULP_API void save_pretrained(const std::filesystem::path& path, const torch::nn::Module& model);

}  // namespace ulp::io
