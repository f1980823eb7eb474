// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/common.h"
#include "io/text.h"
#include "k3/error.h"
#include "k3/version.h"

namespace k3::cli {
namespace {

struct Command {
  const char* name;
  const char* summary;
  const char* example;
  Action (*add)(CLI::App&);
};
constexpr Command kCommands[] = {
    {"info", "What this build and this machine are", "k3 info --json", add_info},
    {"ops", "Every kernel of this build", "k3 ops --json", add_ops},
    {"run", "Run one op on tensors from a file",
     "k3 run situ_and_mul --in tests/data/situ_and_mul.safetensors --compare", add_run},
    {"check", "Hold every kernel against the double-precision reference",
     "k3 check kda_prefill --backend cpu --quick", add_check},
    {"bench", "Time every kernel against this machine's measured limits",
     "k3 bench --backend cpu --shapes k3 --json cpu.json --plot cpu.svg", add_bench},
    {"generate", "Let a whole small K3 write text, by the ops alone",
     "k3 generate --model examples/mini_k3/model --prompt 'In the beginning '", add_generate},
    {"layer", "Run two K3 layers and say what each op costs", "k3 layer --tp 8 --backend cpu",
     add_layer},
    {"demo", "Recorded tensors and a K3-shaped layer in one table", "k3 demo tests/data", add_demo},
};

/// The text may quote a file, so nothing in it but its line ends reaches the terminal as a control.
int fail(const std::string& what, int exit_code) {
  std::fflush(stdout);
  std::string text = "k3: error: ";
  std::istringstream lines(what);
  for (std::string line; std::getline(lines, line);) text += io::printable(line) + "\n";
  print_error(text);
  return exit_code;
}

/// CLI11 would only say that a subcommand is missing.
void require_command(const std::string& word) {
  for (const Command& command : kCommands)
    if (word == command.name || word.starts_with('-')) return;
  throw UsageError("no command is called '" + word + "' (see k3 --help)");
}

int parse_and_run(int argc, char** argv) {
  if (argc > 1) require_command(argv[1]);
  CLI::App app{"Kimi K3 kernels: run, check and time them", "k3"};
  app.set_version_flag("--version", std::string("k3 ") + version());
  app.require_subcommand(1);
  app.footer("Example:\n  k3 check --quick");
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& command : kCommands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.summary);
    subcommand->footer(std::string("Example:\n  ") + command.example);
    actions.emplace_back(subcommand, command.add(*subcommand));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help and --version
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see k3 --help)", kExitUsage);
  }
  for (const auto& [subcommand, action] : actions)
    if (subcommand->parsed()) return action();
  return kExitUsage;
}

int run(int argc, char** argv) {
  try {
    const int code = parse_and_run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return fail("cannot write to standard output", kExitUsage);
    return code;
  } catch (const UnsupportedError& error) {
    return fail(error.what(), kExitUnsupported);
  } catch (const CudaError& error) {
    return fail(error.what(), kExitUnsupported);
  } catch (const std::bad_alloc&) {
    return fail("not enough memory", kExitUnsupported);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitUsage);
  } catch (...) {
    return fail("unknown error", kExitUsage);
  }
}

}  // namespace
}  // namespace k3::cli

int main(int argc, char** argv) { return k3::cli::run(argc, argv); }
