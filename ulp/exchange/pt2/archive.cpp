#include "ulp/exchange/pt2/archive.h"

#include <torch/types.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/exchange/pt2/where.h"

namespace ulp::exchange::pt2 {

namespace {

namespace fs = std::filesystem;
using graph::Attribute;

constexpr const char* kKind = "a .pt2 archive of torch.export";
constexpr std::string_view kModels = "models/", kJson = ".json";

/// Whether a name stays inside the archive's folder.
bool is_inside(const std::string& name) {
  const fs::path path(name);
  bool plain = !name.empty() && path.is_relative() && name.find('\\') == std::string::npos;
  for (const fs::path& part : path) plain = plain && part != ".." && part != ".";
  return plain;
}

/// Elements of a tensor whose places all lie in its memory; sizes and strides of strangers overflow integers.
void check_places(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset,
                  int64_t elements, const std::string& name) {
  constexpr size_t kMostDims = 64;
  bool fits = sizes.size() == strides.size() && sizes.size() <= kMostDims && offset >= 0;
  int64_t last = offset, count = 1;
  bool empty = false;
  for (size_t d = 0; fits && d < sizes.size(); ++d) {
    int64_t reach = 0;
    fits = sizes[d] >= 0 && strides[d] >= 0;
    empty = empty || sizes[d] == 0;
    const int64_t size = std::max<int64_t>(sizes[d], 1);
    fits = fits && !__builtin_mul_overflow(size - 1, strides[d], &reach) &&
           !__builtin_add_overflow(last, reach, &last) && !__builtin_mul_overflow(count, size, &count);
  }
  // No more numbers than there are: one that repeats could stand for any number of them.
  fits = fits && (empty ? offset <= elements : last < elements && count <= elements);
  if (!fits)
    fail_file(kImportPt2Where, "expected sizes and strides inside the ", elements, " numbers of '", name,
              "', got ", at::IntArrayRef(sizes), " by ", at::IntArrayRef(strides), " from ", offset);
}

std::vector<int64_t> numbers_of(const Json& list) {
  std::vector<int64_t> numbers;
  for (const Json& one : list) numbers.push_back(plain_number(one));
  return numbers;
}

at::Tensor read_memory(io::ZipReader& reader) {
  at::Tensor memory = at::empty({static_cast<int64_t>(reader.left())}, at::kByte);
  reader.read(memory.mutable_data_ptr(), reader.left());
  reader.expect_end();
  return memory;
}

/// Tensors of one folder of the archive, by their description.
class Stored {
 public:
  Stored(Json config, std::string folder) : config_(std::move(config)), folder_(std::move(folder)) {}

  /// `open(path)` gives the reader of an entry.
  template <typename Open>
  at::Tensor read(const std::string& name, const Open& open) {
    const auto found = config_.at("config").find(name);
    if (found == config_.at("config").end())
      fail_file(kImportPt2Where, "expected the tensor '", name, "' in the archive");
    const Json& entry = *found;
    const Json& meta = entry.at("tensor_meta");
    if (entry.at("use_pickle").get<bool>())
      fail_file(kImportPt2Where, "expected plain numbers, got '", name, "' as a pickle, which is never read");
    if (whole_number(meta.at("layout")) != kDense)
      fail_file(kImportPt2Where, "expected a dense tensor, got '", name, "'");
    const at::ScalarType type = scalar_type(meta.at("dtype"));
    const std::string path = folder_ + entry.at("path_name").get<std::string>();
    Memory& all = memory_[path];
    if (!all.bytes.defined()) all.bytes = read_memory(*open(path));
    const at::Tensor memory = numbers_in(all, type, path);
    const std::vector<int64_t> sizes = numbers_of(meta.at("sizes")), strides = numbers_of(meta.at("strides"));
    const int64_t offset = plain_number(meta.at("storage_offset"));
    check_places(sizes, strides, offset, memory.numel(), name);
    at::Tensor& view = views_[{path, type, sizes, strides, offset}];
    if (!view.defined()) view = at::as_strided(memory, sizes, strides, offset).detach();
    if (entry.at("is_param").get<bool>() && at::isFloatingType(type) && meta.at("requires_grad").get<bool>())
      view.requires_grad_(true);
    return view;
  }

 private:
  /// An entry, read once whatever types its tensors have.
  struct Memory {
    at::Tensor bytes;
    bool has_bools = false;  ///< it was looked through
  };
  using View = std::tuple<std::string, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>, int64_t>;

  /// The numbers of a type that an entry holds.
  static at::Tensor numbers_in(Memory& memory, at::ScalarType type, const std::string& path) {
    const auto size = static_cast<int64_t>(c10::elementSize(type));
    if (memory.bytes.numel() % size != 0)
      fail_file(kImportPt2Where, "expected whole numbers of ", size, " bytes in '", path, "', got ",
                memory.bytes.numel(), " bytes");
    if (type == at::kBool && !memory.has_bools) memory.has_bools = !memory.bytes.gt(1).any().item<bool>();
    if (type == at::kBool && !memory.has_bools)
      fail_file(kImportPt2Where, "expected 0 and 1 as the bools of '", path, "'");
    return memory.bytes.view(type);
  }

  Json config_;
  std::string folder_;
  std::map<std::string, Memory> memory_;
  std::map<View, at::Tensor> views_;
};

}  // namespace

Archive::Archive(const fs::path& path) : zip_(path, kImportPt2Where, kKind) {
  check();
}

Archive::Archive(std::string_view bytes, const fs::path& name) : zip_(bytes, name, kImportPt2Where, kKind) {
  check();
}

void Archive::check() {
  for (const io::ZipEntry& entry : zip_.entries()) {
    if (!is_inside(entry.name))
      fail_file(kImportPt2Where, "expected names inside the archive, got '", zip_.label(entry), "'");
    const size_t slash = entry.name.find('/');
    const std::string folder = entry.name.substr(0, slash == std::string::npos ? 0 : slash + 1);
    if (folder_.empty()) folder_ = folder;
    if (folder.empty() || folder != folder_)
      fail_file(kImportPt2Where, "expected one folder with all entries, got '", zip_.label(entry), "'");
    if (!entry.stored)
      fail_file(kImportPt2Where, "expected entries that are stored as they are, got '", zip_.label(entry),
                "', which is compressed");
    const std::string name = entry.name.substr(folder_.size());
    entries_[name] = &entry;
    if (!name.starts_with(kModels) || !name.ends_with(kJson)) continue;
    if (!model_.empty())
      fail_file(kImportPt2Where, "expected an archive of one program, got another one, '", zip_.label(entry),
                "'");
    model_ = name.substr(kModels.size(), name.size() - kModels.size() - kJson.size());
  }
  if (model_.empty() || text("archive_format") != "pt2")
    fail_file(kImportPt2Where, "expected ", kKind,
              ", as torch.export.save() writes it, got another zip file");
  if (const std::string version = text("archive_version"); version != "0")
    fail_file(kImportPt2Where, "expected version 0 of the archive, which PyTorch 2.13 writes, got '",
              version.substr(0, 16), "'");
  if (const std::string order = text("byteorder"); order != "little")
    fail_file(kImportPt2Where, "expected numbers of little-endian machines, got '", order.substr(0, 16), "'");
}

const io::ZipEntry* Archive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

std::string Archive::text(const std::string& name) const {
  const io::ZipEntry* entry = find(name);
  if (entry == nullptr) fail_file(kImportPt2Where, "expected the entry '", name, "' in the archive");
  const auto reader = zip_.open(*entry);
  std::string text(reader->left(), '\0');
  reader->read(text.data(), text.size());
  reader->expect_end();
  return text;
}

Program Archive::program() const {
  return read_program(text("models/" + model_ + ".json"));
}

std::vector<std::pair<std::string, Attribute>> Archive::tensors(const Program& program) const {
  using Kind = Attribute::Kind;
  Stored weights(parse_json(text("data/weights/" + model_ + "_weights_config.json")), "data/weights/");
  Stored constants(parse_json(text("data/constants/" + model_ + "_constants_config.json")),
                   "data/constants/");
  const auto open = [&](const std::string& path) {
    const io::ZipEntry* entry = find(path);
    if (entry == nullptr) fail_file(kImportPt2Where, "expected the entry '", path, "' in the archive");
    return zip_.open(*entry);
  };
  std::vector<std::pair<std::string, Attribute>> all;
  for (const ProgramTensor& one : program.tensors) {
    const Kind kind = one.parameter ? Kind::parameter : Kind::buffer;
    all.emplace_back(one.name, Attribute{kind, (one.constant ? constants : weights).read(one.name, open)});
  }
  return all;
}

}  // namespace ulp::exchange::pt2
