// Stands in for Gloo's header of this name, which LibTorch needs and does not ship: names of what stays
// behind pointers.
#pragma once

namespace gloo::transport {

class Device;
class UnboundBuffer;

}  // namespace gloo::transport
