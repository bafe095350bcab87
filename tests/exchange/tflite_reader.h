// Reads TensorFlow Lite files for tests, by offsets and field numbers alone: it shares nothing with the
// generated code that writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace ulp::test {

/// A table of a flat buffer: its fields by number.
class FlatTable {
 public:
  FlatTable() = default;
  FlatTable(const std::string* bytes, size_t at) : bytes_(bytes), at_(at) {}
  static FlatTable root(const std::string* bytes) { return {bytes, number_at<uint32_t>(*bytes, 0)}; }

  bool there() const { return bytes_ != nullptr; }
  template <typename T>
  T get(int field, T otherwise = 0) const {
    const size_t place = place_of(field);
    return place == 0 ? otherwise : number_at<T>(*bytes_, place);
  }
  std::string text(int field) const {
    const std::vector<char> letters = list<char>(field);
    return {letters.begin(), letters.end()};
  }
  template <typename T>
  std::vector<T> list(int field) const {
    std::vector<T> values;
    const size_t start = target_of(place_of(field));
    for (size_t i = 0; start != 0 && i < number_at<uint32_t>(*bytes_, start); ++i)
      values.push_back(number_at<T>(*bytes_, start + 4 + i * sizeof(T)));
    return values;
  }
  FlatTable table(int field) const {
    const size_t target = target_of(place_of(field));
    return target == 0 ? FlatTable() : FlatTable(bytes_, target);
  }
  std::vector<FlatTable> tables(int field) const {
    std::vector<FlatTable> values;
    const size_t start = target_of(place_of(field));
    for (size_t i = 0; start != 0 && i < number_at<uint32_t>(*bytes_, start); ++i)
      values.emplace_back(bytes_, target_of(start + 4 + 4 * i));
    return values;
  }
  /// Where the elements of a list begin in the file.
  size_t list_start(int field) const { return target_of(place_of(field)) + 4; }

 private:
  template <typename T>
  static T number_at(const std::string& bytes, size_t at) {
    if (at + sizeof(T) > bytes.size()) throw std::out_of_range("a number beyond the file");
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
  }
  size_t place_of(int field) const {
    if (bytes_ == nullptr) return 0;
    const size_t list = at_ - static_cast<size_t>(static_cast<int64_t>(number_at<int32_t>(*bytes_, at_)));
    const auto entry = static_cast<size_t>(4 + 2 * field);
    if (entry >= number_at<uint16_t>(*bytes_, list)) return 0;
    const auto offset = number_at<uint16_t>(*bytes_, list + entry);
    return offset == 0 ? 0 : at_ + offset;
  }
  size_t target_of(size_t place) const {
    return place == 0 ? 0 : place + number_at<uint32_t>(*bytes_, place);
  }

  const std::string* bytes_ = nullptr;
  size_t at_ = 0;
};

struct TfliteTensor {
  std::string name = {}, bytes = {};
  int type = 0;
  std::vector<int32_t> shape = {}, signature = {};
  std::vector<float> scale = {};
  std::vector<int64_t> zero_point = {};
  int axis = 0;
  size_t start = 0;  ///< of its bytes in the file
  template <typename T>
  std::vector<T> as() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

struct TfliteOperator {
  int code = 0, version = 0, options_type = 0;
  std::vector<int32_t> inputs, outputs;
  FlatTable options;
};

/// Numbers of the format.
enum TfliteCode {
  kAdd = 0,
  kAveragePool = 1,
  kConcatenation = 2,
  kConv = 3,
  kDepthwise = 4,
  kDequantize = 6,
  kFullyConnected = 9,
  kMaxPool = 17,
  kMul = 18,
  kRelu = 19,
  kReshape = 22,
  kSoftmax = 25,
  kPad = 34,
  kTranspose = 39,
  kMean = 40,
  kPadV2 = 60,
  kQuantize = 114,
  kHardSwish = 117
};
enum TfliteType {
  kFloat32Type = 0,
  kInt32Type = 2,
  kUint8Type = 3,
  kInt64Type = 4,
  kBoolType = 6,
  kInt8Type = 9
};

struct TfliteModel {
  std::string bytes, identifier;
  uint32_t version = 0;
  std::vector<TfliteTensor> tensors;
  std::vector<TfliteOperator> operators;
  std::vector<int32_t> inputs, outputs;
  std::vector<std::string> signature_inputs, signature_outputs;

  const TfliteTensor& tensor(int32_t i) const { return tensors.at(static_cast<size_t>(i)); }
  const TfliteTensor& input(const TfliteOperator& op, size_t i) const { return tensor(op.inputs.at(i)); }
  const TfliteTensor& output(const TfliteOperator& op) const { return tensor(op.outputs.at(0)); }
  std::vector<TfliteOperator> of(int code) const {
    std::vector<TfliteOperator> found;
    for (const TfliteOperator& one : operators) {
      if (one.code == code) found.push_back(one);
    }
    return found;
  }
};

/// The bytes are kept in the result, which must not be copied while its options are read.
inline std::unique_ptr<TfliteModel> read_tflite(std::string bytes) {
  auto model = std::make_unique<TfliteModel>();
  model->bytes = std::move(bytes);
  model->identifier = model->bytes.substr(4, 4);
  const FlatTable root = FlatTable::root(&model->bytes), part = root.tables(2).at(0);
  model->version = root.get<uint32_t>(0);
  const std::vector<FlatTable> buffers = root.tables(4), codes = root.tables(1);
  for (const FlatTable& one : part.tables(0)) {
    TfliteTensor tensor{.name = one.text(3),
                        .type = one.get<int8_t>(1),
                        .shape = one.list<int32_t>(0),
                        .signature = one.list<int32_t>(7)};
    const FlatTable steps = one.table(4), buffer = buffers.at(one.get<uint32_t>(2));
    const std::vector<char> stored = buffer.list<char>(0);
    tensor.bytes.assign(stored.begin(), stored.end());
    if (!stored.empty()) tensor.start = buffer.list_start(0);
    if (steps.there()) {
      tensor.scale = steps.list<float>(2);
      tensor.zero_point = steps.list<int64_t>(3);
      tensor.axis = steps.get<int32_t>(6);
    }
    model->tensors.push_back(std::move(tensor));
  }
  for (const FlatTable& one : part.tables(3)) {
    const FlatTable code = codes.at(one.get<uint32_t>(0));
    model->operators.push_back({.code = code.get<int32_t>(3),
                                .version = code.get<int32_t>(2, 1),
                                .options_type = one.get<uint8_t>(3),
                                .inputs = one.list<int32_t>(1),
                                .outputs = one.list<int32_t>(2),
                                .options = one.table(4)});
  }
  model->inputs = part.list<int32_t>(1);
  model->outputs = part.list<int32_t>(2);
  for (const FlatTable& one : root.tables(7).at(0).tables(0)) model->signature_inputs.push_back(one.text(0));
  for (const FlatTable& one : root.tables(7).at(0).tables(1)) model->signature_outputs.push_back(one.text(0));
  return model;
}

}  // namespace ulp::test
