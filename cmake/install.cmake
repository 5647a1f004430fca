# What `cmake --install` puts where, in two components:
#   sdk       libdeft, its headers, find_package(deft) and deft.pc
#   programs  deft, deft-agent, deft-controller, deft-train
# Nothing installed knows the prefix, so the tree may be moved as a whole.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH deft_bin_to_lib
  ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH deft_pc_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(deft_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deft)

if(TARGET deft)
  install(TARGETS deft EXPORT deft-targets COMPONENT sdk
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES
    ${CMAKE_SOURCE_DIR}/agent/include/deft/deft.h
    ${CMAKE_SOURCE_DIR}/api/base/include/deft/status.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/deft COMPONENT sdk)

  install(EXPORT deft-targets NAMESPACE deft:: DESTINATION ${deft_package_dir} COMPONENT sdk)
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/deft-config.cmake.in
    ${CMAKE_BINARY_DIR}/deft-config.cmake INSTALL_DESTINATION ${deft_package_dir})
  # Before 1.0 a new minor version may change the interface.
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/deft-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/deft-config.cmake
    ${CMAKE_BINARY_DIR}/deft-config-version.cmake
    DESTINATION ${deft_package_dir} COMPONENT sdk)

  configure_file(${CMAKE_SOURCE_DIR}/cmake/deft.pc.in ${CMAKE_BINARY_DIR}/deft.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/deft.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
endif()

# Programs are the executables of these folders; what is called otherwise than deft* is a helper.
set(deft_programs "")
foreach(folder agent/daemon agent/examples controller api/cli)
  get_property(targets DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE AND target MATCHES "^deft")
      list(APPEND deft_programs ${target})
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${deft_bin_to_lib}")
      install(TARGETS ${target}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
    endif()
  endforeach()
endforeach()
