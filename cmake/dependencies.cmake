# Every library that is not ours is found here and nowhere else.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(GNUTLS REQUIRED IMPORTED_TARGET gnutls)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(NCURSESW REQUIRED IMPORTED_TARGET ncursesw)
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

# Headers and a compiler; the libraries themselves are found when a job runs. In the environment's
# path, as Debian has them, or where NVIDIA's packages put them.
find_program(DEFT_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin
  DOC "CUDA's compiler")
find_path(DEFT_CUDA_INCLUDE cuda_runtime_api.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda
  PATH_SUFFIXES include DOC "Folder with cuda_runtime_api.h")
find_path(DEFT_NCCL_INCLUDE nccl.h HINTS ENV CUDA_HOME ${DEFT_CUDA_INCLUDE} PATHS /usr/local/cuda
  PATH_SUFFIXES include DOC "Folder with nccl.h")
mark_as_advanced(DEFT_NVCC DEFT_CUDA_INCLUDE DEFT_NCCL_INCLUDE)
if(DEFT_NVCC AND DEFT_CUDA_INCLUDE AND DEFT_NCCL_INCLUDE)
  deft_decide(NCCL ON)
else()
  deft_decide(NCCL OFF)
endif()
if(DEFT_HAVE_NCCL)
  execute_process(COMMAND ${DEFT_NVCC} --version OUTPUT_VARIABLE deft_nvcc_version)
  string(REGEX MATCH "release [0-9.]+" DEFT_CUDA_RELEASE "${deft_nvcc_version}")
  list(JOIN DEFT_CUDA_ARCHITECTURES "," deft_architectures)
  string(APPEND DEFT_CUDA_RELEASE ", capabilities ${deft_architectures}")
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

# Headers of one release of Slurm; 22.05 is what the plug-in is written for and tested with.
find_path(DEFT_SLURM_INCLUDE slurm/spank.h DOC "Folder with slurm/spank.h")
mark_as_advanced(DEFT_SLURM_INCLUDE)
if(DEFT_SLURM_INCLUDE)
  deft_decide(SLURM ON)
else()
  deft_decide(SLURM OFF)
endif()
if(DEFT_HAVE_SLURM)
  file(STRINGS ${DEFT_SLURM_INCLUDE}/slurm/slurm_version.h deft_slurm_number
    REGEX "^#define SLURM_VERSION_NUMBER 0x[0-9a-fA-F]+")
  string(REGEX REPLACE ".*(0x[0-9a-fA-F]+).*" "\\1" deft_slurm_number "${deft_slurm_number}")
  math(EXPR deft_slurm_major "(${deft_slurm_number} >> 16) & 0xff")
  math(EXPR deft_slurm_minor "(${deft_slurm_number} >> 8) & 0xff")
  if(deft_slurm_minor LESS 10)
    string(PREPEND deft_slurm_minor 0)
  endif()
  set(DEFT_SLURM_RELEASE ${deft_slurm_major}.${deft_slurm_minor})
endif()

if(DEFT_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  # The oracle of the planner: tests that need it are skipped without it.
  find_path(DEFT_GLPK_INCLUDE glpk.h)
  find_library(DEFT_GLPK_LIBRARY glpk)
  mark_as_advanced(DEFT_GLPK_INCLUDE DEFT_GLPK_LIBRARY)
endif()
