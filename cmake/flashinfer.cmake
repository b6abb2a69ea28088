# tandem_flashinfer: the headers of FlashInfer, for the prefill attention of the cuda backend.
# tandem_cutlass: the headers of CUTLASS that it carries, for what is written for Hopper: FA3, the fused gate-up product, the streamed products.

set(TANDEM_FLASHINFER_DIR "${PROJECT_SOURCE_DIR}/build/deps/flashinfer-0.7.2.post1" CACHE PATH
    "Headers of FlashInfer, as scripts/fetch_flashinfer.sh unpacks them")
option(TANDEM_FLASH_ATTENTION3
       "FA3 for long prefills on compute capability 9.0 (two files of 65 s and 3.7 GB each to compile)" ON)
option(TANDEM_FUSED_GATE_UP
       "An own product with SiLU for many rows on compute capability 9.0 (two files of 80 s each to compile)" ON)
option(TANDEM_STREAMED_PRODUCTS
       "Own products of 9 to 256 rows on compute capability 9.0 (six files of 60 to 110 s each to compile)" ON)

set(tandem_flashinfer_version 0.7.2.post1)
set(tandem_flashinfer_found "nothing")
if(EXISTS "${TANDEM_FLASHINFER_DIR}/VERSION")
  file(STRINGS "${TANDEM_FLASHINFER_DIR}/VERSION" tandem_flashinfer_found LIMIT_COUNT 1)
endif()
if(NOT tandem_flashinfer_found STREQUAL tandem_flashinfer_version)
  message(FATAL_ERROR "The cuda backend needs the headers of FlashInfer ${tandem_flashinfer_version} and there is "
                      "${tandem_flashinfer_found} in ${TANDEM_FLASHINFER_DIR}: run scripts/fetch_flashinfer.sh.")
endif()

# libcudacxx is not SYSTEM: it must come before the toolkit's, which nvcc searches before all system folders.
add_library(tandem_flashinfer INTERFACE)
target_include_directories(tandem_flashinfer INTERFACE "${TANDEM_FLASHINFER_DIR}/libcudacxx")
target_include_directories(tandem_flashinfer SYSTEM INTERFACE "${TANDEM_FLASHINFER_DIR}/include")

add_library(tandem_cutlass INTERFACE)
target_link_libraries(tandem_cutlass INTERFACE tandem_flashinfer)
target_include_directories(tandem_cutlass SYSTEM INTERFACE
  "${TANDEM_FLASHINFER_DIR}/cutlass" "${TANDEM_FLASHINFER_DIR}/cutlass_util")
target_compile_definitions(tandem_cutlass INTERFACE CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)

# tandem_hopper_sources(FOLDER OPTION SOURCES a.cu ...): adds files to the library of a folder, compiled for compute
# capability 9.0a alone, and defines OPTION for its other files. Nothing if OPTION is off or the program has no code for 9.0.
function(tandem_hopper_sources name option)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  if(NOT TANDEM_CUDA OR NOT ${option} OR NOT TANDEM_CUDA_ARCHITECTURES MATCHES "90a")
    return()
  endif()
  string(TOLOWER "tandem_${name}_${option}" objects)
  add_library(${objects} OBJECT ${ARG_SOURCES})
  set_target_properties(${objects} PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${objects} PRIVATE tandem_cutlass fmt::fmt CUDA::cudart_static)
  tandem_cuda_options(${objects})
  target_sources(tandem_${name} PRIVATE $<TARGET_OBJECTS:${objects}>)
  target_compile_definitions(tandem_${name} PRIVATE ${option})
endfunction()
