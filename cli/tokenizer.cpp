// ulp tokenizer: a tokenizer.json learned from a text.
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"
#include "cli/model_flags.h"
#include "ulp/io/tokenizer/train_tokenizer.h"

namespace ulp::cli {

namespace {

struct TokenizerFlags : CommonFlags {
  std::string text, out;
  io::TokenizerTraining training;
};

/// GPT-2's byte pairs have neither: bytes are its alphabet, and texts come back as they were.
void check_kind(const TokenizerFlags& flags, const CLI::App& command) {
  if (flags.training.kind == io::TokenizerKind::wordpiece) return;
  for (const char* flag : {"--lowercase", "--alphabet"}) {
    if (command.count(flag) > 0)
      throw CLI::ValidationError(
          flag, std::string("is for --kind wordpiece, got --kind ") + enum_name(flags.training.kind));
  }
}

void run(const TokenizerFlags& flags, const CLI::App& command) {
  check_kind(flags, command);
  check_other_file(flags.text, flags.out);
  check_writable(flags.out);
  as_usage([&] { flags.training.validate(); });
  const io::Tokenizer tokenizer = io::train_tokenizer_on(flags.text, flags.training);
  tokenizer.save(flags.out);
  const auto tokens = tokenizer.vocab_size();
  if (flags.json) return print_json({{"file", flags.out}, {"tokens", tokens}});
  std::cout << "wrote " << flags.out << ": " << enum_name(tokenizer.kind()) << " of " << tokens
            << " tokens\n";
}

void add_tokenizer(CLI::App& app) {
  auto flags = std::make_shared<TokenizerFlags>();
  CLI::App* command =
      add_command(app, "tokenizer", "Learn a tokenizer from a text",
                  "  ulp tokenizer book.txt --out tokenizer.json\n"
                  "  ulp tokenizer book.txt --kind wordpiece --vocab-size 4000 --out wordpiece.json\n",
                  *flags);
  command->add_option("text", flags->text, "Text file in UTF-8")->required();
  command->add_option("-o,--out", flags->out, "File to write, as Hugging Face's tokenizer.json")->required();
  add_field_flags(*command, flags->training);
  command->callback([flags, command] { run(*flags, *command); });
}

const Command kTokenizerCommand("tokenizer", add_tokenizer);

}  // namespace

}  // namespace ulp::cli
