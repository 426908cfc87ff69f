/// \file
/// Marks what a shared library exports. Everything else is hidden.
#pragma once

#define SYNCGUARD_EXPORT __attribute__((visibility("default")))
