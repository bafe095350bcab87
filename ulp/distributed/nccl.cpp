// NCCL, where LibTorch and the machine that builds ulp have it.
#include "ulp/base/error.h"
#include "ulp/distributed/backend_group.h"
#include "ulp/distributed/first_line.h"

#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#define ULP_HAS_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#endif

namespace ulp::distributed {

#ifdef ULP_HAS_NCCL

c10::intrusive_ptr<c10d::Backend> make_nccl(const BackendSetup& setup) {
  using Nccl = c10d::ProcessGroupNCCL;
  try {
    const auto options = Nccl::Options::create();
    options->timeout = setup.timeout;
    return c10::make_intrusive<Nccl>(setup.store, setup.rank, setup.size, options);
  } catch (const std::exception& error) {
    fail("distributed.init_process_group", "rank ", setup.rank, " of ", setup.size,
         " could not start NCCL: ", first_line(error));
  }
}

#else

c10::intrusive_ptr<c10d::Backend> make_nccl(const BackendSetup&) {
  fail("distributed.init_process_group", "expected an ulp that was built with NCCL, got one without");
}

#endif

}  // namespace ulp::distributed
