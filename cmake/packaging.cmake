# The packages that scripts/package.sh makes with CPack, out of what cmake/install.cmake installs: a .deb of the program
# and the service, and a .tar.gz of the program, which runs from where it is unpacked.
#
# A name of a file and a version here are those of a build between releases; the script gives better ones, with the
# commit that the program says it was built from.
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_VENDOR "the authors of Tandem")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Server for large language models with CPU attention")
set(CPACK_PACKAGE_DESCRIPTION
    "An OpenAI-compatible server that keeps the KV cache of some requests in host memory and computes their decode
attention there, beside the GPU, so that more requests decode at once. This build runs on the CPU alone.")
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# What differs between the two is set when one of them is made.
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/package_kinds.cmake")
set(CPACK_TANDEM_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
set(CPACK_TANDEM_BINARY_DIR "${PROJECT_BINARY_DIR}")

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "Tandem maintainers <maintainers@localhost>")
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(control "${PROJECT_SOURCE_DIR}/packaging/debian")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    "${control}/conffiles;${control}/postinst;${control}/prerm;${control}/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

include(CPack)
install(FILES packaging/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT debian EXCLUDE_FROM_ALL)
