# Turns files into constants: syncguard_embed(TARGET HEADER NAMESPACE FILE...) makes HEADER, in which each file is a
# std::string_view in NAMESPACE, named like the file without its ending.
function(syncguard_embed target header namespace)
  set(content "// Made from the files next to the sources: do not edit.\n#pragma once\n\n#include <string_view>\n\nnamespace ${namespace} {\n\n")
  foreach(file IN LISTS ARGN)
    cmake_path(GET file STEM name)
    file(READ "${file}" text)
    string(APPEND content "inline constexpr std::string_view ${name} = R\"embedded(${text})embedded\";\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  endforeach()
  string(APPEND content "\n}  // namespace ${namespace}\n")
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/embedded/${header}" CONTENT "${content}" @ONLY)
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/embedded")
endfunction()
