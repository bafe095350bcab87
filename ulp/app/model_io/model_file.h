// Models as the tool passes them between commands: a safetensors file that says which reference network it
// holds, or holds a captured model with its graph, a TorchScript file, an ONNX file, a .pt2 archive of
// torch.export, or published weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/models/image_model.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/task.h"

namespace ulp {
namespace graph {
class GraphModule;
}

namespace app {

/// The inputs and results of a network.
enum class NetworkKind {
  image,     ///< images, or rows of arrays, to the logits of classes
  language,  ///< bytes or tokens to the logits of the next one, at each place
  text       ///< bytes or tokens to the logits of classes
};
/// The name of the enumerator.
ULP_API const char* to_string(NetworkKind kind);

/// The description that makes a reference network again and prepares its input.
struct ULP_API ModelSpec {
  std::string name = "resnet14";
  NetworkKind kind = NetworkKind::image;
  int64_t in_channels = 1;
  int64_t num_classes = 10;
  int64_t image_size = 28;  ///< image: the height
  int64_t image_width = 0;  ///< image: where it is not the height; 0: it is
  bool rows = false;        ///< image: it takes rows of values, (N, in_channels), and no images
  /// Per channel; input is (pixel / 255 - mean) / std, or (value - mean) / std where the data is of floats.
  /// The defaults are Fashion-MNIST's.
  std::vector<double> mean = {0.2860};
  std::vector<double> std = {0.3530};
  int64_t max_length = 0;                     ///< language and text: bytes or tokens in one input
  std::vector<std::string> class_names = {};  ///< text: empty where labels are numbers
  /// language and text: what makes tokens of texts; null: they are read byte by byte.
  std::shared_ptr<const io::Tokenizer> tokenizer = nullptr;
  /// The reference network of a file of published weights that does not say it. Not stored.
  std::string network = {};
  /// True where the user asked for these sizes, so that a file with others is refused. Not stored.
  bool asked = false;
  /// The largest sizes of free dimensions of an imported file or of a published decoder, by their names. Not
  /// stored.
  std::map<std::string, int64_t> sizes = {};
  /// The smallest ones beyond 1, of dimensions in `sizes`. Of imported files alone. Not stored.
  std::map<std::string, int64_t> smallest_sizes = {};

  /// image: the width.
  int64_t width() const { return image_width > 0 ? image_width : image_size; }
  /// "images of 3x48x64", "rows of 5 values", "texts".
  std::string input_text() const;
  /// Makes it the description of a network over rows. Their values are taken as they are unless somebody said
  /// how to normalise them.
  void take_rows();
  /// image: the sizes of a batch.
  std::vector<int64_t> batch_sizes(int64_t batch) const;
  /// language and text: how many tokens there are.
  int64_t vocab_size() const;
  /// text: what short texts are filled up with.
  int64_t padding_token() const;

  std::string to_json() const;
  /// Throws FileError for text that is no such JSON.
  static ModelSpec from_json(const std::string& text);
};

/// Whether the networks read texts as the same tokens, as far as both have a tokenizer.
ULP_API bool same_tokens(const ModelSpec& a, const ModelSpec& b);

/// The key of safetensors and engine metadata under which a ModelSpec is stored.
inline constexpr const char* kModelSpecKey = "ulp.model";

/// A dimension of an input that the file leaves free and the tool gives one size.
struct FixedDimension {
  std::string input, name;  ///< of the input, and of the dimension
  int64_t size = 0;
};

/// A model of either kind, ready to evaluate.
struct LoadedModel {
  ModelSpec spec;
  train::Classifier forward;                  ///< eager, in eval mode
  std::shared_ptr<graph::GraphModule> graph;  ///< captured, in eval mode
  std::vector<FixedDimension> fixed = {};     ///< of images in an ONNX file, by ModelSpec::image_size
};

/// Writes weights and spec, atomically; of a captured model (graph::GraphModule) its graph, too, so that what
/// passes made of it stays. Throws ulp::Error where io::save_model() and io::save_graph() do.
ULP_API void save_model_file(const std::filesystem::path& path, const torch::nn::Module& model,
                             const ModelSpec& spec);

/// The spec of a file of save_model_file(), of an ONNX file or .pt2 archive of `ulp export`, or of published
/// weights with a config.json; nothing for files without one and of other kinds. Throws FileError for a file
/// that is missing or damaged.
ULP_API std::optional<ModelSpec> read_model_spec(const std::filesystem::path& path);

/// A reference network in train mode, weights drawn from the default generator.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  train::Forward forward;
  std::string note = {};  ///< published weights: what was missing, not expected or of another shape
};
/// Throws Error where make_model() and make_text_model() do, and for a network of another kind.
ULP_API Network make_network(const ModelSpec& spec);

/// The handling of published weights that have other tensors than the network.
enum class PretrainedFit {
  exact,   ///< an error that names them
  partial  ///< what fits is loaded, the rest starts new: a classifier of other classes
};

/// A network of any kind from a file of save_model_file(), a TorchScript file, one of exchange_file.h or one
/// of published_file.h, in eval mode. `like` has the size of images and texts where such a file leaves them
/// free, and the number of classes of a partial fit. Throws FileError for anything else.
ULP_API Network load_network(const std::filesystem::path& path, const ModelSpec& like = {},
                             PretrainedFit fit = PretrainedFit::exact);

/// Throws ulp::Error where somebody asked for sizes of free dimensions beside a file that has none, or named
/// the network of a file that says itself which it is.
ULP_API void expect_named_sizes(const ModelSpec& asked, const std::filesystem::path& path);
/// Throws FileError where somebody asked for other sizes than those of the network in the file.
ULP_API void expect_asked_sizes(const ModelSpec& asked, const ModelSpec& found,
                                const std::filesystem::path& path);

/// The spec of data for a network from a file that says nothing of itself: `like`, with rows where the
/// network takes such. Throws as load_model_file().
ULP_API ModelSpec spec_for_file(const std::filesystem::path& path, ModelSpec like);

/// Parameters and buffers of any floating type become fp32; the tensors stay the same objects.
ULP_API void to_float(torch::nn::Module& module);

/// Reads an image network from a file of save_model_file(), or a TorchScript file (.pt) or one of
/// exchange_file.h or of published_file.h, which take what they do not say of shape and normalisation from
/// `script_spec`; the latter two may hold any network. Throws FileError for a file that is missing, damaged,
/// or of neither kind.
ULP_API LoadedModel load_model_file(const std::filesystem::path& path, const ModelSpec& script_spec = {});

/// Reads a network over text from a file of exchange_file.h or of published_file.h, or a file of
/// save_model_file(), captured for as many bytes as its data had; `forward` takes tokens. `like.sizes` may
/// have "time", the longest text of a published decoder. Throws FileError for anything else.
ULP_API LoadedModel load_text_model_file(const std::filesystem::path& path, const ModelSpec& like = {});

/// Reads a network of either kind: load_text_model_file() for one over text, else load_model_file(). Throws
/// as they do.
ULP_API LoadedModel load_any_model_file(const std::filesystem::path& path, const ModelSpec& script_spec = {});

/// Throws FileError that says what takes it for a model of this file whose values or weights are in codes
/// already.
ULP_API void expect_float(const graph::GraphModule& model, const std::filesystem::path& path);

/// Captures the network as a graph, which passes can change. Throws ulp::Error where capture() does; a
/// network that is one already is itself.
ULP_API Network captured(const Network& network, const ModelSpec& spec);

/// Captures a reference network for images of the spec's shape, in eval mode.
ULP_API std::shared_ptr<graph::GraphModule> capture_model(models::ImageModel& model, const ModelSpec& spec);

}  // namespace app
}  // namespace ulp
