# syncguard_embed(HEADER NAMESPACE FOLDER) generates HEADER with a std::string_view in NAMESPACE for each .lua and .sql file of FOLDER,
# named after the file. A file with lines such as `-- name: acquire` becomes one constant per such line: the text up to the next one. Text
# before the first such line is a comment. Files of a web page are embedded, too; index.html becomes index_html. SYNCGUARD_EMBEDDED is the
# include folder of the generated headers.
set(SYNCGUARD_EMBEDDED "${PROJECT_BINARY_DIR}/embedded")

function(syncguard_embed header namespace folder)
  set(content "// Generated from the files next to the sources: do not edit.\n#pragma once\n\n#include <string_view>\n\nnamespace ${namespace} {\n")
  set(begin "\ninline constexpr std::string_view ")
  set(end ")embedded\";\n")
  file(GLOB files CONFIGURE_DEPENDS "${folder}/*.lua" "${folder}/*.sql"
    "${folder}/*.html" "${folder}/*.css" "${folder}/*.js" "${folder}/*.svg")
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" text)
    string(REGEX REPLACE "(^|\n)-- name: ([a-z_]+)\n" "${end}${begin}\\2 = R\"embedded(" sections "${text}")
    string(FIND "${sections}" "${end}" first)
    if(first EQUAL -1)
      cmake_path(GET file FILENAME name)
      string(REGEX REPLACE "\\.(lua|sql)$" "" name "${name}")
      string(MAKE_C_IDENTIFIER "${name}" name)
      string(APPEND content "${begin}${name} = R\"embedded(${text}${end}")
    else()
      string(LENGTH "${end}" length)
      math(EXPR first "${first} + ${length}")
      string(SUBSTRING "${sections}" ${first} -1 sections)
      string(APPEND content "${sections}${end}")
    endif()
  endforeach()
  string(APPEND content "\n}  // namespace ${namespace}\n")
  file(CONFIGURE OUTPUT "${SYNCGUARD_EMBEDDED}/${header}" CONTENT "${content}" @ONLY)
endfunction()
