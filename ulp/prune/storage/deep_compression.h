// The recipe of Deep Compression (Han, Mao and Dally 2016): prune, share weights, code. Training lies between
// the steps, so they are two calls:
//
//   prune(*model, recipe.mask_recipe());  // masks by magnitude; train the model on with them
//   deep_compress(model, recipe, "net.safetensors", [&](graph::GraphModule& shared) { ... train it ... });
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/prune/prune_recipe.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/prune/storage/sharing/share_module.h"

namespace ulp::prune {

/// Settings of some layers that differ from those of all.
struct ULP_API LayerCompression {
  std::string layer;  ///< path of a module or name of a parameter; '*' matches any run of characters
  std::optional<double> amount;  ///< share of the weights that is pruned, in [0, 1)
  std::optional<int64_t> bits;   ///< of a shared weight's code, 1..8; 0: not shared
  void visit_fields(FieldVisitor& visit);
  bool operator==(const LayerCompression&) const = default;
};

/// All of Deep Compression.
struct ULP_API DeepCompression {
  static constexpr const char* kType = "ulp.prune.DeepCompression";

  double amount = 0.9;                   ///< share of each layer's weights that is pruned, in [0, 1)
  KMeansOptions sharing;                 ///< bits, first centroids, iterations
  std::vector<LayerCompression> layers;  ///< exceptions; later ones win
  EntropyCoder coder = EntropyCoder::smallest;
  std::optional<int64_t> gap_bits;  ///< of positions by gaps, 2..8; the smallest unless given

  /// LeNet-300-100 as the paper has it (table 4): 8, 9 and 26 % of the weights of its three layers are kept,
  /// in 6 bits. `layers`: their paths.
  static DeepCompression lenet_300_100(const std::vector<std::string>& layers);

  /// The share of a parameter that is pruned; biases and norms (fewer than two dimensions) stay whole unless
  /// a rule has their whole name.
  double amount_of(const std::string& parameter, int64_t dimensions) const;
  /// For prune(): the smallest weights of each layer by itself, fractions of all of them. prune() takes
  /// parameters of two dimensions or more alone, and throws for a rule that names another one.
  Recipe mask_recipe() const;
  /// For share_weights().
  ShareOptions share_options() const;
  /// For save_compressed().
  CodeOptions code_options() const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  /// {"type": "ulp.prune.DeepCompression", "version": 1, ...}.
  std::string to_json() const;
  /// Fields that are missing keep their defaults. Throws FileError for text that is no such JSON, an unknown
  /// field, a value of another kind or outside its limits, or a newer version.
  static DeepCompression from_json(const std::string& text);
  bool operator==(const DeepCompression&) const = default;
};

/// The result of deep_compress().
struct CompressedModel {
  std::shared_ptr<graph::GraphModule> module;  ///< plain weights again, as load_compressed() gives them
  Accounting accounting;                       ///< of the file
  graph::PassReport report;                    ///< what was shared
};

/// Everything but the pruning and its training: multiplies masks in, shares the weights that are not 0, lets
/// the caller train the shared values, makes plain weights of them and writes the file. It prunes nothing by
/// itself: `pruned` is a model with masks (prune()) or with zeros, and stays as it is. Throws ulp::Error as
/// share_weights() and save_compressed() do.
ULP_API CompressedModel deep_compress(const std::shared_ptr<graph::GraphModule>& pruned,
                                      const DeepCompression& recipe, const std::filesystem::path& path,
                                      const std::function<void(graph::GraphModule&)>& fine_tune = nullptr);

}  // namespace ulp::prune
