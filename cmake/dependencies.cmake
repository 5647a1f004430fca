# Every library that is not ours is found here and nowhere else.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(GNUTLS REQUIRED IMPORTED_TARGET gnutls)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(YAJL REQUIRED IMPORTED_TARGET yajl)

# Sets HAVE_name from a found flag and the option's wish.
function(deft_decide name found)
  if(DEFT_WITH_${name} STREQUAL ON AND NOT found)
    message(FATAL_ERROR "DEFT_WITH_${name}=ON, but its library was not found; "
      "scripts/packages build prints what to install")
  endif()
  if(found AND NOT DEFT_WITH_${name} STREQUAL OFF)
    set(DEFT_HAVE_${name} ON PARENT_SCOPE)
  else()
    set(DEFT_HAVE_${name} OFF PARENT_SCOPE)
  endif()
endfunction()

find_package(Gloo QUIET)
if(TARGET gloo)
  deft_decide(GLOO ON)
else()
  deft_decide(GLOO OFF)
endif()

pkg_check_modules(OPENBLAS QUIET IMPORTED_TARGET openblas)
if(OPENBLAS_FOUND AND DEFT_HAVE_GLOO)
  deft_decide(TRAINER ON)
else()
  deft_decide(TRAINER OFF)
endif()

# The distribution's interpreter: python3 in PATH may be one that its torch does not know.
find_program(DEFT_PYTHON NAMES python3 HINTS /usr/bin DOC "Python interpreter with torch")
if(DEFT_PYTHON AND NOT DEFT_WITH_TORCH STREQUAL "OFF")
  execute_process(COMMAND ${DEFT_PYTHON} -c "import torch"
    RESULT_VARIABLE deft_no_torch OUTPUT_QUIET ERROR_QUIET)
else()
  set(deft_no_torch 1)
endif()
if(DEFT_HAVE_GLOO AND deft_no_torch EQUAL 0)
  deft_decide(TORCH ON)
else()
  deft_decide(TORCH OFF)
endif()

if(DEFT_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  # The oracle of the planner: tests that need it are skipped without it.
  find_path(DEFT_GLPK_INCLUDE glpk.h)
  find_library(DEFT_GLPK_LIBRARY glpk)
  mark_as_advanced(DEFT_GLPK_INCLUDE DEFT_GLPK_LIBRARY)
endif()
