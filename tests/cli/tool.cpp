#include "tool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "served.h"

namespace ulp::test {

namespace fs = std::filesystem;

namespace {

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

/// Class c is a bright bar in row 2 c + 4, on noise.
void write_split(const fs::path& folder, const std::string& prefix, int count, unsigned seed) {
  std::mt19937 random(seed);
  std::string images = big_endian(0x803) + big_endian(count) + big_endian(28) + big_endian(28);
  std::string labels = big_endian(0x801) + big_endian(count);
  for (int i = 0; i < count; ++i) {
    const int label = static_cast<int>(random() % 10);
    labels += static_cast<char>(label);
    for (int pixel = 0; pixel < 28 * 28; ++pixel) {
      images += static_cast<char>(pixel / 28 == 2 * label + 4 ? 255 : random() % 64);
    }
  }
  write_file(folder / (prefix + "-images-idx3-ubyte"), images);
  write_file(folder / (prefix + "-labels-idx1-ubyte"), labels);
}

/// A command that trains would follow the machine, and tests compare bits.
std::string all_threads() {
  return std::to_string(std::max(1U, std::thread::hardware_concurrency()));
}

/// Processes of `ulp launch` share the cores.
std::string fixed_threads(const std::string& args) {
  return args.starts_with("launch") ? "" : "OMP_NUM_THREADS=" + all_threads() + " ";
}

constexpr const char* kStdout = ".stdout";
constexpr const char* kStderr = ".stderr";

/// Started by the first call.
const ToolServer& server() {
  static const ToolServer made(all_threads());
  return made;
}

/// The words of a call that may be served; nullopt for one that has to start the program.
std::optional<std::vector<std::string>> served_words(const std::string& args) {
  static const char* const wanted = std::getenv("ULP_TEST_SERVER");
  if (std::string(ULP_TOOL_SERVER).empty() || (wanted != nullptr && std::string(wanted) == "off")) return {};
  auto words = plain_words(args);
  if (!words || args.starts_with("launch") || !server().has_this_environment()) return {};
  return words;
}

}  // namespace

Workshop* WithLeNet5::shop_ = nullptr;

std::string read_file(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string bytes_of_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

Outcome Workshop::ulp(const std::string& args) const {
  const auto words = served_words(args);
  if (!words) return started(args);
  return outcome(wait(server().start(folder().string(), kStdout, kStderr, *words)));
}

Outcome Workshop::started(const std::string& args, const std::string& before) const {
  const std::string command = "cd '" + folder().string() + "' && " + before + " " + fixed_threads(args) +
                              "'" ULP_TOOL "' " + args + " >" + kStdout + " 2>" + kStderr + " </dev/null";
  return outcome(code_of(std::system(("bash -c \"" + command + "\"").c_str())));
}

Outcome Workshop::outcome(int code) const {
  return {.code = code, .out = read_file(folder_ / kStdout), .err = read_file(folder_ / kStderr)};
}

pid_t Workshop::start(const std::string& args, const std::string& before) const {
  const pid_t process = ::fork();
  if (process != 0) return process;
  const std::string command = "cd '" + folder().string() + "' && " + before + fixed_threads(args) +
                              "exec '" ULP_TOOL "' " + args + " >/dev/null 2>&1";
  ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
  ::_exit(127);
}

pid_t Workshop::start_copy(const std::string& args) const {
  const auto words = served_words(args);
  return words ? server().start(folder().string(), "/dev/null", "/dev/null", *words) : start(args);
}

int Workshop::wait(pid_t process) {
  int status = 0;
  if (::waitpid(process, &status, 0) < 0) status = server().wait(process);  // it is the server's child
  return code_of(status);
}

void Workshop::make_data(const std::string& name, int train_images, int test_images) const {
  fs::create_directories(folder_ / name);
  write_split(folder_ / name, "train", train_images, 1);
  write_split(folder_ / name, "t10k", test_images, 2);
}

void Workshop::make_rows() const {
  std::string x, y;
  for (int i = 0; i < 200; ++i) {
    const int64_t label = (i * 7 / 3) % 3;
    for (int64_t c = 0; c < 3; ++c) {
      const float value = c == label ? 5.0f + static_cast<float>(i % 5) : static_cast<float>((i * 5 + c) % 4);
      x.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    y.append(reinterpret_cast<const char*>(&label), sizeof label);
  }
  write_file(folder_ / "x.npy", npy("<f4", "200, 3", x));
  write_file(folder_ / "y.npy", npy("<i8", "200,", y));
}

void Workshop::train_lenet5() const {
  make_data("data");
  const Outcome outcome =
      ulp("train --model lenet5 --data data --epochs 6 --batch 16 --lr 0.05 --out m.safetensors");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

void expect_error(const Outcome& outcome, int code, const std::string& says) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("ulp: ")) << outcome.err;
  EXPECT_NE(outcome.err.find(says), std::string::npos) << "'" << says << "' is not in: " << outcome.err;
}

}  // namespace ulp::test
