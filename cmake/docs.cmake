# Runs Doxygen and judges what it says: cmake -DFOLDER=<of the Doxyfile> -P docs.cmake
# Every class, enumeration and free function of a public header has a comment, and no comment is malformed. Members may
# go without where their names say it.
execute_process(COMMAND doxygen ${FOLDER}/Doxyfile OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${FOLDER}/warnings.txt warnings)
set(count 0)
foreach(line IN LISTS warnings)
  if(line MATCHES "\\((variable|function|friend)\\) of (struct|class) .* is not documented")
    continue()
  endif()
  message(NOTICE "${line}")
  math(EXPR count "${count} + 1")
endforeach()
if(count GREATER 0)
  message(FATAL_ERROR "docs: ${count} warnings")
endif()
