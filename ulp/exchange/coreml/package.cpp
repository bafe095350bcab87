#include "ulp/exchange/coreml/package.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/exchange/write_in_blocks.h"

namespace ulp::exchange::coreml {

namespace fs = std::filesystem;

namespace {

constexpr const char *kEnding = ".mlpackage", *kManifest = "Manifest.json", *kAuthor = "com.apple.CoreML";

[[noreturn]] void fail_to(const char* what, const fs::path& path, const std::string& why) {
  fail(kExportCoremlWhere, "could not ", what, " '", path.string(), "': ", why);
}

/// Where the folder is: without a / at its end, and without links.
fs::path place_of(const fs::path& path) {
  const fs::path named = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  const fs::path place = fs::canonical(named, error);
  return error ? named : place;
}

/// Items have identifiers that hold within one package.
std::string manifest() {
  const std::string model = "6F2A1C9E-0B77-4D0A-9C1D-1C6E9B1F0A01",
                    weights = "6F2A1C9E-0B77-4D0A-9C1D-1C6E9B1F0A02";
  const auto item = [](const char* name, const char* description) {
    return nlohmann::json{{"author", kAuthor},
                          {"description", description},
                          {"name", name},
                          {"path", std::string(kAuthor) + "/" + name}};
  };
  const nlohmann::json json = {{"fileFormatVersion", "1.0.0"},
                               {"itemInfoEntries",
                                {{model, item("model.mlmodel", "CoreML Model Specification")},
                                 {weights, item("weights", "CoreML Model Weights")}}},
                               {"rootModelIdentifier", model}};
  return json.dump(2) + "\n";
}

/// A folder beside the target that goes away unless it takes the target's place.
class NewFolder {
 public:
  explicit NewFolder(fs::path target) : target_(std::move(target)) {
    std::string name = (target_.parent_path() / ("." + target_.filename().string() + ".XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) fail_to("make a folder beside", target_, std::strerror(errno));
    path_ = name;
    fs::permissions(path_, fs::perms(0755));
  }
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const fs::path& path() const { return path_; }

  /// An older package changes places with the new one and goes.
  void commit() {
    const bool replaces = fs::exists(target_);
    const unsigned int how = replaces ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), how) != 0)
      fail_to("finish", target_, std::strerror(errno));
    if (!replaces) path_.clear();
  }

 private:
  fs::path target_, path_;
};

/// `write(sink)` fills a file of the package.
template <typename Write>
void write_file(const fs::path& path, const Write& write) {
  AtomicFile file(path);
  write_in_blocks(file, write);
  file.commit();
}

}  // namespace

void check_target(const fs::path& path) {
  const fs::path named = path.has_filename() ? path : path.parent_path();
  if (named.extension() != kEnding)
    fail(kExportCoremlWhere, "expected a name that ends in '", kEnding, "', got '", path.string(), "'");
  const fs::path place = place_of(path);
  const bool is_package = fs::is_directory(place) && fs::is_regular_file(place / kManifest);
  if (fs::exists(place) && !is_package)
    fail(kExportCoremlWhere, "expected nothing or an older package at '", path.string(), "', got ",
         fs::is_directory(place) ? "a folder without " + std::string(kManifest) : "a file");
}

void write_package(const Model& model, const fs::path& path) {
  check_target(path);
  NewFolder folder(fs::absolute(place_of(path)));
  const fs::path data = folder.path() / "Data" / kAuthor;
  fs::create_directories(data / "weights");
  write_file(folder.path() / kManifest, [&](const WireWriter::Sink& sink) {
    const std::string text = manifest();
    sink(text.data(), text.size());
  });
  write_file(data / "weights" / "weight.bin", [&](const WireWriter::Sink& sink) { model.blobs.write(sink); });
  write_file(data / "model.mlmodel", [&](const WireWriter::Sink& sink) {
    WireWriter writer(&sink);
    write(model, writer);
  });
  folder.commit();
}

}  // namespace ulp::exchange::coreml
