# Every folder of src/ is one static library whose allowed includes are its DEPENDS.
# scripts/check_layers.py reads the DEPENDS lists below src/ and fails on any include outside them.

set(TANDEM_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers -Werror)

function(tandem_compile_options target)
  target_compile_options(${target} PRIVATE ${TANDEM_WARNINGS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  if(TANDEM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${TANDEM_SANITIZE})
  endif()
endfunction()

# tandem_library(NAME SOURCES a.cc ... DEPENDS folder ... LIBRARIES external ...)
# DEPENDS: other folders of src/. LIBRARIES: third-party targets, private to this folder's sources
# unless given as PUBLIC_LIBRARIES.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SOURCES})
  tandem_compile_options(tandem_${name})
  target_link_libraries(tandem_${name} PUBLIC fmt::fmt Threads::Threads ${ARG_PUBLIC_LIBRARIES}
                                       PRIVATE ${ARG_LIBRARIES})
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(tandem_${name} PUBLIC tandem_${dep})
  endforeach()
endfunction()

# tandem_test(NAME SOURCES foo_test.cc ... DEPENDS folder ... [LABELS ...] [TIMEOUT seconds])
# One GoogleTest program a folder: <name>_test. Tests find checked-in data through TANDEM_SOURCE_DIR.
function(tandem_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LIBRARIES;LABELS" ${ARGN})
  if(NOT TANDEM_BUILD_TESTS)
    return()
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  tandem_compile_options(${name}_test)
  target_compile_definitions(${name}_test PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name}_test PRIVATE GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LIBRARIES})
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${name}_test PRIVATE tandem_${dep})
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_test(NAME ${name}_test COMMAND ${name}_test)
  set_tests_properties(${name}_test PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
