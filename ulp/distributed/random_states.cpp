#include "ulp/distributed/random_states.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include "ulp/base/error.h"
#include "ulp/distributed/first_line.h"

namespace ulp::distributed {

namespace {

std::string name_of(int rank) {
  return "random.cpu." + std::to_string(rank);
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> random_states(ProcessGroup& group) {
  const at::Tensor own = at::detail::getDefaultCPUGenerator().get_state().contiguous();
  const at::Tensor all = at::empty({group.size(), own.numel()}, own.options());
  group.all_gather(all, own).wait();
  std::vector<std::pair<std::string, at::Tensor>> states;
  for (int rank = 1; rank < group.size(); ++rank) states.emplace_back(name_of(rank), all[rank].clone());
  return states;
}

void restore_random_state(const ProcessGroup& group,
                          const std::vector<std::pair<std::string, at::Tensor>>& states) {
  if (group.rank() == 0) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (const auto& [name, state] : states) {
    if (name != name_of(group.rank())) continue;
    try {
      return generator.set_state(state);
    } catch (const std::exception& error) {
      fail_file("distributed.restore_random_state", "the random state '", name,
                "' is damaged: ", first_line(error));
    }
  }
  generator.set_current_seed(generator.current_seed() + static_cast<uint64_t>(group.rank()));
}

}  // namespace ulp::distributed
