# tandem_flashinfer: the headers of FlashInfer, for the prefill attention of the cuda backend.
# tandem_flashinfer3: what FA3's translation units need on top.

set(TANDEM_FLASHINFER_DIR "${PROJECT_SOURCE_DIR}/build/deps/flashinfer-0.7.2.post1" CACHE PATH
    "Headers of FlashInfer, as scripts/fetch_flashinfer.sh unpacks them")
option(TANDEM_FLASH_ATTENTION3
       "FA3 for long prefills on compute capability 9.0 (two files of 65 s and 3.7 GB each to compile)" ON)

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

add_library(tandem_flashinfer3 INTERFACE)
target_link_libraries(tandem_flashinfer3 INTERFACE tandem_flashinfer)
target_include_directories(tandem_flashinfer3 SYSTEM INTERFACE
  "${TANDEM_FLASHINFER_DIR}/cutlass" "${TANDEM_FLASHINFER_DIR}/cutlass_util")
target_compile_definitions(tandem_flashinfer3 INTERFACE CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED)

# tandem_flash_attention3(FOLDER SOURCES a.cu ...): adds FA3's files to the library of a folder, compiled for
# compute capability 9.0a alone, and tells its other files. Nothing without TANDEM_FLASH_ATTENTION3, or in a
# build without code for 9.0a.
function(tandem_flash_attention3 name)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  if(NOT TANDEM_CUDA OR NOT TANDEM_FLASH_ATTENTION3 OR NOT "${TANDEM_CUDA_ARCHITECTURES}" MATCHES "90a")
    return()
  endif()
  add_library(tandem_${name}_fa3 OBJECT ${ARG_SOURCES})
  set_target_properties(tandem_${name}_fa3 PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_include_directories(tandem_${name}_fa3 PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tandem_${name}_fa3 PRIVATE tandem_flashinfer3 fmt::fmt CUDA::cudart_static)
  tandem_cuda_options(tandem_${name}_fa3)
  target_sources(tandem_${name} PRIVATE $<TARGET_OBJECTS:tandem_${name}_fa3>)
  target_compile_definitions(tandem_${name} PRIVATE TANDEM_FLASH_ATTENTION3)
endfunction()
