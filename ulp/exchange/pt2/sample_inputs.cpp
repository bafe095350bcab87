#include "ulp/exchange/pt2/sample_inputs.h"

#include <algorithm>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/exchange/pt2/stored_zip.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

/// Opcodes of Python's pickletools.
class Pickle {
 public:
  Pickle& op(char code) {
    bytes_ += code;
    return *this;
  }
  Pickle& mark() { return op('('); }
  /// Of what lies above the mark.
  Pickle& tuple() { return op('t'); }
  Pickle& global(std::string_view module, std::string_view name) {
    op('c');
    bytes_.append(module).append("\n").append(name).append("\n");
    return *this;
  }
  Pickle& text(std::string_view text) {
    op('X').little(text.size(), 4);
    bytes_ += text;
    return *this;
  }
  Pickle& number(int64_t number) {
    constexpr int64_t kMost = 0x7fffffff;
    if (number <= kMost) return op('J').little(static_cast<uint64_t>(number), 4);
    return op('\x8a').op('\x08').little(static_cast<uint64_t>(number), 8);
  }
  Pickle& numbers(const std::vector<int64_t>& numbers) {
    mark();
    for (const int64_t one : numbers) number(one);
    return tuple();
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Pickle& little(uint64_t number, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(number >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_ = "\x80\x02";
};

const char* storage_class(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return "ByteStorage";
    case at::kChar:
      return "CharStorage";
    case at::kShort:
      return "ShortStorage";
    case at::kInt:
      return "IntStorage";
    case at::kLong:
      return "LongStorage";
    case at::kHalf:
      return "HalfStorage";
    case at::kFloat:
      return "FloatStorage";
    case at::kDouble:
      return "DoubleStorage";
    case at::kComplexFloat:
      return "ComplexFloatStorage";
    case at::kComplexDouble:
      return "ComplexDoubleStorage";
    case at::kBool:
      return "BoolStorage";
    case at::kBFloat16:
      return "BFloat16Storage";
    default:
      fail(kExportPt2Where, "expected inputs of a type that ulp writes, got ", c10::toString(type));
  }
}

int64_t elements_of(const SampleInput& input) {
  int64_t count = 1;
  for (const int64_t size : input.sizes) count *= size;
  return count;
}

/// torch._utils._rebuild_tensor_v2(storage, 0, sizes, strides, False, OrderedDict()).
void add_tensor(Pickle& pickle, const SampleInput& input, size_t index) {
  std::vector<int64_t> strides(input.sizes.size(), 1);
  for (size_t i = strides.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(input.sizes[i], 1);
  pickle.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage").global("torch", storage_class(input.type));
  pickle.text(std::to_string(index)).text("cpu").number(elements_of(input)).tuple().op('Q');
  pickle.number(0).numbers(input.sizes).numbers(strides).op('\x89');
  pickle.global("collections", "OrderedDict").op(')').op('R').tuple().op('R');
}

}  // namespace

std::string pickled_samples(const std::vector<SampleInput>& inputs) {
  Pickle pickle;
  pickle.mark();
  for (size_t i = 0; i < inputs.size(); ++i) add_tensor(pickle, inputs[i], i);
  pickle.tuple().op('}').op('\x86').op('.');
  std::string bytes;
  const WireWriter::Sink sink = [&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  };
  StoredZip zip(sink, "archive");
  zip.add("data.pkl", pickle.bytes());
  zip.add("byteorder", "little");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto count = static_cast<uint64_t>(elements_of(inputs[i])) * c10::elementSize(inputs[i].type);
    zip.add("data/" + std::to_string(i), std::string(count, '\0'));
  }
  zip.add("version", "3\n");
  zip.finish();
  return bytes;
}

}  // namespace ulp::exchange::pt2
