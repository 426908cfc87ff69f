// The files of the suite. A static library gives a program only those that something refers to: suite.cpp refers to
// all.
#pragma once

namespace syncguard::testing::parts {

extern const bool operations;
extern const bool fences;
extern const bool input;
extern const bool cancellation;
extern const bool waiting;
extern const bool leases;
extern const bool observation;

}  // namespace syncguard::testing::parts
