// ONNX files made by hand, for tests of what reads them.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::test {

/// The bytes of a message.
inline std::string message_of(const std::function<void(exchange::WireWriter&)>& write) {
  std::string bytes;
  const exchange::WireWriter::Sink sink = [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  };
  exchange::WireWriter writer(&sink);
  write(writer);
  return bytes;
}

/// A graph that grows by the calls.
class OnnxText {
 public:
  /// An input of floats; -1 is the free dimension "batch", other negative ones have no name.
  OnnxText& input(const std::string& name, const std::vector<int64_t>& sizes, int64_t type = 1) {
    return value(11, name, sizes, type);
  }
  OnnxText& output(const std::string& name) { return value(12, name, {}, 1); }
  OnnxText& node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs,
                 const std::vector<std::pair<std::string, int64_t>>& attributes = {},
                 const std::vector<std::string>& activations = {}) {
    graph_ += message_of([&](exchange::WireWriter& out) {
      out.message(1, [&](exchange::WireWriter& node) {
        for (const std::string& one : inputs) node.text(1, one);
        for (const std::string& one : outputs) node.text(2, one);
        node.text(3, "the_" + op);
        node.text(4, op);
        for (const auto& [name, number] : attributes) {
          node.message(5, [&, &name = name, &number = number](exchange::WireWriter& attribute) {
            attribute.text(1, name);
            attribute.integer(3, number);
            attribute.integer(20, 2);
          });
        }
        if (activations.empty()) return;
        node.message(5, [&](exchange::WireWriter& attribute) {
          attribute.text(1, "activations");
          for (const std::string& one : activations) attribute.text(9, one);
          attribute.integer(20, 8);
        });
      });
    });
    return *this;
  }
  template <typename T>
  OnnxText& tensor(const std::string& name, int64_t type, const std::vector<int64_t>& sizes,
                   const std::vector<T>& values) {
    return raw_tensor([&](exchange::WireWriter& out) {
      for (const int64_t size : sizes) out.integer(1, size);
      out.integer(2, type);
      out.text(8, name);
      out.bytes(9, values.data(), values.size() * sizeof(T));
    });
  }
  OnnxText& raw_tensor(const std::function<void(exchange::WireWriter&)>& fields) {
    graph_ += message_of([&](exchange::WireWriter& out) { out.message(5, fields); });
    return *this;
  }
  OnnxText& floats(const std::string& name, const std::vector<int64_t>& sizes,
                   const std::vector<float>& values) {
    return tensor<float>(name, 1, sizes, values);
  }
  OnnxText& ints(const std::string& name, const std::vector<int64_t>& values) {
    return tensor<int64_t>(name, 7, {static_cast<int64_t>(values.size())}, values);
  }
  std::string bytes(int64_t opset = 17) const {
    return message_of([&](exchange::WireWriter& out) {
      out.integer(1, 8);
      out.bytes(7, graph_.data(), graph_.size());
      out.message(8, [&](exchange::WireWriter& version) { version.integer(2, opset); });
    });
  }

 private:
  OnnxText& value(int field, const std::string& name, const std::vector<int64_t>& sizes, int64_t type) {
    const auto shape = [&](exchange::WireWriter& out) {
      for (const int64_t size : sizes) {
        out.message(1, [&](exchange::WireWriter& dim) {
          if (size >= 0) dim.integer(1, size);
          if (size == -1) dim.text(2, "batch");
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

}  // namespace ulp::test
