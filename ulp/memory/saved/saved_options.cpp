#include "ulp/memory/saved/saved_options.h"

#include "ulp/base/error.h"
#include "ulp/base/fields.h"

namespace ulp::memory {

void SavedOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "format", .help = "format of values kept for the backward pass"}, format);
  visitor({.name = "masks", .help = "keep one bit an element where the backward asks no more"}, masks);
  visitor({.name = "group", .help = "values that share a scale in int8 and int4", .min = 64, .max = 1 << 20},
          group);
  visitor({.name = "place", .help = "where values are kept for the backward pass"}, place);
  visitor({.name = "folder",
           .help = "folder of the file",
           .keep_empty = false,
           .unset = "that of temporary files"},
          folder);
  visitor({.name = "smallest", .help = "bytes from which a tensor is treated so", .min = 0}, smallest);
  visitor({.name = "seed", .help = "seed of stochastic rounding"}, seed);
}

void SavedOptions::validate() const {
  check_limits("memory.SavedOptions", *this);
  if (group % 64 != 0) fail("memory.SavedOptions", "expected a multiple of 64 as 'group', got ", group);
}

}  // namespace ulp::memory
