# Read by CPack before it makes a package, when CPACK_GENERATOR is the kind of that package.
set(project "${CPACK_TANDEM_BINARY_DIR};tandem")
if(CPACK_GENERATOR STREQUAL "DEB")
  # Files in /usr and in /etc.
  set(CPACK_SET_DESTDIR ON)
  set(CPACK_INSTALL_PREFIX /usr)
  set(CPACK_INSTALL_CMAKE_PROJECTS "${project};program;/;${project};service;/;${project};debian;/")
else()
  set(CPACK_INSTALL_CMAKE_PROJECTS "${project};program;/")
  set(CPACK_PRE_BUILD_SCRIPTS "${CPACK_TANDEM_SOURCE_DIR}/cmake/archive_readme.cmake")
endif()
