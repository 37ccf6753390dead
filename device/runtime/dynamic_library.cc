#include "device/runtime/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cco {

absl::StatusOr<DynamicLibrary> DynamicLibrary::open(const char* variable,
                                                    absl::Span<const char* const> names) {
  if (const char* chosen = std::getenv(variable); chosen != nullptr) {
    if (void* handle = ::dlopen(chosen, RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return DynamicLibrary(handle, chosen);
    }
    return absl::FailedPreconditionError(absl::StrCat(
        variable, "=\"", chosen, "\" cannot be opened: ", ::dlerror(), "; correct or unset it"));
  }
  std::string reasons;
  for (const char* name : names) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      return DynamicLibrary(handle, name);
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", ::dlerror());
  }
  return absl::NotFoundError(absl::StrCat("no ", absl::StrJoin(names, ", "), " (", reasons, "); ",
                                          variable, " can name one"));
}

std::string DynamicLibrary::file() const {
  link_map* entry = nullptr;
  return ::dlinfo(handle_, RTLD_DI_LINKMAP, &entry) == 0 ? entry->l_name : path_;
}

void* DynamicLibrary::find(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace cco
