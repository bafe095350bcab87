// ulp generate: a text that goes on from a prompt.
#include "ulp/app/run/generate.h"

#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/field_flags.h"

namespace ulp::cli {

namespace {

struct GenerateFlags : CommonFlags {
  app::GenerateOptions options;
};

void run(GenerateFlags& flags) {
  apply(flags);
  flags.options.threads = flags.threads;
  std::string next = flags.options.prompt;  // shown when the engine has taken it
  const app::GenerateOutcome outcome = app::generate(flags.options, [&](std::string_view piece) {
    if (!flags.json) std::cout << printable(next += piece) << std::flush;
    next.clear();
  });
  if (flags.json) {
    return print_json({{"prompt", flags.options.prompt},
                       {"text", outcome.text},
                       {"full", outcome.full},
                       {"stopped", outcome.stopped},
                       {"prompt_ms", outcome.prompt_seconds * 1e3},
                       {"ms_per_token", outcome.seconds_per_token * 1e3}});
  }
  std::cout << printable(next) << '\n';  // the prompt, where nothing follows it
  if (outcome.full) std::cerr << "generate: the engine's longest text is full\n";
}

void add_generate(CLI::App& app) {
  auto flags = std::make_shared<GenerateFlags>();
  app::GenerateOptions& options = flags->options;
  CLI::App* command = add_command(app, "generate", "Write on from a prompt, byte by byte or token by token",
                                  "  ulp train --model gpt2 --data book.txt --out gpt2.safetensors\n"
                                  "  ulp lower gpt2.safetensors --continued time --out gpt2.ulp\n"
                                  "  ulp generate gpt2.ulp --prompt \"Once upon a time\" --count 200\n",
                                  *flags);
  command->add_option("engine", options.engine, "Engine file made with --continued time")->required();
  command->add_option("--prompt", options.prompt, "What the text begins with")->required();
  command->add_option(
      "--tokenizer", options.tokenizer,
      "tokenizer.json of the engine's tokens (default: the one in the engine file, else bytes)");
  command->add_option("--stop", options.stop, "The text ends before it; may be given several times");
  command->add_option("--count", options.count, "Tokens to write")->check(positive())->capture_default_str();
  add_field_flags(*command, options.sampling);
  command->callback([flags] { run(*flags); });
}

const Command kGenerateCommand("generate", add_generate);

}  // namespace

}  // namespace ulp::cli
