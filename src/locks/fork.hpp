// Telling a forked child from its parent.
#pragma once

namespace syncguard::detail {

// Grows by one in every child of a fork. A client remembers the number it was made under: where it differs, its threads
// are not here and its locks are the parent's.
unsigned fork_generation() noexcept;

}  // namespace syncguard::detail
