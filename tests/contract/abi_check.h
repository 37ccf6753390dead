// Compares a function of a vendor's header with our declaration of it, parameter by parameter.
#pragma once

#include <cstddef>
#include <type_traits>

#include "device/runtime/dynamic_library.h"

namespace cco {

/// Passed alike: both integers, enumerations or pointers, of one size. Handles are integers to one
/// and pointers to the other.
template <typename Theirs, typename Ours>
constexpr bool same_parameter() {
  constexpr bool plain =
      (std::is_integral_v<Theirs> || std::is_enum_v<Theirs> ||
       std::is_pointer_v<Theirs>)&&(std::is_integral_v<Ours> || std::is_pointer_v<Ours>);
  return plain && sizeof(Theirs) == sizeof(Ours);
}

template <typename Theirs, typename Ours>
struct SameFunction : std::false_type {};
template <typename TheirResult, typename... Theirs, typename OurResult, typename... Ours>
requires(sizeof...(Theirs) ==
         sizeof...(Ours)) struct SameFunction<TheirResult (*)(Theirs...), OurResult(Ours...)>
    : std::bool_constant<same_parameter<TheirResult, OurResult>() &&
                         (same_parameter<Theirs, Ours>() && ...)> {
};

}  // namespace cco

#define CCO_SAME(ours, theirs) \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))
#define CCO_SAME_FUNCTION(theirs, api, field) \
  static_assert(SameFunction<decltype(&::theirs), decltype(api::field)::Signature>::value, #theirs);
