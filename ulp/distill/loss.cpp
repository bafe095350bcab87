#include "ulp/distill/loss.h"

namespace ulp::distill {

Loss::~Loss() = default;

const std::vector<std::string>& Loss::places() const {
  static const std::vector<std::string> one = {"value"};
  return one;
}

bool Loss::same_width() const {
  return false;
}

void Loss::prepare(const LossInput&, int64_t) {}

bool Loss::set_temperature(double) {
  return false;
}

}  // namespace ulp::distill
