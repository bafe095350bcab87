// Reads one array in NumPy's format from any source of bytes; not installed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ulp::io {

/// Where the bytes of an array come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Throws FileError when fewer bytes are left.
  virtual void read(void* target, uint64_t bytes) = 0;
  virtual uint64_t left() const = 0;            ///< bytes not read yet
  virtual const std::string& name() const = 0;  ///< the file, for messages
};

/// The array that fills the source to its end. Throws FileError as load_npy() does.
at::Tensor read_npy(ByteSource& source);

}  // namespace ulp::io
