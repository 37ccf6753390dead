// Ends this process at a chosen step: a step is one message to the daemon, on either channel.
#pragma once

#include <cstdint>

namespace cco::test {

/// From now on the message of that number, from 0, is this process's last: it dies right before it
/// is sent, or right after.
void die_at_message(uint32_t number, bool after_it);

}  // namespace cco::test
