# Puts text files into a C file: cmake -DOUT=x.c -DKIND=schema|openapi -DFILES=a;b -P embed.cmake
# Texts become arrays of bytes, since compilers need not take long string literals.
set(body "")
set(names "")
set(number 0)
foreach(file IN LISTS FILES)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x[0-9a-f][0-9a-f],){16})" "\\1\n" bytes "${bytes}")
  string(APPEND body "static const char text_${number}[] = {\n${bytes}0x00};\n")
  string(APPEND names "text_${number},")
  math(EXPR number "${number} + 1")
endforeach()
if(KIND STREQUAL "schema")
  file(WRITE ${OUT} "#include \"store/store_schema.h\"\n${body}"
    "const char *const store_schema[] = {${names}};\n"
    "const size_t store_schema_steps = ${number};\n")
else()
  file(WRITE ${OUT} "#include \"service_openapi.h\"\n${body}"
    "const char *const service_openapi = text_0;\n")
endif()
