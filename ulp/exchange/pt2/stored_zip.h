// A zip file whose entries are stored as they are, written front to back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/exchange/proto/wire_writer.h"

namespace ulp::exchange::pt2 {

/// Entries of one folder. The bytes of each begin at a multiple of 64, as PyTorch's do, so that a reader may
/// map them. Sizes and places of 4 GB and more take zip64's fields. There are no times in it: equal entries
/// make equal files. Format: PKWARE's APPNOTE.TXT 6.3.
class StoredZip {
 public:
  StoredZip(const WireWriter::Sink& sink, std::string folder);

  void add(const std::string& name, std::string_view bytes);
  /// The list of the entries; nothing comes after it.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint32_t checksum = 0;
    uint64_t size = 0, place = 0;
  };
  void put(std::string_view bytes);

  const WireWriter::Sink& sink_;
  std::string folder_;
  std::vector<Entry> entries_;
  uint64_t place_ = 0;
};

}  // namespace ulp::exchange::pt2
