// What converters write with: the TensorFlow Lite model that grows, and where the graph's values are in it.
//
// Layouts. The graph has images as [N, C, H, W], the file as [N, H, W, C]. Each converter asks for the layout that its operator
// needs; a value that is there in another one is transposed then, once.
//
// Codes. A float value of the graph that `ulp::dequantize` made of codes is in the file as codes, and as numbers only where an
// operator reads it so.
#pragma once

#include <ATen/core/Tensor.h>
#include <tflite_schema_generated.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ulp/exchange/arguments.h"
#include "ulp/graph/graph.h"

namespace ulp::exchange::tflite {

/// The order in which a tensor of the file has the elements of a value.
enum class Layout : uint8_t {
  as_is,          ///< the graph's
  channels_last,  ///< [N, C, ...] as [N, ..., C]
  flattened       ///< [N, C P], which were images of P pixels, as [N, P C]
};

/// A tensor of the file by its number.
using Index = int32_t;
using Indices = std::vector<Index>;
using Options = schema::BuiltinOptionsUnion;

/// What codes stand for: (code - zero_point) scale.
struct Steps {
  std::vector<float> scale;
  std::vector<int64_t> zero_point;
  int32_t axis = 0;  ///< dimension that has a scale for each index, where there are several
  bool operator==(const Steps&) const = default;
};

/// Sizes of a tensor of the file; -1 in `signature` for a size that the user may change.
struct Shape {
  std::vector<int32_t> sizes, signature;
};
Shape fixed_shape(const std::vector<int64_t>& sizes);

/// How a call ends in one operator: with the clamp behind it that the operator takes, and with codes.
struct Ending {
  const graph::Value* result = nullptr;
  schema::Activation fused = schema::Activation::NONE;
  bool integer = false;
  Steps steps = {};                              ///< of integer results
  std::vector<const graph::Node*> covered = {};  ///< calls behind the first that the operator computes, too
};

/// Codes that are stored, such as a weight's.
struct StoredCodes {
  at::Tensor codes, scale, zero_point;
  int64_t axis = -1;
};

class Builder {
 public:
  /// `sizes`: the batch, then the free dimensions. Where the batch is free, results have it as a size that may change.
  Builder(const graph::Graph& graph, std::vector<int64_t> sizes, bool free_batch, bool integer_io);

  const graph::Graph& graph() const { return graph_; }
  bool free_batch() const { return free_batch_; }
  /// A size as the file has it.
  int64_t size_of(const graph::SizeExpr& size) const { return size.at(sizes_); }

  // Values of the graph.
  Shape shape_of(const graph::Node& reader, const graph::Value& value, Layout layout = Layout::as_is) const;
  /// There are codes of this value: numbers that were made of codes, or the codes themselves, which have one scale.
  bool has_codes(const graph::Value* value) const { return codes_.contains(value); }
  const Steps& steps_of(const graph::Value* codes) const { return codes_.at(codes).steps; }
  /// The layout in which it was made.
  Layout layout_of(const graph::Value* value) const;
  bool is_there(const graph::Value* value, Layout layout) const;
  /// The tensor that holds it in this layout.
  Index numbers(const graph::Node& reader, const graph::Value* value, Layout layout = Layout::as_is);
  Index codes(const graph::Node& reader, const graph::Value* value, Layout layout);
  /// The one or the other.
  Index tensor_of(const graph::Node& reader, const graph::Value* value, Layout layout, bool integer) {
    return integer ? codes(reader, value, layout) : numbers(reader, value, layout);
  }
  /// A new tensor that is to hold the value.
  Index make_numbers(const graph::Node& node, const graph::Value* value, Layout layout);
  Index make_codes(const graph::Node& node, const graph::Value* value, Layout layout, const Steps& steps);
  /// The same with codes where `integer`, whose steps are those of the value `like`: of what moves elements only.
  Index make_moved(const graph::Node& node, const graph::Value* value, Layout layout,
                   const graph::Value* like, bool integer);
  /// The value is in the tensors of another one.
  void share(const graph::Value* value, const graph::Value* from);
  /// It is in this tensor.
  void place(const graph::Value* value, Index tensor, Layout layout,
             const graph::Value* steps_like = nullptr);
  /// The channels of a value that is flattened.
  int64_t flattened_channels(const graph::Value* value) const { return flattened_.at(value); }
  void flatten(const graph::Value* value, int64_t channels) { flattened_[value] = channels; }

  // Stored tensors.
  /// The value is this constant.
  void fold(const graph::Value* value, const at::Tensor& tensor) { folded_[value] = tensor; }
  /// An attribute's tensor, what stored codes stand for, or a folded value; undefined for what is computed.
  at::Tensor stored(const graph::Value& value) const;
  /// Undefined codes where there are none.
  StoredCodes stored_codes(const graph::Value& value) const;

  // How calls end.
  /// `may_be_integer`: its inputs have codes.
  Ending ending_of(const graph::Node& node, bool may_be_integer) const;
  /// The tensor of an ending; the calls that it covers are done.
  Index result(const graph::Node& node, const Ending& ending, Layout layout);
  bool is_done(const graph::Node& node) const { return done_.contains(&node); }
  /// The steps of an activation's codes of this type, by the names of their arguments; refuses several scales.
  Steps steps_of(const graph::Node& node, at::ScalarType codes, const char* scale,
                 const char* zero_point) const;
  /// The steps of an `ulp::quantize`; refuses those that the format does not have.
  Steps steps_of_quantize(const graph::Node& node) const;

  // Operators and tensors.
  void emit(schema::Operation op, Indices inputs, Indices outputs, Options options = {}, int32_t version = 0);
  /// A tensor between two operators of one call.
  Index between(const graph::Node& node, const Shape& shape,
                schema::TensorType type = schema::TensorType::FLOAT32);
  /// The same of codes.
  Index between(const graph::Node& node, const Shape& shape, const Steps& steps);
  /// The same of the type and steps of another one.
  Index like(Index tensor, const Shape& shape);
  schema::TensorType type_of(Index tensor) const { return model_tensor(tensor).type; }
  /// A tensor of the file that is stored. Equal ones without a name of their own are one.
  Index constant(const at::Tensor& tensor);
  Index constant(const at::Tensor& tensor, const std::string& name, const Steps* steps = nullptr);
  Index ints(const std::vector<int64_t>& values);
  /// Pairs as a matrix of two columns.
  Index pairs(const std::vector<int64_t>& values);
  Index scalar(double value);
  /// A number in this type.
  Index number(const graph::Node& node, const c10::Scalar& value, at::ScalarType type);
  /// A tensor's elements in this type.
  Index cast(const graph::Node& node, Index tensor, at::ScalarType type);
  Shape shape_of_tensor(Index tensor) const;
  /// The lowest number, or code, of a tensor's type and steps.
  Index lowest_like(Index tensor);
  /// A reshape; at most one size may change.
  void reshape(const graph::Node& node, Index from, Index to);

  void add_input(const graph::Node& node, const graph::Value& value);
  void add_output(const graph::Node& node, const graph::Value& value, const std::string& name);
  /// The bytes of the file; throws ulp::Error for a model of 2 GB or more.
  std::string bytes();

 private:
  void emit_cast(Index from, Index to);
  /// An input of bytes, whose elements `tensor` holds.
  Index bytes_before(Index tensor);
  struct Place {
    std::map<Layout, Index> at;
    Layout made = Layout::as_is;
    Steps steps;
  };
  const schema::TensorT& model_tensor(Index i) const { return *part_.tensors.at(static_cast<size_t>(i)); }
  Index add_tensor(const std::string& name, schema::TensorType type, const Shape& shape, uint32_t buffer = 0);
  uint32_t add_buffer(const at::Tensor& dense);
  void quantize_tensor(Index tensor, const Steps& steps);
  Index placed(const graph::Node& reader, const graph::Value* value, Place& place, Layout layout);
  Index turned(const graph::Node& reader, const graph::Value& value, Index from, Layout to);
  std::string unique(const std::string& wish);
  static void set_shape(schema::TensorT& tensor, const Shape& shape, bool free);

  const graph::Graph& graph_;
  std::vector<int64_t> sizes_;
  bool free_batch_, integer_io_;
  schema::ModelT model_;
  schema::SubGraphT part_;
  std::map<const graph::Value*, Place> numbers_, codes_;
  std::map<const graph::Value*, int64_t> flattened_;
  std::map<const graph::Value*, at::Tensor> folded_;
  std::map<std::string, Index> constants_;
  std::map<std::pair<schema::Operation, int32_t>, uint32_t> operations_;
  std::set<const graph::Node*> done_;
  std::set<std::string> taken_;
  std::set<Index> fixed_;  // inputs, constants and results: no result of the model may be one of them
};

/// The element type of the file; refuses one that has none.
schema::TensorType type_of(const graph::Node& node, at::ScalarType type);
/// The clamp of a call as operators take it behind them.
std::optional<schema::Activation> fused_activation(const graph::Node& node);

}  // namespace ulp::exchange::tflite
