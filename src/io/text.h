// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace k3::io {

/// Bytes of the UTF-8 character at the front of `text`; 0 where none stands there.
inline std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  std::size_t length = 0;
  if (lead < 0x80)
    length = 1;
  else if (lead >= 0xC2 && lead < 0xF5)
    length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  const std::string_view rest = text.substr(1, std::max<std::size_t>(length, 1) - 1);
  const bool whole = text.size() >= length && std::all_of(rest.begin(), rest.end(), continues);
  return whole ? length : 0;
}

/// Text of unknown origin for a terminal: '?' for every control character (C0, DEL and C1) and for
/// every byte that is no UTF-8; cut on a character's border after at most `most` bytes.
inline std::string printable(std::string_view text,
                             std::size_t most = std::numeric_limits<std::size_t>::max()) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (shown.size() + character.size() > most) return shown + "...";
    const auto first = static_cast<unsigned char>(character[0]);
    const bool c0 = first < 0x20 || first == 0x7F;
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
    if (length == 0 || c0 || c1)
      shown += '?';
    else
      shown += character;
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace k3::io
