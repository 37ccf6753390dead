// Tells systemd how the service is doing (sd_notify(3)'s datagram; libsystemd has no static
// archive).
#pragma once

#include <string>

namespace cco::memd {

/// "READY=1", "STOPPING=1", "WATCHDOG=1". Without $NOTIFY_SOCKET it does nothing.
void notify_systemd(const std::string& state);

}  // namespace cco::memd
