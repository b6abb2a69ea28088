# What `cmake --install` puts where, in two components: `program`, which runs from wherever it lies, and `service`,
# which names the paths that it was installed to.
include(GNUInstallDirs)
find_package(Python3 COMPONENTS Interpreter)

# Part of a full build, but not of the program: who builds only that needs no Python.
set(man_page ${PROJECT_BINARY_DIR}/tandem.1.gz)
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING)
  add_custom_command(
    OUTPUT ${man_page}
    COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/make_man_page.py $<TARGET_FILE:tandem> ${man_page}
    DEPENDS tandem ${PROJECT_SOURCE_DIR}/scripts/make_man_page.py
    COMMENT "Writing the man page"
    VERBATIM)
  add_custom_target(tandem_man_page ALL DEPENDS ${man_page})
endif()

install(TARGETS tandem RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(CODE "
  if(NOT EXISTS \"${man_page}\")
    message(FATAL_ERROR \"The man page is not made yet: cmake --build ${PROJECT_BINARY_DIR} --target tandem_man_page\")
  endif()"
  COMPONENT program)
install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# Of libraries that are headers alone, and so in the program: licences that want to be beside it.
foreach(library libcli11 nlohmann-json3)
  if(EXISTS /usr/share/doc/${library}-dev/copyright)
    install(FILES /usr/share/doc/${library}-dev/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME ${library}
            COMPONENT program)
  endif()
endforeach()

# xgrammar is in the program too, and in it picojson, whose licence is the head of its one file.
install(FILES "${TANDEM_XGRAMMAR_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME xgrammar COMPONENT program)
install(FILES "${TANDEM_XGRAMMAR_DIR}/NOTICE" DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses RENAME xgrammar.notice
        COMPONENT program)
file(READ "${TANDEM_XGRAMMAR_DIR}/3rdparty/picojson/picojson.h" picojson_licence LIMIT 4096)
string(REGEX REPLACE "\\*/.*" "*/\n" picojson_licence "${picojson_licence}")
file(WRITE "${PROJECT_BINARY_DIR}/xgrammar/picojson" "${picojson_licence}")
install(FILES "${PROJECT_BINARY_DIR}/xgrammar/picojson" DESTINATION ${CMAKE_INSTALL_DOCDIR}/licenses COMPONENT program)

# The prefix is only known when it is installed.
install(CODE "
  set(service_source \"${PROJECT_SOURCE_DIR}/packaging\")
  set(service_scratch \"${PROJECT_BINARY_DIR}/service\")
  set(service_bindir \"${CMAKE_INSTALL_BINDIR}\")
  set(service_sysconfdir \"${CMAKE_INSTALL_SYSCONFDIR}\")"
  COMPONENT service)
install(SCRIPT cmake/install_service.cmake COMPONENT service)
