# What `cmake --install` puts where. Components are called like the Debian packages:
#   libdeft0      libdeft
#   libdeft-dev   its headers, find_package(deft) and deft.pc
#   deft, deft-agent, deft-controller, deft-train   each program with its manual page
# Nothing installed knows the prefix, so the tree may be moved as a whole.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH deft_bin_to_lib
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH deft_pc_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(deft_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deft)

if(TARGET deft)
  install(TARGETS deft EXPORT deft-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
      COMPONENT libdeft0 NAMELINK_COMPONENT libdeft-dev
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES
    ${CMAKE_SOURCE_DIR}/agent/include/deft/deft.h
    ${CMAKE_SOURCE_DIR}/api/base/include/deft/status.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deft COMPONENT libdeft-dev)

  install(EXPORT deft-targets NAMESPACE deft:: DESTINATION ${deft_package_dir}
    COMPONENT libdeft-dev)
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/deft-config.cmake.in
    ${CMAKE_BINARY_DIR}/deft-config.cmake INSTALL_DESTINATION ${deft_package_dir})
  # Before 1.0 a new minor version may change the interface.
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/deft-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/deft-config.cmake
    ${CMAKE_BINARY_DIR}/deft-config-version.cmake
    DESTINATION ${deft_package_dir} COMPONENT libdeft-dev)

  configure_file(${CMAKE_SOURCE_DIR}/cmake/deft.pc.in ${CMAKE_BINARY_DIR}/deft.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/deft.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libdeft-dev)
endif()

# Programs are the executables of these folders; what is called otherwise than deft* is a helper.
set(deft_programs "")
foreach(folder agent/daemon agent/examples controller api/cli)
  get_property(targets DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE AND target MATCHES "^deft")
      list(APPEND deft_programs ${target})
      get_target_property(links ${target} LINK_LIBRARIES)
      if("deft" IN_LIST links)
        set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${deft_bin_to_lib}")
      endif()
      string(REGEX REPLACE "-cli$" "" component ${target})
      install(TARGETS ${target}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
    endif()
  endforeach()
endforeach()

# $1 page, $2 component. Compressed where gzip is, as distributions want it.
find_program(DEFT_GZIP gzip)
function(deft_man page component)
  string(REGEX REPLACE ".*\\." "" section ${page})
  set(file ${CMAKE_SOURCE_DIR}/docs/man/${page})
  if(DEFT_GZIP)
    set(file ${CMAKE_BINARY_DIR}/man/${page}.gz)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/man)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      ${CMAKE_SOURCE_DIR}/docs/man/${page})
    execute_process(COMMAND ${DEFT_GZIP} -9nc ${CMAKE_SOURCE_DIR}/docs/man/${page}
      OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
    COMPONENT ${component})
endfunction()
# What Prometheus and Grafana read of the controller.
install(FILES
  ${CMAKE_SOURCE_DIR}/charts/grafana/deft-alerts.yaml
  ${CMAKE_SOURCE_DIR}/charts/grafana/deft-dashboard.json
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/deft/grafana COMPONENT deft-controller)

deft_man(deft.1 deft)
deft_man(deft-agent.8 deft-agent)
deft_man(deft-controller.8 deft-controller)
if(DEFT_HAVE_SLURM)
  deft_man(spank_deft.8 ${DEFT_SPANK_PACKAGE})
endif()
