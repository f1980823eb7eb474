// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/commands.h"
#include "cli/common.h"

namespace k3::cli {
namespace {

int print_as_json() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Capability& row : capabilities())
    rows.push_back({{"op", row.op},
                    {"backend", name_of(row.backend)},
                    {"variant", row.variant},
                    {"arch", row.arch},
                    {"status", name_of(row.status)},
                    {"conditions", row.conditions}});
  print_json(rows);
  return kExitOk;
}

int print_as_table() {
  Table table({{"op"}, {"backend"}, {"variant"}, {"arch"}, {"status"}, {"conditions"}});
  for (const Capability& row : capabilities())
    table.add(
        {row.op, name_of(row.backend), row.variant, row.arch, name_of(row.status), row.conditions});
  table.print();
  return kExitOk;
}

}  // namespace

Action add_ops(CLI::App& command) {
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "Print JSON");
  return [json] { return *json ? print_as_json() : print_as_table(); };
}

}  // namespace k3::cli
