/// \file
/// Internal: a program must use the version of Asio that the library was built with. Asio is mostly templates, so two
/// versions in one program disagree about its objects.
#pragma once

#include <syncguard/version.hpp>

#include <asio/version.hpp>

#define SYNCGUARD_TEXT_OF(value) #value
#define SYNCGUARD_EXPANDED_TEXT_OF(value) SYNCGUARD_TEXT_OF(value)
static_assert(ASIO_VERSION == SYNCGUARD_ASIO_VERSION,
              "SyncGuard was built with Asio " SYNCGUARD_EXPANDED_TEXT_OF(SYNCGUARD_ASIO_VERSION)
              " and is used with Asio " SYNCGUARD_EXPANDED_TEXT_OF(ASIO_VERSION)
              ": use the same version, or rebuild SyncGuard");
#undef SYNCGUARD_EXPANDED_TEXT_OF
#undef SYNCGUARD_TEXT_OF
