// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/vision_input.h"
#include "harness/files.h"
#include "io/text.h"

namespace k3::cli {
namespace {

using harness::Driver;
using harness::RunFile;
using harness::RunOn;

constexpr double kDefaultTolerance = 5e-3;

struct RunRequest {
  std::string op;
  std::string in;
  std::string image;
  std::string background = "255,255,255";
  std::string out;
  std::string backend = "auto";
  std::vector<std::string> settings;
  bool compare = false;
  double tolerance = kDefaultTolerance;
};

/// "R,G,B", each from 0 to 255.
Colour colour_of(const std::string& text) {
  Colour colour{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < colour.size(); ++i) {
    const auto [rest, error] = std::from_chars(at, end, colour[i]);
    const bool last = i + 1 == colour.size();
    if (error != std::errc() || (last ? rest != end : rest == end || *rest != ','))
      throw UsageError(fmt::format("--background takes R,G,B from 0 to 255, not '{}'", text));
    at = rest + 1;
  }
  return colour;
}

/// `name=value` pairs, which go before the file's scalars.
std::map<std::string, std::string> settings_of(const Driver& driver,
                                               const std::vector<std::string>& settings) {
  std::map<std::string, std::string> scalars;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--set takes name=value, not '{}'", setting));
    const std::string name = setting.substr(0, equals);
    const bool known = std::any_of(driver.scalars.begin(), driver.scalars.end(),
                                   [&](const char* scalar) { return name == scalar; });
    if (!known)
      throw UsageError(fmt::format("{} has no scalar '{}'; it has {}", driver.name, name,
                                   fmt::join(driver.scalars, ", ")));
    scalars[name] = setting.substr(equals + 1);
  }
  return scalars;
}

/// The op's arguments, from a file of tensors or, for vision_patchify, from a picture.
RunFile input_of(const Driver& driver, const RunRequest& request, RunOn on) {
  const auto scalars = settings_of(driver, request.settings);
  if (request.image.empty() && request.in.empty())
    throw UsageError("run needs --in FILE (or --image FILE for vision_patchify)");
  if (request.image.empty()) return harness::load_run_file(driver, request.in, scalars);
  if (driver.name != std::string("vision_patchify"))
    throw UsageError(fmt::format("{} takes no --image; vision_patchify does", driver.name));
  RunFile file;
  file.bundle = vision_input(request.image, colour_of(request.background), on);
  for (const auto& [name, value] : scalars) file.bundle.scalars[name] = value;
  driver.add_outputs(file.bundle, {});
  return file;
}

/// Says which parts of the file play no role: a misspelt name would be one of them.
void note_ignored(const Driver& driver, const RunFile& file) {
  if (file.ignored.empty()) return;
  const std::string names = fmt::format("{}", fmt::join(file.ignored, ", "));
  print_error(
      fmt::format("k3: note: {} takes no {}; ignored\n", driver.name, io::printable(names)));
}

void print_outputs(const Driver& driver, const harness::Bundle& bundle) {
  Table table({{"output"}, {"tensor"}});
  for (const harness::ArgSpec& arg : driver.args) {
    const auto found = bundle.tensors.find(arg.name);
    if (arg.role == harness::Role::kInput || found == bundle.tensors.end()) continue;
    table.add({arg.name, describe(found->second.view())});
  }
  table.print();
}

int compare_outputs(const RunFile& file, double tolerance) {
  Table table({{"output"}, {"tensor"}, {"err_ratio", true}, {"max abs error", true}, {"result"}});
  std::vector<std::string> failures;
  for (const harness::Comparison& c :
       harness::compare_expected(file, file.bundle, {.err_ratio = tolerance})) {
    table.add({c.name, describe(file.bundle.tensors.at(c.name).view()),
               fmt::format("{:.3e}", c.err_ratio), fmt::format("{:.3e}", c.max_abs),
               c.passed ? "ok" : "FAIL"});
    if (!c.passed) failures.push_back(c.why);
  }
  table.print();
  for (const std::string& why : failures) fmt::print("{}\n", why);
  return failures.empty() ? kExitOk : kExitDiffers;
}

int run(const RunRequest& request) {
  const Driver& driver = driver_named(request.op);
  require_writable(request.out);
  const RunOn on = run_on(driver, request.backend);
  RunFile file = input_of(driver, request, on);
  note_ignored(driver, file);
  if (request.compare && file.expected.empty())
    throw UsageError(request.in + " holds no output of " + driver.name + " to compare with");

  // The first call pays for threads, page faults and, on CUDA, loading the kernel.
  harness::Bundle warm_up = file.bundle.clone();
  if (on != RunOn::kOracle) harness::run_once(driver, warm_up, {.on = on});
  const double microseconds = harness::run_once(driver, file.bundle, {.on = on});
  fmt::print("{} on {}: {:.1f} us\n", driver.name, name_of(on), microseconds);
  if (!request.out.empty()) harness::save_outputs(driver, file.bundle, request.out);
  if (request.compare) return compare_outputs(file, request.tolerance);
  print_outputs(driver, file.bundle);
  return kExitOk;
}

}  // namespace

Action add_run(CLI::App& command) {
  const auto request = std::make_shared<RunRequest>();
  command.add_option("op", request->op, "Name of the op")->required();
  CLI::Option* in =
      command.add_option("--in", request->in, "safetensors file with the op's arguments")
          ->type_name("FILE");
  CLI::Option* image =
      command
          .add_option("--image", request->image,
                      "vision_patchify: a PNG or JPEG file, resized and padded for the model")
          ->type_name("FILE")
          ->excludes(in);
  command.add_option("--background", request->background, "What shows through a picture's alpha")
      ->needs(image)
      ->type_name("R,G,B")
      ->capture_default_str();
  command.add_option("--out", request->out, "Write the outputs here")->type_name("FILE");
  command.add_option("--backend", request->backend, "What runs it")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "oracle"}))
      ->capture_default_str();
  command.add_option("--set", request->settings, "Override a scalar of the file, name=value")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  CLI::Option* compare = command.add_flag(
      "--compare", request->compare,
      "Hold each output against the file's tensor of that name (in place: <name>_out)");
  compare->excludes(image);
  command
      .add_option("--tol", request->tolerance, "Largest rms(ref - x) / rms(ref); 0 asks for equal")
      ->needs(compare)
      ->check(CLI::Range(0.0, 1e30))
      ->check([](const std::string& text) {
        return text.find_first_of("nN") == std::string::npos ? "" : "must be a number";
      })
      ->capture_default_str();
  return [request] { return run(*request); };
}

}  // namespace k3::cli
