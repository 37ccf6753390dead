#include "client/job/text.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace cco::job {
namespace {

constexpr char kText[] = "northanger_abbey.txt";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::vector<uint64_t> tokenize(std::string_view text) {
  std::vector<uint64_t> tokens;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && !is_space(text[i])) continue;
    if (i > begin) tokens.push_back(token_id(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return tokens;
}

absl::StatusOr<std::string> default_text_path() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error);
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    for (const char* place : {"share/cco", "tests/data"}) {
      const std::filesystem::path candidate = folder / place / kText;
      if (std::filesystem::exists(candidate, error)) return candidate.string();
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no share/cco/", kText, " or tests/data/", kText,
                   " in any folder above this program: name a text by --text"));
}

absl::StatusOr<std::vector<uint64_t>> read_tokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) {
    return absl::NotFoundError(absl::StrCat("cannot read the text ", path, ", or it is empty"));
  }
  return tokenize(text.str());
}

}  // namespace cco::job
