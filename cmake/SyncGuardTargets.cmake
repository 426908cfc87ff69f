# Compiler options of the project's own targets. None of them reaches a consumer.

include(CheckCXXCompilerFlag)
include(CheckPIESupported)
check_pie_supported()
# Supported only on x86.
check_cxx_compiler_flag(-fcf-protection SYNCGUARD_HAS_CF_PROTECTION)

# The hardening options of Debian's packages: a memory error ends the program instead of becoming exploitable. Only in optimized builds,
# because FORTIFY_SOURCE needs the optimizer, and debug builds have sanitizers.
function(syncguard_harden target)
  set(optimized "$<CONFIG:Release,RelWithDebInfo,MinSizeRel>")
  target_compile_options(${target} PRIVATE "$<${optimized}:-fstack-protector-strong;-fstack-clash-protection;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>"
    "$<$<AND:${optimized},$<BOOL:${SYNCGUARD_HAS_CF_PROTECTION}>>:-fcf-protection>")
  target_link_options(${target} PRIVATE "$<${optimized}:LINKER:-z,relro,-z,now>")
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

function(syncguard_strict target)
  syncguard_harden(${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    # gRPC requires this option, and with precompiled headers all targets must use the same options.
    -pthread
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
    -Woverloaded-virtual -Wcast-qual -Wformat=2 -Wimplicit-fallthrough
    # False positives of g++ 12: in <stop_token> and <optional>, and where Asio allocates coroutine frames.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-mismatched-new-delete>
    # With optimization, also where strings are joined.
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-Wno-restrict>
    $<$<BOOL:${SYNCGUARD_WERROR}>:-Werror>)
endfunction()

# Most of the build time is spent on the headers of Asio and the standard library. With SYNCGUARD_PRECOMPILE_HEADERS they are parsed once
# for all layers, once for all tests and once for each other program. The presets for development and for the demo set it; `./dev lint`,
# `./dev package` and the checks of the public headers work without it, so that a missing #include is found. Further arguments: more headers.
function(syncguard_precompile target)
  if(SYNCGUARD_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <atomic> <chrono> <filesystem> <fstream> <functional> <future> <map> <memory> <mutex> <optional> <set> <sstream>
      <stop_token> <string> <string_view> <thread> <unordered_map> <utility> <vector>
      <asio/any_io_executor.hpp> <asio/awaitable.hpp> <asio/bind_cancellation_slot.hpp> <asio/bind_executor.hpp> <asio/co_spawn.hpp>
      <asio/io_context.hpp> <asio/post.hpp> <asio/steady_timer.hpp> <asio/strand.hpp> <asio/this_coro.hpp> <asio/use_awaitable.hpp>
      <asio/use_future.hpp> ${ARGN})
  endif()
endfunction()
# Reuses the precompiled headers of another target, which must have the same options and definitions.
function(syncguard_precompile_like target other)
  if(SYNCGUARD_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()

# One layer of the library. Its sources can include the public headers and those below src/.
function(syncguard_layer name)
  add_library(syncguard_${name} OBJECT ${ARGN})
  syncguard_strict(syncguard_${name})
  set_target_properties(syncguard_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(syncguard_${name}
    PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include"
    PRIVATE "${PROJECT_SOURCE_DIR}/src" "${SYNCGUARD_EMBEDDED}")
  target_sources(syncguard PRIVATE $<TARGET_OBJECTS:syncguard_${name}>)
  # The layers below `async` do not use Asio.
  if(name STREQUAL "async")
    syncguard_precompile(syncguard_async)
  elseif(TARGET syncguard_async)
    syncguard_precompile_like(syncguard_${name} syncguard_async)
  endif()
  # Instruments the library for the fuzzers. Not done for tests, because it doubles their build time.
  if(SYNCGUARD_BUILD_FUZZERS)
    target_compile_options(syncguard_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# A shared library exports only the API; syncguard.map hides symbols that its sources do not hide.
function(syncguard_export_api_only target)
  set(map "${PROJECT_SOURCE_DIR}/cmake/syncguard.map")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
