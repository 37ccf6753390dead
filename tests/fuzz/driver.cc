// A small stand-in for libFuzzer: mutates the seeds for as many seconds as the argument says, or
// runs the file that it names. The input that ends the process is left in ./failed-input.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

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

const std::string* current_input = nullptr;

void keep_input(int signal) {
  const int file = ::open("failed-input", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (current_input != nullptr) {
    (void)!::write(file, current_input->data(), current_input->size());
  }
  ::raise(signal);  // Its default action, as the handler was for once.
}

void keep_input_of_crashes() {
  struct sigaction action {};
  action.sa_handler = keep_input;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    ::sigaction(signal, &action, nullptr);
  }
}

void run(const std::string& input) {
  current_input = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  keep_input_of_crashes();
  if (argc > 1 && std::atoi(argv[1]) == 0) {
    std::ifstream file(argv[1], std::ios::binary);
    run({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    return 0;
  }
  const std::chrono::seconds duration(argc > 1 ? std::atoi(argv[1]) : 1);
  const uint32_t seed = argc > 2 ? static_cast<uint32_t>(std::atoll(argv[2])) : 1;
  std::mt19937 random(seed);
  const std::vector<std::string> seeds = fuzz_seeds();
  std::vector<std::string> inputs = seeds;
  for (const std::string& input : inputs) run(input);
  uint64_t count = inputs.size();
  const auto end = std::chrono::steady_clock::now() + duration;
  for (; std::chrono::steady_clock::now() < end; ++count) {
    std::string input = mutate(inputs[random() % inputs.size()], seeds, random);
    run(input);
    if (inputs.size() < 1000) inputs.push_back(std::move(input));  // Deeper and deeper.
  }
  if (argc > 2) std::printf("%llu inputs\n", static_cast<unsigned long long>(count));
  return 0;
}
