// Tokenizers as the text they were made from: all that descriptions of models need of them.
#include "ulp/base/atomic_file.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/io/tokenizer/tokenizer_state.h"

namespace ulp::io {

const std::string& Tokenizer::to_json() const {
  return state_->json;
}

void Tokenizer::save(const std::filesystem::path& path) const {
  AtomicFile file(path);
  file.write(state_->json);
  file.commit();
}

}  // namespace ulp::io
