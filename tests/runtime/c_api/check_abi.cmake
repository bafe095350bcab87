# The C API is what it was for programs that are compiled already:
#   cmake -DPROGRAM=abi -DLIBRARY=libulp_runtime.so -DNM=nm -DFOLDER=dir of abi.txt and symbols.txt -P check_abi.cmake
# A line of these files is changed or taken away by a new SOVERSION only. New functions, enumerators and fields at the end
# of a struct add lines.
function(expect_lines what file text)
  file(READ ${FOLDER}/${file} expected)
  if(NOT text STREQUAL expected)
    message(SEND_ERROR "${what} differ from ${FOLDER}/${file}. Expected:\n${expected}\ngot:\n${text}")
  endif()
endfunction()

execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE numbers COMMAND_ERROR_IS_FATAL ANY)
expect_lines("Sizes, offsets or enumerators" abi.txt "${numbers}")

execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " [A-Z] ulp_[a-z_0-9]+" entries "${listing}")
list(TRANSFORM entries REPLACE "^ [A-Z] " "")
list(SORT entries)
list(JOIN entries "\n" symbols)
expect_lines("Exported C symbols" symbols.txt "${symbols}\n")
