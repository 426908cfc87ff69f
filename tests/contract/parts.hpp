// One variable for each file of the suite. The linker takes from a static library only the files that are referenced;
// suite.cpp references all of them.
#pragma once

namespace syncguard::testing::parts {

extern const bool operations;
extern const bool fences;
extern const bool input;
extern const bool cancellation;
extern const bool waiting;
extern const bool leases;
extern const bool observation;
extern const bool visibility;

}  // namespace syncguard::testing::parts
