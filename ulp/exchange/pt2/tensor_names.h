// Names of parameters, buffers and constants that Python can give to attributes of a module.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::exchange::pt2 {

/// The name that each of these different names has in an archive. torch.export makes attributes of them, and
/// a module of every part before a dot. A name that works there stays as it is, to the byte. Another one is
/// mended and gets a number where the result is taken: "self" becomes "self_", "a" beside "a.b" becomes
/// "a_1".
///
/// Names that do not work: keywords of Python and members of torch.nn.Module as parts, members of
/// torch.fx.GraphModule as first parts, "self", a part without characters, a tensor where another name has a
/// module, and parts with quotes, backslashes, "@", control characters or characters beyond ASCII, which
/// Python compares in a normal form.
ULP_API std::map<std::string, std::string> attribute_names(const std::vector<std::string>& names);

/// Whether a name works by itself, whatever others there are.
ULP_API bool is_attribute_path(const std::string& name);

}  // namespace ulp::exchange::pt2
