// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

/// One function per subcommand, each in its own file. It declares the subcommand's options and
/// returns what runs once they are parsed; the result is the exit code.
namespace k3::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDiffers = 1;      ///< a comparison failed
inline constexpr int kExitUsage = 2;        ///< bad usage, a broken contract, a bad file
inline constexpr int kExitUnsupported = 3;  ///< valid, but not possible here

using Action = std::function<int()>;

Action add_info(CLI::App& command);
Action add_ops(CLI::App& command);
Action add_run(CLI::App& command);
Action add_check(CLI::App& command);
Action add_bench(CLI::App& command);
Action add_generate(CLI::App& command);
Action add_layer(CLI::App& command);
Action add_demo(CLI::App& command);

}  // namespace k3::cli
