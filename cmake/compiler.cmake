# One interface target carries the warnings, hardening and instrumentation of all our code.
add_library(deft_compiler INTERFACE)
target_compile_definitions(deft_compiler INTERFACE _GNU_SOURCE)
target_compile_options(deft_compiler INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wvla -Wundef -Wpointer-arith -Wcast-qual -Wwrite-strings
  -Wformat=2 -fno-strict-aliasing -fno-common -ffp-contract=off
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>
  $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>
  -fstack-protector-strong)
target_link_options(deft_compiler INTERFACE -Wl,-z,relro,-z,now)
if(DEFT_SANITIZE)
  target_compile_options(deft_compiler INTERFACE
    -fsanitize=${DEFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -U_FORTIFY_SOURCE)
  target_link_options(deft_compiler INTERFACE -fsanitize=${DEFT_SANITIZE})
endif()
if(DEFT_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "DEFT_FUZZ needs clang; use the fuzz preset")
  endif()
  target_compile_options(deft_compiler INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DEFT_COVERAGE)
  target_compile_options(deft_compiler INTERFACE --coverage)
  target_link_options(deft_compiler INTERFACE --coverage)
endif()
