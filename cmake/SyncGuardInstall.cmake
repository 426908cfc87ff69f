# Installs the library, its CMake package and its pkg-config file, and the command. There are three components, so that a distribution can
# split them: library (needed at run time), development, command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/SyncGuard")

# For the two files below: users of a shared library do not need the libraries that it is linked with.
set(SYNCGUARD_IS_SHARED OFF)
if(BUILD_SHARED_LIBS)
  set(SYNCGUARD_IS_SHARED ON)
endif()

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(TARGETS syncguard syncguard_testing EXPORT SyncGuardTargets
  LIBRARY COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  PATTERN contract_suite.hpp EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/include/syncguard/version.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/syncguard")
if(SYNCGUARD_COMMAND)
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME command)
  if(SYNCGUARD_IS_SHARED)
    # The command finds the library relative to itself. A distribution that does not want that sets CMAKE_SKIP_INSTALL_RPATH.
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY "${CMAKE_INSTALL_FULL_BINDIR}"
      OUTPUT_VARIABLE libraries_from_programs)
    set_target_properties(syncguard_command PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries_from_programs}")
  endif()
  install(TARGETS syncguard_command)
  install(FILES "${PROJECT_SOURCE_DIR}/docs/man/syncguard.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  # The folders in which each shell looks for completions.
  install(FILES "${PROJECT_SOURCE_DIR}/completions/syncguard.bash"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME syncguard)
  install(FILES "${PROJECT_SOURCE_DIR}/completions/_syncguard" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${PROJECT_SOURCE_DIR}/completions/syncguard.fish"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
  set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
endif()
install(EXPORT SyncGuardTargets NAMESPACE SyncGuard:: DESTINATION "${package_dir}")

# A separate export, because it needs GoogleTest, and programs that only use locks do not.
if(SYNCGUARD_BUILD_TESTING_LIBRARY)
  install(TARGETS syncguard_contract_suite EXPORT SyncGuardContractSuiteTargets)
  install(FILES "${PROJECT_SOURCE_DIR}/include/syncguard/testing/contract_suite.hpp"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/syncguard/testing")
  install(EXPORT SyncGuardContractSuiteTargets NAMESPACE SyncGuard:: DESTINATION "${package_dir}")
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/SyncGuardConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/SyncGuardConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SyncGuardConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/SyncGuardConfig.cmake"
  "${PROJECT_BINARY_DIR}/SyncGuardConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/SyncGuardDependencies.cmake"
  DESTINATION "${package_dir}")

# Relative paths, so that the installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY
  "${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig" OUTPUT_VARIABLE prefix_from_pkgconfig)
set(pkgconfig_requires "libcrypto")
set(pkgconfig_libraries "-lutf8proc")
if(SYNCGUARD_SQLITE)
  string(APPEND pkgconfig_requires " sqlite3")
endif()
if(SYNCGUARD_POSTGRES)
  # Not through Requires: with --static, that would also require the libraries of libpq, which are rarely installed.
  string(APPEND pkgconfig_libraries " -lpq")
endif()
if(SYNCGUARD_REDIS)
  string(APPEND pkgconfig_requires " libssl hiredis")
endif()
if(SYNCGUARD_FIRESTORE)
  string(APPEND pkgconfig_requires " grpc++ protobuf-lite")
endif()
if(SYNCGUARD_IS_SHARED)
  set(pkgconfig_requires "")
  set(pkgconfig_libraries "")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/syncguard.pc.in" "${PROJECT_BINARY_DIR}/syncguard.pc" @ONLY)
configure_file("${PROJECT_SOURCE_DIR}/cmake/syncguard-testing.pc.in" "${PROJECT_BINARY_DIR}/syncguard-testing.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/syncguard.pc" "${PROJECT_BINARY_DIR}/syncguard-testing.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
