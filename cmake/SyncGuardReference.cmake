# The target syncguard_reference builds the API reference as HTML in reference/html. It fails if Doxygen prints a warning.
find_program(SyncGuard_DOXYGEN doxygen)
if(NOT SyncGuard_DOXYGEN)
  return()
endif()

file(GLOB documents CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/*.md" "${PROJECT_SOURCE_DIR}/bench/*.md" "${PROJECT_SOURCE_DIR}/docs/*.md"
  "${PROJECT_SOURCE_DIR}/docs/adr/*.md")
list(TRANSFORM documents PREPEND "\"")
list(TRANSFORM documents APPEND "\"")
list(JOIN documents " " SYNCGUARD_DOCUMENTS)
set(SYNCGUARD_REFERENCE_FOLDER "${PROJECT_BINARY_DIR}/reference")
configure_file("${PROJECT_SOURCE_DIR}/docs/reference/Doxyfile.in" "${SYNCGUARD_REFERENCE_FOLDER}/Doxyfile" @ONLY)
add_custom_target(syncguard_reference COMMAND "${SyncGuard_DOXYGEN}" "${SYNCGUARD_REFERENCE_FOLDER}/Doxyfile"
  COMMENT "Making the reference in ${SYNCGUARD_REFERENCE_FOLDER}/html" VERBATIM)
