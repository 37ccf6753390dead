// Reads tests/data/golden. Needs CCO_GOLDEN_DIR, the folder's path.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace cco::testing {

struct GoldenVector {
  std::string name;    ///< "sdma/copy_1mib"
  std::string layout;  ///< "sdma.copy"
  std::map<std::string, std::string> params;
  std::vector<uint8_t> bytes;

  bool has(const std::string& key) const { return params.count(key) != 0; }
  std::string word(const std::string& key) const {
    const auto found = params.find(key);
    if (found == params.end()) ADD_FAILURE() << name << " has no parameter " << key;
    return found == params.end() ? "0" : found->second;
  }
  uint64_t number(const std::string& key) const { return std::stoull(word(key), nullptr, 0); }
  uint64_t number(const std::string& key, uint64_t fallback) const {
    return has(key) ? number(key) : fallback;
  }
  /// Of a parameter "hex:0011…".
  std::vector<uint8_t> raw(const std::string& key) const { return from_hex(word(key).substr(4)); }

  static std::vector<uint8_t> from_hex(const std::string& text) {
    std::vector<uint8_t> bytes;
    for (size_t at = 0; at + 1 < text.size(); at += 2) {
      bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(at, 2), nullptr, 16)));
    }
    return bytes;
  }
};

/// All vectors of a file such as "sdma_gfx9.txt". A file that is missing or damaged fails the test.
inline std::vector<GoldenVector> read_golden(const std::string& file) {
  std::ifstream input(std::string(CCO_GOLDEN_DIR) + "/" + file);
  std::vector<GoldenVector> vectors;
  size_t announced = 0;
  std::string hex;
  for (std::string line; std::getline(input, line);) {
    std::istringstream words(line);
    std::string key, first, second;
    words >> key >> first >> second;
    if (key.empty() || key[0] == '#') continue;
    if (key == "vector") {
      vectors.push_back({first, "", {}, {}});
      hex.clear();
      continue;
    }
    if (vectors.empty()) {
      ADD_FAILURE() << file << ": a line before the first vector: " << line;
      break;
    }
    GoldenVector& vector = vectors.back();
    if (key == "layout") {
      vector.layout = first;
    } else if (key == "param") {
      vector.params[first] = second;
    } else if (key == "bytes") {
      announced = std::stoul(first);
    } else if (key == "end") {
      vector.bytes = GoldenVector::from_hex(hex);
      EXPECT_EQ(vector.bytes.size(), announced) << vector.name;
    } else if (key != "basis") {
      for (const char digit : line) {
        if (digit != ' ') hex += digit;
      }
    }
  }
  EXPECT_FALSE(vectors.empty()) << file << " has no vectors, or is not there";
  return vectors;
}

}  // namespace cco::testing
