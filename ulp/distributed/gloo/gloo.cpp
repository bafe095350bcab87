// Gloo, from LibTorch's library. The only source file that sees the headers of stand_in/.
#include <cstdlib>

#include "ulp/base/error.h"
#include "ulp/distributed/backend_group.h"
#include "ulp/distributed/first_line.h"

#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#else
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#endif

namespace ulp::distributed {

#ifdef USE_C10D_GLOO

c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendSetup& setup) {
  using Gloo = c10d::ProcessGroupGloo;
  try {
    const auto options = Gloo::Options::create(setup.timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (interface != nullptr && *interface != '\0') {
      options->devices.push_back(Gloo::createDeviceForInterface(interface));
    } else {
      options->devices.push_back(setup.loopback ? Gloo::createDeviceForHostname("127.0.0.1")
                                                : Gloo::createDefaultDevice());
    }
    return c10::make_intrusive<Gloo>(setup.store, setup.rank, setup.size, options);
  } catch (const std::exception& error) {
    fail("distributed.init_process_group", "rank ", setup.rank, " of ", setup.size,
         " could not connect to the others: ", first_line(error));
  }
}

#else

c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendSetup&) {
  fail("distributed.init_process_group", "expected a LibTorch with Gloo, got one without");
}

#endif

}  // namespace ulp::distributed
