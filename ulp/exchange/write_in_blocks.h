// Files that are written in many small pieces.
#pragma once

#include <string>

#include "ulp/base/atomic_file.h"
#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::exchange {

/// Calls write(sink), whose many small pieces go to the file in large ones.
template <typename Write>
void write_in_blocks(AtomicFile& file, const Write& write) {
  constexpr size_t kEnough = 1 << 20;
  std::string waiting;
  const auto flush = [&] {
    file.write(waiting);
    waiting.clear();
  };
  const WireWriter::Sink sink = [&](const void* data, size_t count) {
    if (waiting.size() + count > kEnough) flush();
    if (count > kEnough) return file.write(data, count);
    waiting.append(static_cast<const char*>(data), count);
  };
  write(sink);
  flush();
}

}  // namespace ulp::exchange
