#include "cli/model_flags.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <numbers>
#include <sstream>

#include "ulp/base/error.h"

namespace ulp::cli {

namespace fs = std::filesystem;

namespace {

/// "3,48,64" or "3x48x64".
std::vector<int64_t> image_sizes(const std::string& text) {
  constexpr size_t kSizes = 3, kMostDigits = 9;
  const auto refuse = [&] {
    throw CLI::ValidationError(
        "--shape", "expected channels,height,width, as 3,48,64 or 3x48x64, each at least 1, got " + text);
  };
  std::vector<int64_t> sizes;
  std::string commas = text;
  std::ranges::replace(commas, 'x', ',');
  for (const std::string& word : CLI::detail::split(commas, ',')) {
    const bool digits = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    sizes.push_back(digits && word.size() <= kMostDigits ? std::stoll(word) : 0);
  }
  if (sizes.size() != kSizes || std::ranges::count(sizes, 0) > 0) refuse();
  return sizes;
}

/// A size of 1 or more; 0 of other words.
int64_t size_in(const std::string& digits) {
  constexpr size_t kMostDigits = 9;
  const bool number = !digits.empty() && digits.size() <= kMostDigits &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoll(digits) : 0;
}

/// "NAME=N" or "NAME=A:B".
void take_size(const std::string& text, ScriptShape& shape) {
  const size_t sign = text.rfind('=');
  const std::string range = sign == std::string::npos ? "" : text.substr(sign + 1);
  const size_t colon = range.find(':');
  const int64_t largest = size_in(colon == std::string::npos ? range : range.substr(colon + 1));
  const int64_t smallest = colon == std::string::npos ? 1 : size_in(range.substr(0, colon));
  if (sign == 0 || largest < 1 || smallest < 1)
    throw CLI::ValidationError("--size",
                               "expected the name of a dimension and its largest size, as time=512, or its "
                               "smallest and largest, as time=16:512, got " +
                                   text);
  if (colon != std::string::npos && smallest >= largest)
    throw CLI::ValidationError("--size", "expected a smallest size below the largest, got " + text);
  const std::string name = text.substr(0, sign);
  if (!shape.sizes.emplace(name, largest).second)
    throw CLI::ValidationError("--size", "expected each dimension once, got '" + name + "' again");
  if (smallest > 1) shape.smallest[name] = smallest;
}

/// --shape; `given` tells whether it was.
void add_shape_option(CLI::App& command, const std::string& help, std::vector<int64_t>& shape, bool& given) {
  const auto take = [&](const std::string& text) {
    shape = image_sizes(text);
    given = true;
  };
  command.add_option_function<std::string>("--shape", take, help)
      ->type_name("C,H,W")
      ->default_str(CLI::detail::join(shape, ","));
}

}  // namespace

void ScriptShape::add_to(CLI::App& command) {
  add_shape_option(command,
                   "What a file of another writer leaves free: channels,height,width of images (3,48,64 or "
                   "3x48x64), or values,1,1 of rows",
                   shape, given);
  const auto take = [this](const std::vector<std::string>& all) {
    for (const std::string& one : all) take_size(one, *this);
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--size", take,
          "ONNX files and .pt2 archives: the largest size of a free dimension, 64 unless named (time=512), "
          "or its smallest and largest (time=16:512); of published decoders time, 2048 unless named; may be "
          "given several times")
      ->type_name("NAME=[A:]N")
      ->allow_extra_args(false);
  command.add_option("--network", network,
                     "Published weights without a config.json: of which reference network");
  command
      .add_option("--normalize", normalize,
                  "Files of other writers: mean,std of pixels in [0, 1], or of rows' values")
      ->delimiter(',')
      ->expected(2)
      ->capture_default_str();
}

app::ModelSpec ScriptShape::spec() const {
  if (!(std::isfinite(normalize[0]) && normalize[1] > 0 && std::isfinite(normalize[1])))
    throw CLI::ValidationError("--normalize", "expected a finite mean and a finite deviation > 0");
  app::ModelSpec spec;
  spec.network = network;
  spec.in_channels = shape[0];
  spec.image_size = shape[1];
  spec.image_width = shape[2];
  spec.asked = given;
  spec.sizes = sizes;
  spec.smallest_sizes = smallest;
  spec.mean.assign(static_cast<size_t>(shape[0]), normalize[0]);
  spec.std.assign(static_cast<size_t>(shape[0]), normalize[1]);
  return spec;
}

void add_shape_flags(CLI::App& command, app::ModelShape& shape) {
  add_shape_option(command,
                   "Networks by name, and what a file of another writer leaves free: channels,height,width "
                   "of images (3,48,64 or 3x48x64; by name square ones), or values,1,1 of rows",
                   shape.image, shape.given);
  command.add_option("--classes", shape.classes, "Networks by name: how many")
      ->check(positive())
      ->capture_default_str();
}

void add_any_data_option(CLI::App& command, std::string& data) {
  command
      .add_option(
          "--data", data,
          "fashion-mnist, a folder with IDX or CIFAR-10 files, FILE.npz, X.npy,Y.npy, FILE.tsv (label, "
          "tab, text) or a text; quantize and prune: FILE.npz with an array for each input, by its name")
      ->capture_default_str();
}

void add_error_budget(CLI::App& command, double& budget) {
  command
      .add_option("--error-budget", budget,
                  "Of an engine in f32: layers run in bf16 where that is faster and rounding changes their "
                  "results by no more than "
                  "this (0.003 is enough for most; --profile of `ulp bench` says which)")
      ->check(CLI::Range(0.0, 1.0));
}

void add_measuring_limit(CLI::App& command, double& seconds) {
  command
      .add_option("--max-measuring-seconds", seconds,
                  "Of engines that load: after so long no further layer is timed; 0 times none, so that "
                  "engines load at "
                  "once and alike")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

std::string describe(const train::Accuracy& accuracy, const app::ModelSpec& spec, const std::string& unit) {
  std::ostringstream out;
  if (spec.kind == app::NetworkKind::language) {
    const char* const token = spec.tokenizer ? "token" : "byte";
    out << "perplexity " << accuracy.perplexity() << " (" << accuracy.loss / std::numbers::ln2 << " bits a "
        << token << "), " << accuracy.percent() << " % of " << accuracy.total << " test " << token
        << "s right";
  } else {
    out << accuracy.percent() << " % of " << accuracy.total << " test " << unit << 's';
  }
  return out.str();
}

void check_writable(const std::string& path) {
  std::error_code missing;
  fs::path real = fs::canonical(path, missing);  // where a link leads
  if (!missing && !fs::is_directory(real) && !fs::is_regular_file(real)) {
    if (::access(path.c_str(), W_OK) != 0) fail("cli", "no permission to write to '", path, "'");
    return;
  }
  if (missing) real = path;
  if (fs::is_symlink(real)) real = real.parent_path() / fs::read_symlink(real);  // to a file not there yet
  fs::path folder = real.parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder))
    fail("cli", "the folder '", folder.string(), "' of the output file does not exist");
  if (::access(folder.c_str(), W_OK) != 0) fail("cli", "no permission to write into '", folder.string(), "'");
  if (fs::is_directory(path)) fail("cli", "the output '", path, "' is a folder");
}

void check_other_file(const std::string& in, const std::string& out) {
  std::error_code error;
  if (fs::equivalent(in, out, error) && !error)
    throw CLI::ValidationError("--out", "'" + out + "' is what would be read: expected another file");
}

std::string ending_of(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

void check_ending(const std::string& out, const std::vector<std::string>& own) {
  constexpr std::array kKnown = {".safetensors", ".ulp", ".onnx", ".pt2",    ".pt",
                                 ".pth",         ".bin", ".gguf", ".tflite", ".mlpackage"};
  const std::string ending = ending_of(out);
  if (std::ranges::find(kKnown, ending) == kKnown.end() || std::ranges::find(own, ending) != own.end())
    return;
  std::string written;
  for (const std::string& one : own) written += (written.empty() ? "" : " or ") + one;
  if (own.empty()) written = "a folder";
  throw CLI::ValidationError("--out", "writes " + written + ", got a name that ends in " + ending +
                                          "; `ulp export --to` writes other formats");
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("cli", "could not make the folder '", path, "': ", error.message());
  if (::access(path.c_str(), W_OK) != 0) fail("cli", "no permission to write into '", path, "'");
}

uint64_t file_bytes(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

void report_written(const CommonFlags& flags, const runtime::Plan& plan, const std::string& path) {
  const auto bytes = file_bytes(path);
  if (flags.json) return print_json({{"file", path}, {"bytes", bytes}, {"steps", plan.steps.size()}});
  std::cout << "wrote " << path << ": " << plan.steps.size() << " steps, " << bytes << " bytes\n";
}

}  // namespace ulp::cli
