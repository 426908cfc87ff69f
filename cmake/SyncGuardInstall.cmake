# Installing the library, its CMake package and its pkg-config file.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/SyncGuard")

install(TARGETS syncguard EXPORT SyncGuardTargets)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  PATTERN contract_suite.hpp EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/include/syncguard/version.hpp"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/syncguard")
if(SYNCGUARD_COMMAND)
  install(TARGETS syncguard_command)
  install(FILES "${PROJECT_SOURCE_DIR}/docs/man/syncguard.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  # Where each shell looks by itself.
  install(FILES "${PROJECT_SOURCE_DIR}/completions/syncguard.bash"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME syncguard)
  install(FILES "${PROJECT_SOURCE_DIR}/completions/_syncguard" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${PROJECT_SOURCE_DIR}/completions/syncguard.fish"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
install(EXPORT SyncGuardTargets NAMESPACE SyncGuard:: DESTINATION "${package_dir}")

# Apart, because it needs GoogleTest, which those who only use locks need not have.
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

# Relative, so that the tree can be installed elsewhere than it was configured for.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY
  "${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig" OUTPUT_VARIABLE prefix_from_pkgconfig)
set(pkgconfig_backends "")
if(SYNCGUARD_SQLITE)
  string(APPEND pkgconfig_backends " sqlite3")
endif()
set(pkgconfig_libraries "")
if(SYNCGUARD_POSTGRES)
  # Not as a package: with --static that asks for what libpq itself was linked with, which is rarely there.
  string(APPEND pkgconfig_libraries " -lpq")
endif()
if(SYNCGUARD_REDIS)
  string(APPEND pkgconfig_backends " libssl hiredis")
endif()
if(SYNCGUARD_FIRESTORE)
  string(APPEND pkgconfig_backends " grpc++ protobuf-lite")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/syncguard.pc.in" "${PROJECT_BINARY_DIR}/syncguard.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/syncguard.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
