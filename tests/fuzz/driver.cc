// A small stand-in for libFuzzer: mutates the seeds for as many seconds as the argument says.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/fuzz/fuzz.h"

namespace {

std::string mutate(std::string text, const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&](size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (size_t edits = 1 + below(4); edits > 0; --edits) {
    const size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:  // One byte more.
        text.insert(at, 1, static_cast<char>(random()));
        break;
      case 1:  // Some bytes fewer.
        text.erase(at, 1 + below(8));
        break;
      case 2:  // One bit other.
        if (!text.empty()) text[below(text.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 3:  // A part twice.
        text.insert(at, text.substr(below(text.size() + 1), 1 + below(40)));
        break;
      case 4:  // A part of another seed.
      {
        const std::string& other = seeds[below(seeds.size())];
        text.insert(at, other.substr(below(other.size() + 1), 1 + below(200)));
        break;
      }
      default:  // An extreme number.
      {
        static const char* const kNumbers[] = {"0", "-1", "4294967296", "18446744073709551615",
                                               "1e99"};
        text.insert(at, kNumbers[below(5)]);
      }
    }
  }
  return text.substr(0, 8192);
}

}  // namespace

int main(int argc, char** argv) {
  const std::chrono::seconds duration(argc > 1 ? std::atoi(argv[1]) : 1);
  const uint32_t seed = argc > 2 ? static_cast<uint32_t>(std::atoll(argv[2])) : 1;
  std::mt19937 random(seed);
  const std::vector<std::string> seeds = fuzz_seeds();
  std::vector<std::string> inputs = seeds;
  const auto run = [](const std::string& input) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  for (const std::string& input : inputs) run(input);
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
    std::string input = mutate(inputs[random() % inputs.size()], seeds, random);
    run(input);
    if (inputs.size() < 1000) inputs.push_back(std::move(input));  // Deeper and deeper.
  }
  return 0;
}
