// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/demo.h"

namespace k3::cli {

Action add_demo(CLI::App& command) {
  const auto folder = std::make_shared<std::string>();
  command.add_option("folder", *folder, "Folder with recorded tensors")
      ->required()
      ->check(CLI::ExistingDirectory);
  return [folder] { return run_demo(*folder); };
}

}  // namespace k3::cli
