// Checks whose message costs nothing while they hold: it is put together when one fails.
#pragma once

#include <sstream>
#include <stdexcept>

namespace ringline {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw std::invalid_argument(message.str());
}

template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]] {
    refuse(parts...);
  }
}

}  // namespace ringline
