# Debian packages, by `cpack -G DEB` or scripts/build-debs: what cmake/install.cmake puts in place,
# and what only a package can install, because its paths are fixed: units, the settings in /etc.
if(NOT DEFT_GZIP)
  return()
endif()

# What is in the packages but in no other installation is left out unless its component is named.
function(deft_package_file component destination)
  install(FILES ${ARGN} DESTINATION ${destination} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# --- contents -------------------------------------------------------------------------------------

set(packages libdeft0 libdeft-dev deft deft-agent deft-controller python3-deft)
if(NOT TARGET deft)
  list(REMOVE_ITEM packages libdeft0 libdeft-dev python3-deft)
endif()
if(TARGET deft-cuda)
  list(APPEND packages libdeft-cuda0)
endif()
if(DEFT_HAVE_SLURM)
  list(APPEND packages ${DEFT_SPANK_PACKAGE})
endif()

# A build of the same sources gives the same date where SOURCE_DATE_EPOCH is set.
string(TIMESTAMP DEFT_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(DEFT_PACKAGE_RELEASE 1 CACHE STRING "Revision of the Debian packages of one version")
foreach(package IN LISTS packages)
  set(doc ${CMAKE_BINARY_DIR}/packaging/${package})
  file(MAKE_DIRECTORY ${doc})
  configure_file(${CMAKE_SOURCE_DIR}/packaging/deb/changelog.in ${doc}/changelog @ONLY)
  execute_process(COMMAND ${DEFT_GZIP} -9nc ${doc}/changelog
    OUTPUT_FILE ${doc}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
  deft_package_file(${package} ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}
    ${doc}/changelog.Debian.gz ${CMAKE_SOURCE_DIR}/packaging/deb/copyright)
endforeach()

deft_package_file(deft-controller /etc/deft ${CMAKE_SOURCE_DIR}/packaging/controller.conf)
deft_package_file(deft-controller lib/systemd/system
  ${CMAKE_SOURCE_DIR}/packaging/systemd/deft-controller.service)
deft_package_file(deft-agent lib/systemd/user
  ${CMAKE_SOURCE_DIR}/packaging/systemd/deft-agent@.service)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/agent/python/deft DESTINATION lib/python3/dist-packages
  COMPONENT python3-deft EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE
  PATTERN "lib" EXCLUDE)

# --- control --------------------------------------------------------------------------------------

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME deft)
set(CPACK_PACKAGE_CONTACT "DeFT Tuner developers <developers@deft.dev>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/debs)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DEFT_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # it would come before each package's own
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# Then come pairs of a CPack variable's last words and its value.
function(deft_package package synopsis text)
  string(TOUPPER ${package} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${package} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${synopsis}\n${text}" PARENT_SCOPE)
  while(ARGN)
    list(POP_FRONT ARGN field value)
    set(CPACK_DEBIAN_${key}_${field} "${value}" PARENT_SCOPE)
  endwhile()
endfunction()

set(same "(= ${PROJECT_VERSION}-${DEFT_PACKAGE_RELEASE})")
set(scripts ${CMAKE_SOURCE_DIR}/packaging/deb)
set(about "DeFT Tuner makes data-parallel training hide its communication\nbehind computation.")
deft_package(libdeft0 "runtime of DeFT Tuner inside training processes"
  "${about} This is the library that training processes load."
  PACKAGE_SECTION libs)
if(TARGET deft-cuda)
  # NVIDIA's own libraries are what a job brings, or none: they come in packages of many names.
  set(CPACK_DEBIAN_LIBDEFT0_PACKAGE_SUGGESTS libdeft-cuda0)
  deft_package(libdeft-cuda0 "passes of DeFT Tuner over gradients on CUDA devices"
    "${about} libdeft loads this for tensors on GPUs,\nbeside the CUDA runtime and NCCL of the job."
    PACKAGE_SECTION libs PACKAGE_DEPENDS "libdeft0 ${same}" PACKAGE_SUGGESTS libnccl2)
endif()
deft_package(libdeft-dev "development files of libdeft"
  "${about} Headers, and what CMake and pkg-config\nfind the library by."
  PACKAGE_SECTION libdevel PACKAGE_DEPENDS "libdeft0 ${same}")
deft_package(deft "command line of DeFT Tuner"
  "${about} Plans, simulates and compares schedules, runs\ntuned jobs and asks the controller."
  PACKAGE_DEPENDS libcurl4 PACKAGE_RECOMMENDS "deft-agent, deft-controller")
deft_package(deft-agent "agent of DeFT Tuner"
  "${about} Carries what ranks on this host measure to the\ncontroller, and plans back."
  PACKAGE_DEPENDS libcurl4) # loaded when it is needed
deft_package(deft-controller "controller of DeFT Tuner"
  "${about} Takes the reports of training jobs, plans their\ncommunication and answers a REST API."
  PACKAGE_DEPENDS "adduser, init-system-helpers (>= 1.54~)")
deft_package(python3-deft "DeFT Tuner in PyTorch programs"
  "${about} A PyTorch program is tuned in one line."
  PACKAGE_SECTION python PACKAGE_ARCHITECTURE all PACKAGE_SHLIBDEPS OFF
  PACKAGE_DEPENDS "python3:any, libdeft0 ${same}" PACKAGE_RECOMMENDS python3-torch)
if(DEFT_HAVE_SLURM)
  deft_package(${DEFT_SPANK_PACKAGE} "plug-in of DeFT Tuner for Slurm ${DEFT_SLURM_RELEASE}"
    "${about} Starts the agent for steps that ask for it:\nsrun --deft=auto."
    PACKAGE_RECOMMENDS deft-agent PACKAGE_SUGGESTS slurm-client)
endif()
set(CPACK_DEBIAN_DEFT-CONTROLLER_PACKAGE_CONTROL_EXTRA
  ${scripts}/deft-controller/conffiles ${scripts}/deft-controller/postinst
  ${scripts}/deft-controller/prerm ${scripts}/deft-controller/postrm)
set(CPACK_DEBIAN_LIBDEFT0_PACKAGE_CONTROL_EXTRA ${scripts}/libdeft0/triggers)
set(CPACK_DEBIAN_LIBDEFT-CUDA0_PACKAGE_CONTROL_EXTRA ${scripts}/libdeft0/triggers)
set(CPACK_DEBIAN_PYTHON3-DEFT_PACKAGE_CONTROL_EXTRA
  ${scripts}/python3-deft/postinst ${scripts}/python3-deft/prerm)
include(CPack)
