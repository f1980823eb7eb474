// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace k3 {

struct Result {
  int code = -1;
  std::string out;  ///< stdout, or stderr where that was asked for
};

/// The k3 command as a script sees it.
inline Result run(const std::string& arguments, const char* redirect = "2>/dev/null") {
  Result result;
  const std::string command = std::string(K3_COMMAND) + " " + arguments + " " + redirect;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.out.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

inline Result errors_of(const std::string& arguments) { return run(arguments, "2>&1 >/dev/null"); }

/// A name for a file that is gone with the object.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("k3_cli_" + std::to_string(::getpid()) + "_" + name)) {}
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace k3
