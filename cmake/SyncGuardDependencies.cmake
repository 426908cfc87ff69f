# What the library needs; also used by the installed package, so that both look for the same things.
include(CMakeFindDependencyMacro)

# A library that has no CMake package of its own becomes the target SyncGuard::NAME.
function(syncguard_find_library name header debian_package)
  if(TARGET SyncGuard::${name})
    return()
  endif()
  find_path(SyncGuard_${name}_INCLUDE ${header})
  find_library(SyncGuard_${name}_LIBRARY ${name})
  if(NOT SyncGuard_${name}_INCLUDE OR NOT SyncGuard_${name}_LIBRARY)
    message(FATAL_ERROR "SyncGuard needs ${name} (Debian: ${debian_package})")
  endif()
  add_library(SyncGuard::${name} UNKNOWN IMPORTED)
  set_target_properties(SyncGuard::${name} PROPERTIES
    IMPORTED_LOCATION "${SyncGuard_${name}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_${name}_INCLUDE}")
endfunction()

find_dependency(Threads)
if("sqlite" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(SQLite3)
endif()
if("postgres" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(PostgreSQL)
endif()
if("firestore" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(Protobuf)
  find_dependency(gRPC CONFIG)
endif()
find_dependency(OpenSSL COMPONENTS Crypto)
if("redis" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(OpenSSL COMPONENTS SSL)
  syncguard_find_library(hiredis hiredis/read.h libhiredis-dev)
endif()
syncguard_find_library(utf8proc utf8proc.h libutf8proc-dev)

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
