/// \file
/// Declares Backend, so that a backend can be created and passed on without the headers of Asio that implementing one
/// needs; see `<syncguard/backend.hpp>`.
#pragma once

#include <syncguard/export.hpp>

#include <memory>
#include <type_traits>

namespace syncguard {
inline namespace v0_1 {

class Backend;

namespace detail {
SYNCGUARD_EXPORT void destroy(Backend* backend) noexcept;
}  // namespace detail

}  // namespace v0_1
}  // namespace syncguard

/// Destroys a backend even where its type is incomplete.
template <>
struct std::default_delete<syncguard::Backend> {
  constexpr default_delete() noexcept = default;
  /// Lets a std::unique_ptr of a derived class convert, as with the standard's own deleter.
  template <typename Derived>
  requires std::is_convertible_v<Derived*, syncguard::Backend*>
  constexpr default_delete(const default_delete<Derived>&) noexcept {}  // NOLINT(*-explicit-*): as in the standard

  void operator()(syncguard::Backend* backend) const noexcept { syncguard::detail::destroy(backend); }
};
