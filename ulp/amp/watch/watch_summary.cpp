#include "ulp/amp/watch/watch_summary.h"

#include <sstream>

namespace ulp::amp {

std::string OpLocation::describe() const {
  std::string out = op;
  if (!autograd_node.empty()) out += " of " + autograd_node;
  if (!path.empty()) out += " in " + path;
  if (!node.empty()) out += " (node " + node + ")";
  return out;
}

std::string NonFinite::describe() const {
  std::ostringstream out;
  out << (place.pass == Pass::forward ? "forward: " : "backward: ") << place.describe() << ", ";
  if (place.output > 0) out << "output " << place.output << ' ';
  out << '[';
  for (size_t d = 0; d < index.size(); ++d) out << (d ? ", " : "") << index[d];
  out << "] is " << value << (inputs_finite ? ", from finite inputs" : ", its inputs were not finite");
  return out.str();
}

}  // namespace ulp::amp
