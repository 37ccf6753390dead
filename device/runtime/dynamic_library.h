// A vendor's library, opened at run time.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cco {

/// Copyable: the library stays open for the life of the process, as GPU libraries cannot be
/// unloaded.
class DynamicLibrary {
 public:
  /// Opens the one that the environment variable `variable` names, or else the first of `names`
  /// that there is. NOT_FOUND: none of `names` is installed. FAILED_PRECONDITION: the variable is
  /// set, and what it names cannot be opened.
  static absl::StatusOr<DynamicLibrary> open(const char* variable,
                                             absl::Span<const char* const> names);

  /// Null if there is no such symbol.
  void* find(const char* symbol) const;
  /// As it was asked for.
  const std::string& path() const { return path_; }
  /// Where it was found.
  std::string file() const;

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

/// One function of a library, with its name for messages.
template <typename Signature>
class LibraryCall;

template <typename Result, typename... Parameters>
class LibraryCall<Result(Parameters...)> {
 public:
  using Signature = Result(Parameters...);
  using Function = Result (*)(Parameters...);

  bool resolve(const DynamicLibrary& library, const char* symbol) {
    symbol_ = symbol;
    function_ = reinterpret_cast<Function>(library.find(symbol));
    return function_ != nullptr;
  }
  explicit operator bool() const { return function_ != nullptr; }
  std::string_view symbol() const { return symbol_; }
  Result operator()(Parameters... parameters) const { return function_(parameters...); }

 private:
  const char* symbol_ = "";
  Function function_ = nullptr;
};

}  // namespace cco
