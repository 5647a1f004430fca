# Makes lanes_page.c of page.html: cmake -DOUT=lanes_page.c -DDIR=FOLDER -P embed_page.cmake
#
# Style and script stand inside the page, which allows exactly these two, by their hashes. The page
# is cut where its data go.

# The SHA-256 of a text as Content-Security-Policy writes it. CMake has no base64, so the digits are
# turned by hand: 32 bytes are 10 groups of 3 and one of 2.
function(csp_hash out text)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(SHA256 hex "${text}")
  string(APPEND hex 00)
  set(base64 "")
  foreach(group RANGE 10)
    math(EXPR begin "${group} * 6")
    string(SUBSTRING ${hex} ${begin} 6 six)
    foreach(shift 18 12 6 0)
      math(EXPR digit "(0x${six} >> ${shift}) & 63")
      string(SUBSTRING ${alphabet} ${digit} 1 letter)
      string(APPEND base64 "${letter}")
    endforeach()
  endforeach()
  string(SUBSTRING "${base64}" 0 43 base64)
  set(${out} "sha256-${base64}=" PARENT_SCOPE)
endfunction()

# Brackets and semicolons mean something in CMake's lists, but not in a plain string.
file(READ ${DIR}/page.html page)
set(style "")
set(script "")
foreach(name lanes.css page.css)
  file(READ ${DIR}/${name} text)
  string(APPEND style "${text}")
endforeach()
foreach(name lanes.js page.js)
  file(READ ${DIR}/${name} text)
  string(APPEND script "${text}")
endforeach()
csp_hash(style_hash "${style}")
csp_hash(script_hash "${script}")
string(REPLACE "@STYLE_HASH@" "${style_hash}" page "${page}")
string(REPLACE "@SCRIPT_HASH@" "${script_hash}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")

string(FIND "${page}" "@DATA@" cut)
if(cut LESS 0)
  message(FATAL_ERROR "${DIR}/page.html has no @DATA@")
endif()
string(SUBSTRING "${page}" 0 ${cut} before)
math(EXPR cut "${cut} + 6")
string(SUBSTRING "${page}" ${cut} -1 after)

# Arrays of bytes, since compilers need not take long string literals.
set(body "#include \"web/lanes/lanes_page.h\"\n")
foreach(part before after)
  string(HEX "${${part}}" hex)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x[0-9a-f][0-9a-f],){16})" "\\1\n" bytes "${bytes}")
  string(APPEND body "const char lanes_page_${part}[] = {\n${bytes}0x00};\n")
endforeach()
file(WRITE ${OUT} "${body}")
