// Tells systemd how the service is doing (sd_notify(3)'s datagram; libsystemd has no static
// archive).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/base/unique.h"

namespace cco::memd {

/// "READY=1", "STOPPING=1", "WATCHDOG=1". Without $NOTIFY_SOCKET it does nothing.
void notify_systemd(const std::string& state);

/// The same with a descriptor, and it says what went wrong: FAILED_PRECONDITION: there is no
/// $NOTIFY_SOCKET; UNAVAILABLE: it is full, and was so for `wait` (0: no waiting);
/// RESOURCE_EXHAUSTED: no room.
absl::Status send_to_systemd(const std::string& state, std::optional<BorrowedFd> fd,
                             std::chrono::milliseconds wait);

}  // namespace cco::memd
