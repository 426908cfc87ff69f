/// \file
/// Everything that a program needs to use locks. Depends only on the standard library; for Asio completion tokens add
/// `<syncguard/async.hpp>`.
#pragma once

#include <syncguard/admin.hpp>
#include <syncguard/boot_clock.hpp>
#include <syncguard/capabilities.hpp>
#include <syncguard/client_options.hpp>
#include <syncguard/diagnosis.hpp>
#include <syncguard/error.hpp>
#include <syncguard/fence.hpp>
#include <syncguard/fence_gate.hpp>
#include <syncguard/key.hpp>
#include <syncguard/lease.hpp>
#include <syncguard/lock_id.hpp>
#include <syncguard/lock_info.hpp>
#include <syncguard/locks.hpp>
#include <syncguard/log.hpp>
#include <syncguard/metrics.hpp>
#include <syncguard/options.hpp>
#include <syncguard/telemetry.hpp>
#include <syncguard/version.hpp>
