// Telling a forked child from its parent.
#pragma once

namespace syncguard::async {

// Grows by one in every child of a fork. Whoever has what a fork does not copy (threads, locks of the system) remembers
// the number it was made under: where it differs, those are the parent's. A process id would not do: it may come again.
unsigned fork_generation() noexcept;

}  // namespace syncguard::async
