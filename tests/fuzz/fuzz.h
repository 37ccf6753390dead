// What a fuzz target gives: libFuzzer's entry point, and seeds for our own driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

/// Good inputs to start from.
std::vector<std::string> fuzz_seeds();

/// The files of corpus/`name`.
inline std::vector<std::string> read_corpus(const std::string& name) {
  std::vector<std::string> inputs;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(CCO_FUZZ_CORPUS "/") + name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}
