// SPDX-License-Identifier: Apache-2.0
// `k3 generate`: a whole small K3 writes text, by the ops alone (examples/mini_k3).
#include "examples/mini_k3/generate.h"

#include <fmt/format.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <new>

#include "cli/commands.h"
#include "cli/common.h"
#include "examples/mini_k3/machine.h"
#include "harness/device.h"
#include "io/safetensors.h"

namespace k3::cli {
namespace {

struct Request {
  std::string model;
  std::string backend = "auto";
  mini::GenerateRequest text;
};

void report(const Request& request, const mini::GenerateFigures& figures,
            const mini::Machine& machine) {
  const bool on_cuda = machine.device().kind == DeviceKind::kCuda;
  const auto made = static_cast<double>(request.text.tokens);
  std::string text = fmt::format(
      "\nk3: {} bytes of prompt in {:.1f} ms, {} bytes in {:.3f} s: {:.0f} bytes/s on {}\n",
      request.text.prompt.size(), 1e3 * figures.prefill_seconds, request.text.tokens,
      figures.decode_seconds, figures.decode_seconds > 0 ? made / figures.decode_seconds : 0.0,
      on_cuda ? "cuda" : "cpu");
  if (request.text.draft_tokens > 0)
    text += fmt::format(
        "k3: {} of {} drafted bytes accepted, in {} verify steps; {} steps without a draft\n",
        figures.accepted, figures.drafted, figures.verify_steps, figures.decode_steps);
  text += fmt::format("k3: products of more than 16 rows by {}\n", machine.matrix_library());
  print_error(text);
}

int run(const Request& request) {
  if (request.text.prompt.empty()) throw UsageError("--prompt is empty: give at least one byte");
  const Backend backend = backend_named(request.backend);
  require_usable(backend);
  const bool on_cuda = backend == Backend::kCuda ||
                       (backend == Backend::kAuto && harness::cuda_unusable() == nullptr);
  const auto machine = on_cuda ? mini::make_cuda_machine() : mini::make_cpu_machine();
  mini::Model model(request.model, *machine);
  try {
    const auto figures = mini::generate(model, request.text, [](std::string_view bytes) {
      if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
          std::fflush(stdout) != 0)
        throw io::FileError("standard output: cannot write");
    });
    report(request, figures, *machine);
  } catch (const std::bad_alloc&) {
    throw UsageError(fmt::format("not enough memory for --prompt of {} bytes and --tokens {}",
                                 request.text.prompt.size(), request.text.tokens));
  }
  return kExitOk;
}

}  // namespace

Action add_generate(CLI::App& command) {
  const auto request = std::make_shared<Request>();
  request->text.tokens = 200;
  constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max() / 2;
  command.add_option("--model", request->model, "Folder with config.json and model.safetensors")
      ->required()
      ->type_name("DIR");
  command.add_option("--prompt", request->text.prompt, "What the text begins with")
      ->required()
      ->type_name("TEXT");
  command.add_option("--tokens", request->text.tokens, "Bytes to write after it")
      ->check(CLI::Range(std::int64_t{0}, kMostTokens))
      ->capture_default_str();
  command.add_option("--backend", request->backend, "What runs it")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--temperature", request->text.temperature,
                  "0 takes the likeliest byte, more draws one")
      ->check(CLI::Range(0.0F, 100.0F))
      ->check([](const std::string& text) {
        return text.find_first_of("nN") == std::string::npos ? "" : "must be a number";
      })
      ->capture_default_str();
  command.add_option("--seed", request->text.seed, "Of the draws")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command
      .add_option("--speculate", request->text.draft_tokens,
                  "Bytes to draft and verify in a step; the text stays the same")
      ->check(CLI::Range(0, mini::kMaxStepTokens - 1))
      ->capture_default_str();
  return [request] { return run(*request); };
}

}  // namespace k3::cli
