// What tests ask the fake, beyond HIP: find it with dlsym().
#pragma once

#include <cstdint>

struct FakeHipLedger {
  uint32_t handles;
  uint32_t ranges;
  uint32_t mappings;
  uint32_t streams;
  uint32_t events;
  uint32_t modules;
  uint32_t registrations;
  uint32_t
      overlapping_calls;  ///< Memory calls that began while another thread was in one. Never reset.

  friend bool operator==(const FakeHipLedger&, const FakeHipLedger&) = default;
};
using FakeHipLedgerFunction = void (*)(FakeHipLedger*);
inline constexpr char kFakeHipLedgerSymbol[] = "fakeHipLedger";

/// How often a function has been called in this process.
using FakeHipCallsFunction = uint32_t (*)(const char* function);
inline constexpr char kFakeHipCallsSymbol[] = "fakeHipCalls";
