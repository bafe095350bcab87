// Amounts of memory as people type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp {

/// So many bytes, written with a unit: 12GiB, 1.5 GB, 4096.
struct ULP_API ByteSize {
  /// Describes the texts that from_text() reads, for messages.
  static constexpr const char* kExpected = "bytes as 12GiB, 1.5GB, 800MiB or 4096";

  int64_t bytes = 0;

  /// The shortest of "12GiB", "800MiB", "5KiB" and "4097" that is exact.
  std::string text() const;
  /// A number >= 1 of bytes (B or nothing), KiB, MiB, GiB, TiB, or KB, MB, GB, TB, which are powers of 1000;
  /// letters of either case, perhaps behind a space. Nothing for another text and for 2^62 bytes and more.
  static std::optional<ByteSize> from_text(std::string_view text);
  bool operator==(const ByteSize&) const = default;
};

}  // namespace ulp
