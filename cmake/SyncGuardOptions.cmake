# Options whose defaults depend on the installed packages.

# An option that is on by default if all variables named after its description are true.
function(syncguard_option_if option description)
  set(possible ON)
  foreach(condition IN LISTS ARGN)
    if(NOT ${condition})
      set(possible OFF)
    endif()
  endforeach()
  option(${option} "${description}" ${possible})
endfunction()

# The option SYNCGUARD_NAME and, if it is on, the component NAME (the others are in SYNCGUARD_LEFT_OUT). If a dependency was not found (the
# variables named after the Debian package), the backend is left out with a message, unless it was requested explicitly: then configuring
# fails.
function(syncguard_backend name server needs debian_package)
  string(TOUPPER "SYNCGUARD_${name}" option)
  syncguard_option_if(${option} "Locks on ${server} (needs ${needs})" ${ARGN})
  if(${option})
    set(SYNCGUARD_COMPONENTS ${SYNCGUARD_COMPONENTS} ${name} PARENT_SCOPE)
  else()
    set(SYNCGUARD_LEFT_OUT ${SYNCGUARD_LEFT_OUT} ${name} PARENT_SCOPE)
    message(NOTICE "SyncGuard: without locks on ${server}; install ${needs} (Debian: ${debian_package}) and set ${option}")
  endif()
endfunction()

# find_package(gRPC), but a half-installed gRPC counts as missing. Its CMake package ends the whole configuration if a program
# that it names is missing (on Debian, libgrpc++-dev without protobuf-compiler-grpc), so a scratch project tries it first.
macro(syncguard_find_grpc)
  if(NOT SyncGuard_GRPC_WORKS AND NOT CMAKE_DISABLE_FIND_PACKAGE_gRPC)
    set(probe "${PROJECT_BINARY_DIR}/grpc_probe")
    file(WRITE "${probe}/CMakeLists.txt"
      "cmake_minimum_required(VERSION 3.25)\nproject(probe LANGUAGES CXX)\nfind_package(gRPC CONFIG REQUIRED)\n")
    execute_process(
      COMMAND "${CMAKE_COMMAND}" -S "${probe}" -B "${probe}/build" -G "${CMAKE_GENERATOR}"
        "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}" "-DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE}"
        "-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH}" "-DgRPC_DIR=${gRPC_DIR}"
      RESULT_VARIABLE status OUTPUT_FILE "${probe}/log" ERROR_FILE "${probe}/log")
    if(status EQUAL 0)
      set(SyncGuard_GRPC_WORKS TRUE CACHE INTERNAL "Whether find_package(gRPC) succeeds")
    endif()
  endif()
  if(SyncGuard_GRPC_WORKS)
    find_package(gRPC CONFIG QUIET)
  endif()
endmacro()
