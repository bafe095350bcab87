// Where in a module the ops of a step are: by the parameters they read, and by what read the results of
// those.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace ulp::amp {

/// As graph/capture/scope.h does for captured graphs, but while the ops run.
class ModulePaths {
 public:
  /// A parameter or buffer by its full name, "layer1.0.conv1.weight".
  void add(const std::string& name, const at::Tensor& tensor);
  /// Forgets the results of ops; tensors of the next step may have their addresses.
  void start_step() { origins_.clear(); }

  /// The path of an op that reads these tensors: of the module that owns the parameters among them, else of
  /// the module around those that made the others; "" where nothing is known.
  std::string path_of(const std::vector<at::Tensor>& inputs) const;
  /// Says that an op with these inputs, at this path, made the output.
  void made(const at::Tensor& output, const std::vector<at::Tensor>& inputs, const std::string& path);

 private:
  /// What is known of a tensor.
  struct Origin {
    std::string path;
    bool weight = false;           ///< made of parameters alone, such as a transposed weight
    bool from_parameters = false;  ///< its op read parameters
  };
  const Origin* find(const at::Tensor& tensor) const;

  std::unordered_map<const at::TensorImpl*, Origin> parameters_, origins_;
};

}  // namespace ulp::amp
