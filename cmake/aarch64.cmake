# Cross-compiles the host backend for 64-bit Arm with Debian's toolchain; tests run under qemu-user.
# scripts/cross_aarch64.sh fetches both and the sysroot.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(TANDEM_AARCH64_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/deps/sysroot-aarch64" CACHE PATH
    "Debian's arm64 packages, unpacked")
set(TANDEM_AARCH64_CPU max CACHE STRING "Processor that qemu-user stands for, as its -cpu takes it")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TANDEM_AARCH64_SYSROOT)
get_filename_component(tandem_sysroot "${TANDEM_AARCH64_SYSROOT}" ABSOLUTE)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT "${tandem_sysroot}")
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# pkg-config answers from the sysroot alone.
set(ENV{PKG_CONFIG_LIBDIR} "${tandem_sysroot}/usr/lib/aarch64-linux-gnu/pkgconfig:${tandem_sysroot}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${tandem_sysroot}")

set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-cpu;${TANDEM_AARCH64_CPU};-L;${tandem_sysroot}")
