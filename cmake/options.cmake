# What a build may leave out. AUTO takes a part when what it needs is there.
set(DEFT_WITH_GLOO AUTO CACHE STRING "Gloo links over TCP: AUTO, ON or OFF")
set(DEFT_WITH_TRAINER AUTO CACHE STRING
  "Example trainer (needs OpenBLAS and zlib): AUTO, ON or OFF")
set(DEFT_WITH_TORCH AUTO CACHE STRING
  "Tests of the PyTorch package (need DEFT_PYTHON with torch): AUTO, ON or OFF")
set(DEFT_WITH_SLURM AUTO CACHE STRING
  "Plug-in for Slurm (needs slurm/spank.h): AUTO, ON or OFF")
set(DEFT_WITH_WEB AUTO CACHE STRING
  "Dashboard of the controller (needs Node.js and npm): AUTO, ON or OFF")
set(DEFT_WITH_NCCL AUTO CACHE STRING
  "Tensors on CUDA devices and links of NCCL (needs nvcc and nccl.h): AUTO, ON or OFF")
set(DEFT_CUDA_ARCHITECTURES "80;90" CACHE STRING
  "Compute capabilities that kernels are compiled for; newer devices compile the last one's")
foreach(option DEFT_WITH_GLOO DEFT_WITH_TRAINER DEFT_WITH_TORCH DEFT_WITH_SLURM DEFT_WITH_WEB
    DEFT_WITH_NCCL)
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  if(NOT ${option} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${option} is '${${option}}', expected AUTO, ON or OFF")
  endif()
endforeach()
option(DEFT_TESTS "Build the tests (needs cmocka)" ON)
set(DEFT_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined or thread")
option(DEFT_FUZZ "Build libFuzzer targets (clang only)" OFF)
option(DEFT_COVERAGE "Instrument for gcov" OFF)
