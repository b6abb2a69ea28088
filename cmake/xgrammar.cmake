# xgrammar: the library that src/grammar is built on, a static library. Its sources are fetched when they are not there.

set(TANDEM_XGRAMMAR_DIR "${PROJECT_SOURCE_DIR}/build/deps/xgrammar-0.2.8" CACHE PATH
    "Sources of xgrammar, as scripts/fetch_xgrammar.sh unpacks them")

set(tandem_xgrammar_version 0.2.8)
if(NOT EXISTS "${TANDEM_XGRAMMAR_DIR}/VERSION")
  message(STATUS "Fetching xgrammar ${tandem_xgrammar_version}")
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/fetch_xgrammar.sh" "${TANDEM_XGRAMMAR_DIR}"
                  OUTPUT_QUIET RESULT_VARIABLE tandem_fetch_failed)
  if(tandem_fetch_failed)
    message(FATAL_ERROR "scripts/fetch_xgrammar.sh failed, see above. On a machine without a network, copy the folder that "
                        "it makes elsewhere to ${TANDEM_XGRAMMAR_DIR}.")
  endif()
endif()
file(STRINGS "${TANDEM_XGRAMMAR_DIR}/VERSION" tandem_xgrammar_found LIMIT_COUNT 1)
if(NOT tandem_xgrammar_found STREQUAL tandem_xgrammar_version)
  message(FATAL_ERROR "src/grammar needs xgrammar ${tandem_xgrammar_version} and there is ${tandem_xgrammar_found} in "
                      "${TANDEM_XGRAMMAR_DIR}: remove it and run scripts/fetch_xgrammar.sh.")
endif()

# Two batches, because most of a file's compile time is what its includes cost; what runs for each token is in the second. The
# converters from JSON schemas, regular expressions and Lark are left out (src/grammar/xgrammar_hooks.cc).
set(tandem_xgrammar_grammar
  structural_tag.cc grammar.cc grammar_builder.cc grammar_parser.cc grammar_printer.cc config.cc support/recursion_guard.cc
  support/logging.cc tokenizer_info.cc compiled_grammar.cc testing.cc)
set(tandem_xgrammar_match
  earley_parser.cc grammar_matcher.cc grammar_compiler.cc grammar_functor.cc fsm.cc fsm_builder.cc suffix_automata.cc)
set(tandem_xgrammar_sources "${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_hooks.cc")
foreach(batch grammar match)
  set(text "")
  foreach(file IN LISTS tandem_xgrammar_${batch})
    string(APPEND text "#include \"${TANDEM_XGRAMMAR_DIR}/cpp/${file}\"\n")
  endforeach()
  set(source "${PROJECT_BINARY_DIR}/xgrammar/${batch}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${text}" @ONLY)
  list(APPEND tandem_xgrammar_sources "${source}")
endforeach()

add_library(xgrammar STATIC ${tandem_xgrammar_sources})
set_target_properties(xgrammar PROPERTIES UNITY_BUILD OFF)
target_include_directories(xgrammar SYSTEM PUBLIC
  "${TANDEM_XGRAMMAR_DIR}/include" "${TANDEM_XGRAMMAR_DIR}/cpp" "${TANDEM_XGRAMMAR_DIR}/3rdparty/picojson"
  "${TANDEM_XGRAMMAR_DIR}/3rdparty/dlpack/include")
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0
                                           XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_options(xgrammar PRIVATE -w)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
if(TANDEM_SANITIZE)
  # Memory and threads are shared with it; undefined behaviour is looked for in our own code.
  string(REGEX MATCH "address|thread" tandem_xgrammar_sanitizer "${TANDEM_SANITIZE}")
  tandem_optimization(xgrammar HOT)
  target_compile_options(xgrammar PRIVATE -fsanitize=${tandem_xgrammar_sanitizer} -fno-omit-frame-pointer)
  target_link_options(xgrammar PUBLIC -fsanitize=${TANDEM_SANITIZE})
else()
  set_source_files_properties("${PROJECT_BINARY_DIR}/xgrammar/grammar.cc" PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
endif()
