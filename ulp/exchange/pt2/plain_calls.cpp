#include "ulp/exchange/pt2/plain_calls.h"

namespace ulp::exchange::pt2 {
void spell_out(graph::Graph&) {}
}  // namespace ulp::exchange::pt2
