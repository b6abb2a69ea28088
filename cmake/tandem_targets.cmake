# Every folder of src/ is one static library whose allowed includes are its DEPENDS.
# scripts/check_layers.py reads the DEPENDS lists below src/ and fails on any include outside them.

set(TANDEM_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
    -Wno-missing-field-initializers -Werror)
# Where GCC is wrong about it: at -O1, of constants behind initializer lists and of what a sanitizer has put in between.
# The first option is for clang's tools, which do not know the second.
set(TANDEM_NO_MAYBE_UNINITIALIZED -Wno-unknown-warning-option -Wno-maybe-uninitialized)

# Most of a file's compile time is what its includes cost, so TANDEM_UNITY_BUILD compiles a folder's files in batches
# of this many: names of unnamed namespaces must then differ within a folder. Files with compile options of their own
# (kernels) stay alone. Larger batches cost memory and make a rebuild after a change longer.
set(TANDEM_UNITY_BATCH 20)

# Compiling costs more CPU seconds the more it optimizes, so only what is HOT does (what runs for each token or plan):
#
#              release  with sanitizers
#   HOT            -O2              -O1
#   (neither)      -O2              -O0
#   COLD           -O1              -O0     what runs once a program: its command line, profiling
#   TEST           -O0              -O0     tests, unless they COMPUTE: inline functions of a test's own object files serve the whole program
#
# The presets' own flags are -O2 and -O0; kernels have theirs, see tandem_kernel_sources.
function(tandem_optimization target level)
  if(TANDEM_SANITIZE)
    set(flags "$<$<STREQUAL:${level},HOT>:-O1;${TANDEM_NO_MAYBE_UNINITIALIZED}>")
  else()
    set(flags "$<$<AND:$<STREQUAL:${level},COLD>,$<CONFIG:Release>>:-O1;${TANDEM_NO_MAYBE_UNINITIALIZED}>"
              "$<$<AND:$<STREQUAL:${level},TEST>,$<CONFIG:Release>>:-O0>")
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
endfunction()

function(tandem_compile_options target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD "${TANDEM_UNITY_BUILD}"
                                             UNITY_BUILD_BATCH_SIZE ${TANDEM_UNITY_BATCH})
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_WARNINGS}>")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
    # As on x86-64: multiply-adds only where the code says so, so that plans and prices are the same numbers; char has a sign.
    target_compile_options(${target} PRIVATE -ffp-contract=off -fsigned-char)
  endif()
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  if(TANDEM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    if(TANDEM_SKIPPED_CHECKS)
      target_compile_options(${target} PRIVATE -fno-sanitize=${TANDEM_SKIPPED_CHECKS})
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${TANDEM_SANITIZE})
  endif()
endfunction()

# tandem_library(NAME [HOT | COLD] SOURCES a.cc ... DEPENDS folder ... LIBRARIES external ...)
# DEPENDS: other folders of src/. LIBRARIES: third-party targets, private to this folder's sources
# unless given as PUBLIC_LIBRARIES.
function(tandem_library name)
  cmake_parse_arguments(ARG "HOT;COLD" "" "SOURCES;DEPENDS;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SOURCES})
  tandem_compile_options(tandem_${name})
  if(ARG_HOT)
    tandem_optimization(tandem_${name} HOT)
  elseif(ARG_COLD)
    tandem_optimization(tandem_${name} COLD)
  endif()
  target_link_libraries(tandem_${name} PUBLIC fmt::fmt Threads::Threads ${ARG_PUBLIC_LIBRARIES}
                                       PRIVATE ${ARG_LIBRARIES})
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(tandem_${name} PUBLIC tandem_${dep})
  endforeach()
endfunction()

# tandem_test(NAME [COMPUTE] SOURCES foo_test.cc ... DEPENDS folder ... [ALONE ...] [LABELS ...] [TIMEOUT seconds])
# One GoogleTest program a folder: <name>_test. Tests find checked-in data through TANDEM_SOURCE_DIR.
# COMPUTE: it would take longer by more than compiling it optimized does.
# ALONE: those of SOURCES that are compiled one at a time, because together they would be too large.
function(tandem_test name)
  cmake_parse_arguments(ARG "COMPUTE" "TIMEOUT" "SOURCES;ALONE;DEPENDS;LIBRARIES;LABELS" ${ARGN})
  if(NOT TANDEM_BUILD_TESTS)
    return()
  endif()
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${name}_test ${ARG_SOURCES})
  tandem_compile_options(${name}_test)
  if(ARG_COMPUTE)
    tandem_optimization(${name}_test COLD)
  else()
    tandem_optimization(${name}_test TEST)
  endif()
  target_compile_definitions(${name}_test PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(CMAKE_CROSSCOMPILING)
    target_compile_definitions(${name}_test PRIVATE TANDEM_EMULATED)
  endif()
  target_link_libraries(${name}_test PRIVATE GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LIBRARIES})
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${name}_test PRIVATE tandem_${dep})
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(CMAKE_CROSSCOMPILING)
    math(EXPR ARG_TIMEOUT "6 * ${ARG_TIMEOUT}")  # an emulated processor
  endif()
  add_test(NAME ${name}_test COMMAND ${name}_test)
  set_tests_properties(${name}_test PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

# tandem_kernel_sources(VARIABLE PORTABLE a.cc ... AVX2 ... AVX512 ... AVX512_BF16 ... AMX ... NEON ... NEON_DOT ... NEON_BF16 ...)
# Sets VARIABLE to the kernel files that this processor family has, each to be compiled for its instruction set.
function(tandem_kernel_sources variable)
  cmake_parse_arguments(ARG "" "" "PORTABLE;AVX2;AVX512;AVX512_BF16;AMX;NEON;NEON_DOT;NEON_BF16" ${ARGN})
  # Sanitizers multiply unrolled code: at -O3 a kernel file would take minutes to compile.
  if(TANDEM_SANITIZE)
    set(flags -O1)
  else()
    set(flags -O3)
  endif()
  # GCC 12 takes the don't-care operands of its own AVX-512 intrinsics for uninitialized variables.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags ${TANDEM_NO_MAYBE_UNINITIALIZED} -Wno-uninitialized)
  endif()
  set_source_files_properties(${ARG_PORTABLE} PROPERTIES COMPILE_OPTIONS "${flags}")
  set(sources ${ARG_PORTABLE})
  set(isas "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(isas AVX2 AVX512 AVX512_BF16 AMX)
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
    set(avx512_bf16 ${avx512} -mavx512bf16 -mavx512vnni)
    set(amx ${avx512_bf16} -mamx-tile -mamx-bf16 -mamx-int8)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
    set(isas NEON NEON_DOT NEON_BF16)
    # Every compiler for it has NEON on: what tells these files from portable ones is the definition.
    set(neon -DTANDEM_NEON)
    set(neon_dot ${neon} -march=armv8.2-a+dotprod)
    set(neon_bf16 ${neon} -march=armv8.2-a+dotprod+bf16+i8mm)
  endif()
  foreach(isa IN LISTS isas)
    string(TOLOWER ${isa} isa_flags)
    if(ARG_${isa})
      set_source_files_properties(${ARG_${isa}} PROPERTIES COMPILE_OPTIONS "${flags};${${isa_flags}}")
      list(APPEND sources ${ARG_${isa}})
    endif()
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# tandem_cuda_sources(FOLDER SOURCES a.cu b.cc ... [LIBRARIES ...])
# Adds the files of the cuda backend to the library of a folder; nothing without TANDEM_CUDA.
function(tandem_cuda_sources name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT TANDEM_CUDA)
    return()
  endif()
  target_sources(tandem_${name} PRIVATE ${ARG_SOURCES})
  # Private: nobody else sees CUDA's headers, and all other files compile as in a host build.
  target_link_libraries(tandem_${name} PRIVATE CUDA::cudart_static ${ARG_LIBRARIES})
  tandem_cuda_options(tandem_${name})
endfunction()

function(tandem_cuda_options target)
  # fmt's compile-time check of formats is too much for nvcc's front end; g++ makes it in the .cc files.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-DFMT_CONSTEVAL=;-DFMT_USE_CONSTEXPR=1;-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers;-Werror=all-warnings;-diag-suppress=20012>")
endfunction()
