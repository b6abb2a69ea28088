# Run by `cmake --install`: the unit and its variables, with the paths of the prefix that it is given.
set(prefix "${CMAKE_INSTALL_PREFIX}")
set(bindir "${prefix}/${service_bindir}")
set(sysconfdir "${prefix}/${service_sysconfdir}")
# The file system's standard: what lies in /usr is configured in /etc.
if(prefix STREQUAL "/usr")
  set(sysconfdir "/${service_sysconfdir}")
endif()
configure_file("${service_source}/tandem.service.in" "${service_scratch}/tandem.service" @ONLY)
file(INSTALL "${service_scratch}/tandem.service" DESTINATION "${prefix}/lib/systemd/system")
# Only root reads them, systemd among it: keys may stand there. What an administrator wrote stays.
foreach(file tandem.env api-keys)
  if(EXISTS "$ENV{DESTDIR}${sysconfdir}/tandem/${file}")
    message(STATUS "Keeping: $ENV{DESTDIR}${sysconfdir}/tandem/${file}")
  else()
    file(INSTALL "${service_source}/${file}" DESTINATION "${sysconfdir}/tandem" PERMISSIONS OWNER_READ OWNER_WRITE)
  endif()
endforeach()
