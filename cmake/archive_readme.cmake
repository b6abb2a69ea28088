# Run by CPack when the .tar.gz is filled: says on top of it how to run what is in it.
# CPACK_TANDEM_DEPENDS: the Debian packages with the shared libraries that the program needs.
if(NOT CPACK_TANDEM_DEPENDS)
  message(FATAL_ERROR "The archive's README wants CPACK_TANDEM_DEPENDS: make packages with scripts/package.sh.")
endif()
file(WRITE "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/README" "Tandem ${CPACK_PACKAGE_VERSION}, built on Debian 12 for x86-64.

Its shared libraries come from these packages of Debian 12:

    apt-get install ${CPACK_TANDEM_DEPENDS}

Then it runs from where it was unpacked:

    bin/tandem --version
    bin/tandem serve MODEL          # a Hugging Face folder or a .gguf file; http://127.0.0.1:8000
    man -l share/man/man1/tandem.1.gz

The .deb of the same version installs these libraries by itself and has a systemd service.
More is in share/doc/tandem/README.md.
")
