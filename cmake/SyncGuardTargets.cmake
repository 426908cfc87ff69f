# How our own targets are built. Nothing of this reaches a consumer.

function(syncguard_strict target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
    -Woverloaded-virtual -Wcast-qual -Wformat=2 -Wimplicit-fallthrough
    # g++ 12 sees ghosts: in <stop_token> and <optional>, and where Asio allocates coroutine frames.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-mismatched-new-delete>
    $<$<BOOL:${SYNCGUARD_WERROR}>:-Werror>)
endfunction()

# One layer of the library: its sources see the public headers and those below src/.
function(syncguard_layer name)
  add_library(syncguard_${name} OBJECT ${ARGN})
  syncguard_strict(syncguard_${name})
  set_target_properties(syncguard_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(syncguard_${name}
    PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include"
    PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_sources(syncguard PRIVATE $<TARGET_OBJECTS:syncguard_${name}>)
endfunction()

# A shared library exports the API, and nothing else that its sources do not hide (see syncguard.map).
function(syncguard_export_api_only target)
  set(map "${PROJECT_SOURCE_DIR}/cmake/syncguard.map")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
