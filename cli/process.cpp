// SPDX-License-Identifier: Apache-2.0
#include "cli/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

extern char** environ;

namespace k3::cli {
namespace {

constexpr int kNotFound = 127;

/// Starts a program found on the PATH. Its stdout goes to `out` where that is a descriptor, and its
/// stderr to /dev/null then. Returns -1 where it cannot be started.
pid_t start(const std::vector<std::string>& command, int out) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) {
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? pid : -1;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return kNotFound;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kNotFound + 1;
}

}  // namespace

ProgramOutput output_of(const std::vector<std::string>& command) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return {};
  const pid_t pid = start(command, pipe[1]);
  ::close(pipe[1]);
  ProgramOutput output;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(pipe[0], buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  if (pid >= 0) output.status = wait_for(pid);
  if (output.text.ends_with('\n')) output.text.pop_back();
  return output;
}

int run_program(const std::vector<std::string>& command) {
  const pid_t pid = start(command, -1);
  return pid < 0 ? kNotFound : wait_for(pid);
}

}  // namespace k3::cli
