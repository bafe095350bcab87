// ONNX files of a few nodes with attributes of every kind, for tests of what the importer makes of them.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onnx_message.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

/// A graph as an attribute.
struct OnnxBranch {
  std::string bytes;
};
using OnnxAttribute = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                                   at::Tensor, OnnxBranch>;
using OnnxAttributes = std::vector<std::pair<std::string, OnnxAttribute>>;

inline int64_t onnx_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    case at::kUInt16:
      return 4;
    case at::kShort:
      return 5;
    case at::kUInt32:
      return 12;
    case at::kUInt64:
      return 13;
    case at::kBFloat16:
      return 16;
    default:
      return 1;
  }
}

/// A graph that grows by the calls. Dimension -1 is the free "batch", -2 the free "time".
class OnnxCase {
 public:
  OnnxCase& input(const std::string& name, const std::vector<int64_t>& sizes,
                  at::ScalarType type = at::kFloat) {
    return value(11, name, sizes, onnx_type(type));
  }
  /// An input of a type that LibTorch has not, or computes nothing in, by TensorProto's number.
  OnnxCase& typed_input(const std::string& name, const std::vector<int64_t>& sizes, int64_t type) {
    return value(11, name, sizes, type);
  }
  OnnxCase& output(const std::string& name) { return value(12, name, {}, 1); }
  OnnxCase& tensor(const std::string& name, const at::Tensor& tensor) {
    return coded(name, onnx_type(tensor.scalar_type()), tensor.sizes().vec(), tensor);
  }
  /// A tensor of a type that LibTorch has not, by its bytes.
  OnnxCase& coded(const std::string& name, int64_t type, const std::vector<int64_t>& sizes,
                  const at::Tensor& bytes) {
    graph_ += message_of([&](exchange::WireWriter& out) {
      out.message(5, [&](exchange::WireWriter& made) { write(made, name, type, sizes, bytes); });
    });
    return *this;
  }
  OnnxCase& node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs, const OnnxAttributes& attributes = {},
                 const std::string& domain = "") {
    graph_ += message_of([&](exchange::WireWriter& out) {
      out.message(1, [&](exchange::WireWriter& made) {
        for (const std::string& one : inputs) made.text(1, one);
        for (const std::string& one : outputs) made.text(2, one);
        made.text(3, "the_" + op);
        made.text(4, op);
        for (const auto& [name, kept] : attributes) {
          made.message(5, [&, &name = name, &kept = kept](exchange::WireWriter& attribute) {
            attribute.text(1, name);
            std::visit([&](const auto& one) { write(attribute, one); }, kept);
          });
        }
        if (!domain.empty()) made.text(7, domain);
      });
    });
    return *this;
  }
  /// As an attribute of another graph's node.
  OnnxBranch branch() const { return {graph_}; }
  std::string bytes(int64_t opset = 18, const std::string& producer = "") const {
    return message_of([&](exchange::WireWriter& out) {
      out.integer(1, 10);
      if (!producer.empty()) out.text(2, producer);
      out.bytes(7, graph_.data(), graph_.size());
      out.message(8, [&](exchange::WireWriter& version) { version.integer(2, opset); });
      out.message(8, [&](exchange::WireWriter& version) {
        version.text(1, "com.microsoft");
        version.integer(2, 1);
      });
    });
  }
  std::shared_ptr<graph::GraphModule> import(int64_t opset = 18,
                                             const exchange::OnnxImportOptions& options = {}) const {
    return exchange::import_onnx(bytes(opset), "model.onnx", options);
  }
  /// The first result of these inputs.
  at::Tensor run(const std::vector<at::Tensor>& inputs, int64_t opset = 18,
                 const exchange::OnnxImportOptions& options = {}) const {
    const torch::NoGradGuard no_grad;
    return import(opset, options)->forward_all(inputs).at(0);
  }

 private:
  static void write(exchange::WireWriter& out, const std::string& name, int64_t type,
                    const std::vector<int64_t>& sizes, const at::Tensor& tensor) {
    const at::Tensor plain = tensor.contiguous();
    for (const int64_t size : sizes) out.integer(1, size);
    out.integer(2, type);
    if (!name.empty()) out.text(8, name);
    out.bytes(9, plain.const_data_ptr(), plain.nbytes());
  }
  static void write(exchange::WireWriter& out, int64_t number) {
    out.integer(3, number);
    out.integer(20, 2);
  }
  static void write(exchange::WireWriter& out, float number) {
    out.number(2, number);
    out.integer(20, 1);
  }
  static void write(exchange::WireWriter& out, const std::string& word) {
    out.text(4, word);
    out.integer(20, 3);
  }
  static void write(exchange::WireWriter& out, const std::vector<int64_t>& numbers) {
    for (const int64_t one : numbers) out.integer(8, one);
    out.integer(20, 7);
  }
  static void write(exchange::WireWriter& out, const std::vector<float>& numbers) {
    for (const float one : numbers) out.number(7, one);
    out.integer(20, 6);
  }
  static void write(exchange::WireWriter& out, const at::Tensor& tensor) {
    out.message(5, [&](exchange::WireWriter& made) {
      write(made, "", onnx_type(tensor.scalar_type()), tensor.sizes().vec(), tensor);
    });
    out.integer(20, 4);
  }
  static void write(exchange::WireWriter& out, const OnnxBranch& graph) {
    out.bytes(6, graph.bytes.data(), graph.bytes.size());
    out.integer(20, 5);
  }

  OnnxCase& value(int field, const std::string& name, const std::vector<int64_t>& sizes, int64_t type) {
    const auto shape = [&](exchange::WireWriter& out) {
      for (const int64_t size : sizes) {
        out.message(1, [&](exchange::WireWriter& dim) {
          if (size >= 0) dim.integer(1, size);
          if (size < 0) dim.text(2, size == -1 ? "batch" : "time");
        });
      }
    };
    graph_ += message_of([&](exchange::WireWriter& out) {
      out.message(field, [&](exchange::WireWriter& made) {
        made.text(1, name);
        made.message(2, [&](exchange::WireWriter& kind) {
          kind.message(1, [&](exchange::WireWriter& tensor) {
            tensor.integer(1, type);
            tensor.message(2, shape);
          });
        });
      });
    });
    return *this;
  }

  std::string graph_;
};

/// The largest difference, as a share of the largest number; 1 for other sizes.
inline double share_off(const at::Tensor& ours, const at::Tensor& right) {
  if (ours.sizes() != right.sizes()) return 1;
  if (right.numel() == 0) return 0;
  const at::Tensor a = ours.to(at::kDouble), b = right.to(at::kDouble);
  const double largest = b.abs().max().item<double>();
  return (a - b).abs().max().item<double>() / (largest == 0 ? 1 : largest);
}

/// Draws of one seed.
class Drawn {
 public:
  explicit Drawn(uint64_t seed) : state_(seed) {}
  /// From `low` to `high`, both of them.
  int64_t whole(int64_t low, int64_t high) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return low + static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(whole(0, static_cast<int64_t>(all.size()) - 1))];
  }

 private:
  uint64_t state_;
};

}  // namespace ulp::test
