# What the library needs; also used by the installed package, so that both look for the same things.
include(CMakeFindDependencyMacro)

find_dependency(Threads)
if("sqlite" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(SQLite3)
endif()
if("postgres" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(PostgreSQL)
endif()
find_dependency(OpenSSL COMPONENTS Crypto)
if("redis" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(OpenSSL COMPONENTS SSL)
  if(NOT TARGET SyncGuard::hiredis)
    find_path(SyncGuard_hiredis_INCLUDE hiredis/read.h)
    find_library(SyncGuard_hiredis_LIBRARY hiredis)
    if(NOT SyncGuard_hiredis_INCLUDE OR NOT SyncGuard_hiredis_LIBRARY)
      message(FATAL_ERROR "SyncGuard needs hiredis (Debian: libhiredis-dev)")
    endif()
    add_library(SyncGuard::hiredis UNKNOWN IMPORTED)
    set_target_properties(SyncGuard::hiredis PROPERTIES
      IMPORTED_LOCATION "${SyncGuard_hiredis_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_hiredis_INCLUDE}")
  endif()
endif()

if(NOT TARGET SyncGuard::utf8proc)
  find_path(SyncGuard_utf8proc_INCLUDE utf8proc.h)
  find_library(SyncGuard_utf8proc_LIBRARY utf8proc)
  if(NOT SyncGuard_utf8proc_INCLUDE OR NOT SyncGuard_utf8proc_LIBRARY)
    message(FATAL_ERROR "SyncGuard needs utf8proc (Debian: libutf8proc-dev)")
  endif()
  add_library(SyncGuard::utf8proc UNKNOWN IMPORTED)
  set_target_properties(SyncGuard::utf8proc PROPERTIES
    IMPORTED_LOCATION "${SyncGuard_utf8proc_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_utf8proc_INCLUDE}")
endif()

if(NOT TARGET SyncGuard::asio)
  find_path(SyncGuard_asio_INCLUDE asio/awaitable.hpp)
  if(NOT SyncGuard_asio_INCLUDE)
    message(FATAL_ERROR "SyncGuard needs standalone Asio 1.22 or newer (Debian: libasio-dev)")
  endif()
  add_library(SyncGuard::asio INTERFACE IMPORTED)
  set_target_properties(SyncGuard::asio PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_asio_INCLUDE}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  # Asio 1.22 does not find clang's coroutines with libstdc++ by itself. And it finds std::aligned_alloc only where a
  # standard header was included before it: sources that differ in that would disagree on how memory is freed.
  set_property(TARGET SyncGuard::asio APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS
    ASIO_HAS_STD_ALIGNED_ALLOC=1 "$<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT;ASIO_HAS_STD_COROUTINE>")
endif()
