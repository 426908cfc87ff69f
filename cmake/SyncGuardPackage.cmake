# `cpack -G DEB` in the build of a shared library creates three packages, named and split as usual in Debian.
set(library_package "libsyncguard${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(same_version "${library_package} (= ${PROJECT_VERSION})")

set(CPACK_PACKAGE_CONTACT "The SyncGuard developers")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library development)
if(SYNCGUARD_COMMAND)
  list(APPEND CPACK_COMPONENTS_ALL command)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# dpkg-shlibdeps finds the linked libraries, except for the one in the other package of this build.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/src")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME "${library_package}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
if(SYNCGUARD_SQLITE)
  # The version that the SQL statements need, which cannot be derived from symbols.
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libsqlite3-0 (>= 3.37)")
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The shared library that programs need.
Locks with fencing tokens between processes and hosts, in memory, SQLite,
Redis, PostgreSQL or Firestore.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libsyncguard-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same_version}, libasio-dev (>= 1:1.22)")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "The headers of the C++ library, its CMake package and its pkg-config file.")
if(SYNCGUARD_BUILD_TESTING_LIBRARY)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libgtest-dev, libgmock-dev")
endif()

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME syncguard)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "${same_version}")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command, which runs others under a lock, and takes, inspects and releases
locks.")

# Debian's policy requires the license in each package.
foreach(component IN ITEMS library development command)
  string(TOUPPER "CPACK_DEBIAN_${component}_PACKAGE_NAME" name)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${${name}}" RENAME copyright
    COMPONENT ${component})
endforeach()
include(CPack)
