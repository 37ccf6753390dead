// What a fuzz target gives: libFuzzer's entry point, and seeds for our own driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

/// Good inputs to start from.
std::vector<std::string> fuzz_seeds();
