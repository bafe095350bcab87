// The variables that torchrun and `ulp launch` set.
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/distributed/init.h"

namespace ulp::distributed {

namespace {

constexpr const char* kFromEnvironmentWhere = "distributed.from_environment";
constexpr int kLargestPort = 65535;
constexpr int kMostSeconds = 30 * 24 * 3600;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// Nothing where it is not set.
std::optional<int> number(const char* name, int least, int most) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < least || value > most)
    fail(kFromEnvironmentWhere, "expected a number from ", least, " to ", most, " in ", name, ", got '",
         *text, "'");
  return value;
}

[[noreturn]] void missing(const char* name, const char* beside) {
  fail(
      kFromEnvironmentWhere, "expected ", name, " beside ", beside,
      ", got none (torchrun and `ulp launch` set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT)");
}

}  // namespace

InitOptions InitOptions::from_environment() {
  constexpr int kMost = std::numeric_limits<int16_t>::max();
  InitOptions options;
  const auto rank = number("RANK", 0, kMost - 1), world_size = number("WORLD_SIZE", 1, kMost);
  if (rank && !world_size) missing("WORLD_SIZE", "RANK");
  if (world_size && !rank) missing("RANK", "WORLD_SIZE");
  if (const auto seconds = number("ULP_DISTRIBUTED_TIMEOUT", 1, kMostSeconds)) {
    options.connect_timeout = options.timeout = std::chrono::seconds(*seconds);
  }
  if (!rank) return options;
  options.rank = *rank;
  options.world_size = *world_size;
  options.local_rank = number("LOCAL_RANK", 0, kMost - 1).value_or(*rank);
  const auto address = variable("MASTER_ADDR");
  const auto port = number("MASTER_PORT", 1, kLargestPort);
  if (options.world_size > 1 && !address) missing("MASTER_ADDR", "WORLD_SIZE");
  if (options.world_size > 1 && !port) missing("MASTER_PORT", "WORLD_SIZE");
  options.master_address = address.value_or("");
  options.master_port = port.value_or(0);
  options.launcher_listens = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  options.validate();
  return options;
}

void InitOptions::validate() const {
  constexpr const char* kOptions = "distributed.InitOptions";
  if (world_size < 1) fail(kOptions, "expected world_size >= 1, got ", world_size);
  if (rank < 0 || rank >= world_size)
    fail(kOptions, "expected a rank from 0 to ", world_size - 1, " among ", world_size, " processes, got ",
         rank);
  if (local_rank < 0) fail(kOptions, "expected local_rank >= 0, got ", local_rank);
  if (connect_timeout.count() <= 0 || timeout.count() <= 0)
    fail(kOptions, "expected time-outs > 0, got ", connect_timeout.count(), " and ", timeout.count(), " ms");
  if (world_size == 1 || !file.empty()) return;
  if (master_address.empty())
    fail(kOptions, "expected master_address or file where several processes meet, got neither");
  if (master_port < 1 || master_port > kLargestPort)
    fail(kOptions, "expected master_port from 1 to ", kLargestPort, ", got ", master_port);
}

}  // namespace ulp::distributed
