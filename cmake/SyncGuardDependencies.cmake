# The dependencies of the library. The installed package uses this file, too, so that both find the same ones. Input:
# CMAKE_FIND_PACKAGE_NAME (SyncGuard), SYNCGUARD_COMPONENTS, SYNCGUARD_IS_SHARED.
include(CMakeFindDependencyMacro)

# Like find_dependency, for libraries without a CMake package.
macro(syncguard_missing what debian_package)
  set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
  set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "SyncGuard needs ${what} (Debian: ${debian_package})")
  return()
endmacro()

# Defines the target SyncGuard::NAME for such a library.
macro(syncguard_find_library name header debian_package)
  find_path(SyncGuard_${name}_INCLUDE ${header})
  find_library(SyncGuard_${name}_LIBRARY ${name})
  if(NOT SyncGuard_${name}_INCLUDE OR NOT SyncGuard_${name}_LIBRARY)
    syncguard_missing(${name} ${debian_package})
  endif()
  if(NOT TARGET SyncGuard::${name})
    add_library(SyncGuard::${name} UNKNOWN IMPORTED)
    set_target_properties(SyncGuard::${name} PROPERTIES
      IMPORTED_LOCATION "${SyncGuard_${name}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_${name}_INCLUDE}")
  endif()
endmacro()

# Needed by the public headers.
find_dependency(Threads)
find_path(SyncGuard_asio_INCLUDE asio/awaitable.hpp)
if(NOT SyncGuard_asio_INCLUDE)
  syncguard_missing("standalone Asio 1.22 or newer" libasio-dev)
endif()
if(NOT TARGET SyncGuard::asio)
  add_library(SyncGuard::asio INTERFACE IMPORTED)
  set_target_properties(SyncGuard::asio PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${SyncGuard_asio_INCLUDE}"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
  # Asio 1.22 does not detect coroutines of clang with libstdc++. It also detects std::aligned_alloc only if a standard header was included
  # before it: without this definition, source files could disagree on how to free memory.
  set_property(TARGET SyncGuard::asio APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS
    ASIO_HAS_STD_ALIGNED_ALLOC=1 "$<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT;ASIO_HAS_STD_COROUTINE>")
endif()

# An installed shared library is already linked with the remaining libraries.
if(SYNCGUARD_IS_SHARED)
  return()
endif()

# Needed to link the library.
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
find_dependency(OpenSSL 3 COMPONENTS Crypto)
if("redis" IN_LIST SYNCGUARD_COMPONENTS)
  find_dependency(OpenSSL 3 COMPONENTS SSL)
  syncguard_find_library(hiredis hiredis/read.h libhiredis-dev)
endif()
syncguard_find_library(utf8proc utf8proc.h libutf8proc-dev)
